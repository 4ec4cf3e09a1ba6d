//! `ctxhost context`: what the window of a session is filled with.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::json;

use super::failure::Failure;
use super::output::Output;
use super::render::filling::{self, Window};
use super::render::phrase::grouped;
use super::setup;
use super::window::parse_tokens;
use ctxhost_runtime::filling::Filling;
use ctxhost_runtime::replay::report::WindowFacts;
use ctxhost_session::recording;

/// Show what the window of a session is filled with, what of it could be given back, and when the next
/// compaction is near.
#[derive(Debug, clap::Args)]
pub(super) struct Context {
    /// The session.
    session: PathBuf,
    /// The context window, such as 200k; by default the window of its model.
    #[arg(long, value_name = "TOKENS", value_parser = parse_tokens)]
    window: Option<u64>,
    /// Print the figures as JSON.
    #[arg(long)]
    json: bool,
}

impl Context {
    pub(super) fn run(
        self,
        config_path: Option<&Path>,
        output: &mut Output,
    ) -> Result<ExitCode, Failure> {
        let config = setup::find_config(config_path, &self.session, output)?;
        let recorded = recording::read(&self.session)?;
        let (session, recorded_tokens) = (recorded.session, recorded.window_tokens);
        let model = session.model();
        let facts = setup::window_of(&config, model.as_ref(), self.window, recorded_tokens);
        let filling = Filling::of(&session.live(0).snapshot());
        if self.json {
            return print_json(&filling, &facts, output);
        }
        let WindowFacts { window_tokens, source, reserve_tokens, budget_tokens } = facts;
        let head = format!(
            "{} · window {} ({source}) · engine {}\n\n",
            self.session.display(),
            grouped(window_tokens),
            config.slot().engine
        );
        let window = Window { window_tokens, reserve_tokens, budget_tokens };
        output.print(&(head + &filling::render(&filling, window, output.style())))?;
        Ok(ExitCode::SUCCESS)
    }
}

fn print_json(
    filling: &Filling,
    window: &WindowFacts,
    output: &mut Output,
) -> Result<ExitCode, Failure> {
    let budget_tokens = window.budget_tokens;
    let figures = json!({
        "window": window,
        "filling": filling,
        "free_tokens": budget_tokens.saturating_sub(filling.tokens),
        "turns_until_compaction": filling.turns_until(budget_tokens),
    });
    let text = serde_json::to_string_pretty(&figures);
    output.print_bytes(
        (text.map_err(|error| Failure::internal(error.to_string()))? + "\n").as_bytes(),
    )?;
    Ok(ExitCode::SUCCESS)
}
