//! `ctxhost diff`: what a compaction dropped, replaced and kept.

use std::path::Path;
use std::process::ExitCode;

use super::agent_folders::{line_numbers, open_session};
use super::error::CliError;
use super::output::Output;
use super::render;
use super::session_arg::SessionArg;
use super::store::stored_hint;
use ctxhost_history::diff_compaction;

/// Show what a compaction dropped, replaced and kept.
///
/// Reads sessions of ctxhost and recordings of other agents with their compactions. Writes nothing.
#[derive(Debug, clap::Args)]
pub(super) struct DiffArgs {
    /// Session, and which of its compactions: `session.jsonl@2` is the second, `@-1` the last.
    /// Default: the last. A session is a file, or an id that `ctxhost doctor` prints.
    #[arg(value_name = "SESSION[@N]")]
    session: SessionArg,
    /// List everything.
    #[arg(long)]
    all: bool,
    /// Print the difference as JSON, always complete.
    #[arg(long)]
    json: bool,
}

impl DiffArgs {
    pub(super) fn run(
        self,
        config_path: Option<&Path>,
        output: &mut Output,
    ) -> Result<ExitCode, CliError> {
        let recorded = open_session(&self.session.path, output)
            .map_err(|error| stored_hint(error, &self.session.path, config_path))?;
        let lines = line_numbers(&recorded);
        let difference = diff_compaction(&recorded.session, self.session.number, lines)?;
        if self.json {
            output.print_json(&difference)?;
        } else {
            let style = output.style();
            output.print(&render::diff::render(
                &difference,
                &self.session.path,
                self.all,
                style,
            ))?;
        }
        Ok(ExitCode::SUCCESS)
    }
}
