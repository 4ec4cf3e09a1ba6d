//! `ctxhost statusline`: one line about a session, for prompts and status bars.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde::Serialize;

use super::agent_folders::resolve_session;
use super::chat::session_folder;
use super::config::load_config;
use super::error::CliError;
use super::output::Output;
use super::render::format::{format_count, group_digits};
use super::render::retention;
use super::run_setup;
use super::window::parse_tokens;
use ctxhost_config::Config;
use ctxhost_history::is_rollback;
use ctxhost_retention::Shares;
use ctxhost_session::{Record, RecordedCompaction, Session, import};

/// Print in one line how full a session is.
///
/// For shells, tmux and status bars.
#[derive(Debug, clap::Args)]
pub(super) struct StatuslineArgs {
    /// Session, by file or id; by default the newest chat session of this folder.
    session: Option<PathBuf>,
    /// Context window, such as 200k; by default the window of the session's model.
    #[arg(long, value_name = "TOKENS", value_parser = parse_tokens)]
    window: Option<u64>,
    /// Print the figures as JSON.
    #[arg(long)]
    json: bool,
}

/// The figures of the line.
#[derive(Debug, Serialize)]
struct SessionStatus {
    engine: String,
    session: Option<PathBuf>,
    /// Of the next request, or of the history if a compaction comes first.
    tokens: u64,
    history_tokens: u64,
    /// Whether a compaction comes before the next request.
    needs_compaction: bool,
    budget_tokens: u64,
    window_tokens: u64,
    percent: u64,
    compactions: u64,
    /// What the last compaction retained; `None` without one, or if nothing was measured.
    retention: Option<Shares>,
}

impl StatuslineArgs {
    pub(super) fn run(
        self,
        config_path: Option<&Path>,
        output: &mut Output,
    ) -> Result<ExitCode, CliError> {
        let status = self.status(&load_config(config_path)?)?;
        let line = if self.json {
            serde_json::to_string(&status).map_err(|error| CliError::internal(error.to_string()))?
        } else {
            status.to_line()
        };
        output.print_unwrapped(&format!("{line}\n"))?;
        Ok(ExitCode::SUCCESS)
    }

    fn status(&self, config: &Config) -> Result<SessionStatus, CliError> {
        let path = match &self.session {
            Some(path) => Some(resolve_session(path)?),
            None => newest_session()?,
        };
        let session = path.as_deref().map(import::open_file).transpose()?;
        let recorded_tokens = session.as_ref().and_then(|recorded| recorded.window_tokens);
        let session = session.map(|recorded| recorded.session);
        let model = session.as_ref().and_then(Session::model);
        let window = run_setup::model_window(config, model.as_ref(), self.window, recorded_tokens);
        let branch = session.as_ref().map(Session::branch).unwrap_or_default();
        let compacted = branch.into_iter().filter_map(Record::compaction);
        let compacted: Vec<RecordedCompaction> =
            compacted.filter(|compaction| !is_rollback(compaction)).collect();
        let (compactions, retention) =
            (compacted.len() as u64, compacted.last().and_then(retention_of));
        // A status bar has no place for the error of an engine.
        let next = session.map(|session| run_setup::preview(config, session, &window).0);
        let tokens = next.as_ref().map_or(0, |next| next.tokens);
        let budget_tokens = next.as_ref().map_or(window.budget_tokens, |next| next.budget.tokens);
        Ok(SessionStatus {
            engine: config.slot().engine,
            session: path,
            tokens,
            history_tokens: next.as_ref().map_or(0, |next| next.view.total_tokens()),
            needs_compaction: next.is_some_and(|next| next.needs_compaction),
            budget_tokens,
            window_tokens: window.window_tokens,
            // Of the budget, not of the window: a compaction starts at the budget.
            percent: tokens * 100 / budget_tokens.max(1),
            compactions,
            retention,
        })
    }
}

impl SessionStatus {
    fn to_line(&self) -> String {
        // A status bar must always show something, so this is not an error.
        if self.session.is_none() {
            return format!("{} · no session yet", self.engine);
        }
        let mut parts = vec![
            self.engine.clone(),
            format!("{}%", self.percent),
            format!(
                "{} of {} tokens, window {}",
                group_digits(self.tokens),
                group_digits(self.budget_tokens),
                group_digits(self.window_tokens)
            ),
            format_count(self.compactions, "compaction"),
        ];
        if self.needs_compaction {
            parts.push("compacted before the next request".into());
        } else if self.history_tokens > self.tokens {
            parts.push(format!("from {} tokens of history", group_digits(self.history_tokens)));
        }
        let kept = self.retention.as_ref().map(retention::format_mean);
        parts.extend(kept.map(|share| format!("retention of the last compaction {share}")));
        parts.join(" · ")
    }
}

fn newest_session() -> Result<Option<PathBuf>, CliError> {
    let kept = session_folder(&std::env::current_dir()?).list();
    Ok(kept.into_iter().next().map(|kept| kept.path))
}

/// Reads the retention figures from the record of a compaction.
fn retention_of(compacted: &RecordedCompaction) -> Option<Shares> {
    // The key of the session format; the figures are called retention everywhere else.
    let shares = compacted.host_details.get("survival")?;
    serde_json::from_value(shares.clone()).ok()
}
