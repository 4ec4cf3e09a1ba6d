//! `ctxhost statusline`: one line about a session, for prompts and status bars.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde::Serialize;

use super::chat::sessions_of;
use super::config::nearest;
use super::failure::Failure;
use super::output::Output;
use super::render::phrase::{counted, grouped};
use super::render::survival;
use super::setup;
use super::window::parse_tokens;
use ctxhost_config::Config;
use ctxhost_session::{Compacted, Record, Session, recording};
use ctxhost_survival::Shares;

/// Say in one line how full a session is, for shells, tmux and status bars.
#[derive(Debug, clap::Args)]
pub(super) struct Statusline {
    /// The session; by default the newest that `chat` keeps for this folder.
    session: Option<PathBuf>,
    /// The context window, such as 200k; by default the window of its model.
    #[arg(long, value_name = "TOKENS", value_parser = parse_tokens)]
    window: Option<u64>,
    /// Print the figures as JSON.
    #[arg(long)]
    json: bool,
}

/// What the line says.
#[derive(Debug, Serialize)]
struct Status {
    engine: String,
    session: Option<PathBuf>,
    tokens: u64,
    budget_tokens: u64,
    window_tokens: u64,
    percent: u64,
    compactions: u64,
    /// What the last compaction kept; none without one, or where it did not count.
    survival: Option<Shares>,
}

impl Statusline {
    pub(super) fn run(
        self,
        config_path: Option<&Path>,
        output: &mut Output,
    ) -> Result<ExitCode, Failure> {
        let config = match config_path.map(Path::to_owned).or_else(nearest) {
            Some(path) => Config::load(path)?,
            None => Config::default(),
        };
        let status = self.status(&config)?;
        let line = match self.json {
            true => serde_json::to_string(&status)
                .map_err(|error| Failure::internal(error.to_string()))?,
            false => status.line(),
        };
        output.print(&format!("{line}\n"))?;
        Ok(ExitCode::SUCCESS)
    }

    fn status(&self, config: &Config) -> Result<Status, Failure> {
        let path = match &self.session {
            Some(path) => Some(path.clone()),
            None => newest()?,
        };
        let session = path.as_deref().map(recording::read).transpose()?;
        let recorded_tokens = session.as_ref().and_then(|recorded| recorded.window_tokens);
        let session = session.map(|recorded| recorded.session);
        let model = session.as_ref().and_then(Session::model);
        let window = setup::window_of(config, model.as_ref(), self.window, recorded_tokens);
        let tokens = session.as_ref().map_or(0, |session| session.live(0).total_tokens());
        let branch = session.as_ref().map(Session::branch).unwrap_or_default();
        let compacted: Vec<Compacted> = branch.into_iter().filter_map(Record::compacted).collect();
        Ok(Status {
            engine: config.slot().engine,
            session: path,
            tokens,
            budget_tokens: window.budget_tokens,
            window_tokens: window.window_tokens,
            percent: tokens * 100 / window.budget_tokens.max(1),
            compactions: compacted.len() as u64,
            survival: compacted.last().and_then(survival_of),
        })
    }
}

impl Status {
    fn line(&self) -> String {
        if self.session.is_none() {
            return format!("{} · no session yet", self.engine);
        }
        let mut parts = vec![
            self.engine.clone(),
            format!("{}%", self.percent),
            format!(
                "{} of {} tokens, window {}",
                grouped(self.tokens),
                grouped(self.budget_tokens),
                grouped(self.window_tokens)
            ),
            counted(self.compactions, "compaction"),
        ];
        let survival = self.survival.as_ref().map(survival::mean);
        parts.extend(survival.map(|share| format!("the last kept {share}")));
        parts.join(" · ")
    }
}

fn newest() -> Result<Option<PathBuf>, Failure> {
    let kept = sessions_of(&std::env::current_dir()?).list();
    Ok(kept.into_iter().next().map(|kept| kept.path))
}

/// What the record of a compaction says that it kept.
fn survival_of(compacted: &Compacted) -> Option<Shares> {
    let shares = compacted.host_details.get("survival")?;
    serde_json::from_value(shares.clone()).ok()
}
