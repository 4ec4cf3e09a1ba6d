//! `ctxhost context`: what fills the window of a session.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::json;

use super::agent_folders::{open_session, resolve_session};
use super::error::CliError;
use super::output::Output;
use super::render::context_usage::{self, WindowBudget};
use super::render::format::group_digits;
use super::run_setup;
use super::window::parse_tokens;
use ctxhost_agent::context_usage::ContextUsage;
use ctxhost_agent::replay::report::ReplayWindow;

/// Show what fills the context window of a session.
///
/// Also shows what could be freed, and when the next compaction is due.
#[derive(Debug, clap::Args)]
pub(super) struct ContextArgs {
    /// Session or recording of another agent: a file, or an id that `ctxhost doctor` prints.
    session: PathBuf,
    /// Context window, such as 200k; by default the window of the session's model.
    #[arg(long, value_name = "TOKENS", value_parser = parse_tokens)]
    window: Option<u64>,
    /// Print the figures as JSON.
    #[arg(long)]
    json: bool,
}

impl ContextArgs {
    pub(super) fn run(
        self,
        config_path: Option<&Path>,
        output: &mut Output,
    ) -> Result<ExitCode, CliError> {
        let path = resolve_session(&self.session)?;
        let config = run_setup::find_config(config_path, &path, output)?;
        let recorded = open_session(&path, output)?;
        let (session, recorded_tokens) = (recorded.session, recorded.window_tokens);
        let model = session.model();
        let facts = run_setup::model_window(&config, model.as_ref(), self.window, recorded_tokens);
        let usage = ContextUsage::from_transcript(&session.live(0).snapshot());
        if self.json {
            return print_json(&usage, &facts, output);
        }
        let ReplayWindow { window_tokens, source, reserve_tokens, budget_tokens } = facts;
        let head = format!(
            "{} · window {} ({source}) · engine {}\n\n",
            self.session.display(),
            group_digits(window_tokens),
            config.slot().engine
        );
        let window = WindowBudget { window_tokens, reserve_tokens, budget_tokens };
        output.print(&(head + &context_usage::render(&usage, window, output.style())))?;
        Ok(ExitCode::SUCCESS)
    }
}

fn print_json(
    usage: &ContextUsage,
    window: &ReplayWindow,
    output: &mut Output,
) -> Result<ExitCode, CliError> {
    let budget_tokens = window.budget_tokens;
    let figures = json!({
        "window": window,
        "usage": usage,
        "free_tokens": budget_tokens.saturating_sub(usage.tokens),
        "turns_until_compaction": usage.turns_left(budget_tokens),
    });
    output.print_json(&figures)?;
    Ok(ExitCode::SUCCESS)
}
