//! `ctxhost statusline`: one line about a session, for prompts and status bars.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde::Serialize;

use super::chat::session_folder;
use super::config::load_config;
use super::error::CliError;
use super::json_path::json_path;
use super::output::Output;
use super::render::format::{format_count, group_digits};
use super::render::retention;
use super::run_setup;
use super::store::{find_session, is_database};
use super::window::parse_tokens;
use ctxhost_config::Config;
use ctxhost_history::is_rollback;
use ctxhost_retention::Shares;
use ctxhost_session::{Record, RecordedCompaction, Session};

/// Longest line: the width of the narrowest usual terminal.
const MOST_CHARS: usize = 80;

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
    session: Option<String>,
    /// Whether no session was named, and the config keeps them in a database.
    #[serde(skip)]
    is_stored: bool,
    /// Of the next request, or of the history if a compaction comes first.
    tokens: u64,
    history_tokens: u64,
    /// Whether a compaction comes before the next request.
    needs_compaction: bool,
    /// Why the next request fails.
    error: Option<String>,
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
        let status = self.status(&load_config(config_path)?, config_path)?;
        let line = if self.json {
            serde_json::to_string(&status).map_err(|error| CliError::internal(error.to_string()))?
        } else {
            status.to_line()
        };
        output.print_unwrapped(&format!("{line}\n"))?;
        Ok(ExitCode::SUCCESS)
    }

    fn status(
        &self,
        config: &Config,
        config_path: Option<&Path>,
    ) -> Result<SessionStatus, CliError> {
        let is_stored = self.session.is_none() && is_database(config);
        let path = match &self.session {
            Some(path) => Some(find_session(path, config_path)?),
            None if is_stored => None,
            None => newest_session()?,
        };
        let session = path.as_deref().map(ctxhost_import::open_file).transpose()?;
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
        let next = session.map(|session| run_setup::preview(config, session, &window));
        let (next, error) = next.map_or((None, None), |(next, error)| (Some(next), error));
        let tokens = next.as_ref().map_or(0, |next| next.tokens);
        let budget_tokens = next.as_ref().map_or(window.budget_tokens, |next| next.budget.tokens);
        Ok(SessionStatus {
            engine: config.slot().engine,
            session: path.as_deref().map(json_path),
            is_stored,
            tokens,
            history_tokens: next.as_ref().map_or(0, |next| next.view.total_tokens()),
            needs_compaction: next.is_some_and(|next| next.needs_compaction),
            error: error.map(CliError::into_message),
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
        if self.is_stored {
            return format!(
                "{} · sessions are in the store: see `ctxhost sessions list`",
                self.engine
            );
        }
        if self.session.is_none() {
            return format!("{} · no session yet", self.engine);
        }
        let figures =
            format!("{} of {} tokens", group_digits(self.tokens), group_digits(self.budget_tokens));
        let with_window = format!("{figures}, window {}", group_digits(self.window_tokens));
        let compactions = format_count(self.compactions, "compaction");
        let kept = self.retention.as_ref().map(retention::format_mean);
        let with_retention = kept.map(|share| format!("{compactions}, retention {share}"));
        let with_retention = with_retention.unwrap_or_else(|| compactions.clone());
        let state = if self.error.is_some() {
            // A status bar has no place for the error itself.
            "the next request fails: see `ctxhost context`".to_owned()
        } else if self.needs_compaction {
            "compacted before the next request".to_owned()
        } else if self.history_tokens > self.tokens {
            format!("from {} tokens of history", group_digits(self.history_tokens))
        } else {
            String::new()
        };
        let percent = format!("{}%", self.percent);
        let line = |parts: &[&str]| {
            let parts = [self.engine.as_str(), &percent].into_iter().chain(parts.iter().copied());
            parts.filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" · ")
        };
        // What is known anyway, or least needed, is left out first.
        let lines = [
            line(&[&with_window, &with_retention, &state]),
            line(&[&figures, &with_retention, &state]),
            line(&[&figures, &compactions, &state]),
            line(&[&figures, &state]),
            line(&[&state]),
        ];
        let last = lines.last().map(|line| line.chars().take(MOST_CHARS).collect());
        let fitting = lines.into_iter().find(|line| line.chars().count() <= MOST_CHARS);
        fitting.or(last).unwrap_or_default()
    }
}

fn newest_session() -> Result<Option<PathBuf>, CliError> {
    let cwd = std::env::current_dir()?;
    let newest = session_folder(&cwd).newest_of(&cwd).map_err(CliError::unlisted)?;
    Ok(newest.map(|kept| kept.path))
}

/// Reads the retention figures from the record of a compaction.
fn retention_of(compacted: &RecordedCompaction) -> Option<Shares> {
    // The key of the session format; the figures are called retention everywhere else.
    let shares = compacted.host_details.get("survival")?;
    serde_json::from_value(shares.clone()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_fits_a_terminal() {
        let status = |engine: &str, history_tokens, needs_compaction| SessionStatus {
            engine: engine.into(),
            session: Some("s.jsonl".into()),
            is_stored: false,
            tokens: 120_000,
            history_tokens,
            needs_compaction,
            error: None,
            budget_tokens: 150_000,
            window_tokens: 200_000,
            percent: 80,
            compactions: 12,
            retention: Some(Shares::default()),
        };
        for engine in ["dag", "head-tail", "mask+boundary+legacy", &"long-name+".repeat(9)] {
            for (history_tokens, needs_compaction) in [(0, false), (1_400_000, false), (0, true)] {
                let line = status(engine, history_tokens, needs_compaction).to_line();
                assert!(line.chars().count() <= MOST_CHARS, "{line}");
            }
        }
        let line = status("dag", 1_400_000, false).to_line();
        assert!(line.starts_with("dag · 80% · 120,000 of 150,000 tokens"), "{line}");
        assert!(line.ends_with("from 1,400,000 tokens of history"), "{line}");
        let failing = SessionStatus { error: Some("too small".into()), ..status("dag", 0, true) };
        let line = failing.to_line();
        assert!(line.ends_with("the next request fails: see `ctxhost context`"), "{line}");
        assert!(line.chars().count() <= MOST_CHARS, "{line}");
        let stored = SessionStatus { is_stored: true, ..status("dag", 0, false) }.to_line();
        assert!(stored.contains("ctxhost sessions list"), "{stored}");
    }
}
