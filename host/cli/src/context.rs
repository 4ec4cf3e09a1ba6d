//! `ctxhost context`: what fills the window of a session.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::json;

use super::agent_folders::open_session;
use super::error::CliError;
use super::output::Output;
use super::render::context_usage::{self, NextRequest};
use super::render::format::group_digits;
use super::run_setup;
use super::store::find_session;
use super::window::parse_tokens;
use ctxhost_agent::context_usage::ContextUsage;
use ctxhost_agent::replay::report::ReplayWindow;
use ctxhost_context::{CompactionPolicy, PromptPreview};

/// Show what fills the context window of a session.
///
/// Also shows what could be freed, and what becomes of the next request.
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
        let path = find_session(&self.session, config_path)?;
        let config = run_setup::find_config(config_path, &path, output)?;
        let recorded = open_session(&path, output)?;
        let (session, recorded_tokens) = (recorded.session, recorded.window_tokens);
        let model = session.model();
        let window = run_setup::model_window(&config, model.as_ref(), self.window, recorded_tokens);
        let (preview, error) = run_setup::preview(&config, session, &window);
        let error = error.map(CliError::into_message);
        if let Some(error) = &error {
            output.note(&format!("the next request fails: {error}"));
        }
        let usage = ContextUsage::from_transcript(&preview.view);
        if self.json {
            return print_json(&usage, &window, &preview, error.as_deref(), output);
        }
        let head = format!(
            "{} · window {} ({}) · engine {}\n\n",
            self.session.display(),
            group_digits(window.window_tokens),
            window.source,
            config.slot().engine
        );
        let compaction = CompactionPolicy::for_request(&config.compaction, false);
        let mut next = NextRequest::new(&preview, compaction, window.window_tokens);
        next.is_refused = error.is_some();
        output.print(&(head + &context_usage::render(&usage, next, output.style())))?;
        Ok(ExitCode::SUCCESS)
    }
}

fn print_json(
    usage: &ContextUsage,
    window: &ReplayWindow,
    preview: &PromptPreview,
    error: Option<&str>,
    output: &mut Output,
) -> Result<ExitCode, CliError> {
    let budget_tokens = preview.budget.tokens;
    let figures = json!({
        "window": window,
        "usage": usage,
        "next_request": {
            "engine": preview.engine,
            "tokens": preview.tokens,
            "needs_compaction": preview.needs_compaction,
            "error": error,
        },
        "free_tokens": budget_tokens.saturating_sub(preview.tokens),
        "turns_until_full": usage.turns_left(budget_tokens).filter(|_| error.is_none()),
    });
    output.print_json(&figures)?;
    Ok(ExitCode::SUCCESS)
}
