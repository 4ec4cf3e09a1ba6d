//! `ctxhost diff`: what a compaction dropped, replaced and kept.

use std::process::ExitCode;

use super::error::CliError;
use super::output::Output;
use super::render;
use super::session_arg::SessionArg;
use ctxhost_history::diff_compaction;
use ctxhost_session::import;

/// Show what a compaction dropped, replaced and kept.
///
/// Reads compactions of ctxhost and of Pi. Writes nothing.
#[derive(Debug, clap::Args)]
pub(super) struct DiffArgs {
    /// Session, and which of its compactions: `session.jsonl@2` is the second, `@-1` the last.
    /// Default: the last.
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
    pub(super) fn run(self, output: &mut Output) -> Result<ExitCode, CliError> {
        let session = import::open_file(&self.session.path)?.session;
        let difference = diff_compaction(&session, self.session.number)?;
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
