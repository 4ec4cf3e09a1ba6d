//! `ctxhost diff`: what a compaction dropped, where that is, and what it kept.

use std::process::ExitCode;

use super::error::CliError;
use super::output::Output;
use super::render;
use super::session_arg::SessionArg;
use ctxhost_history::diff_compaction;
use ctxhost_session::import;

/// Show what a compaction dropped, where it is, what stands for it, and how much of what was said is
/// still said.
///
/// Reads the session and writes nothing. A compaction of Pi is told as well as one of ctxhost.
#[derive(Debug, clap::Args)]
pub(super) struct DiffArgs {
    /// The session, and which of its compactions: `session.jsonl@2` is the second, `@-1` the last, which
    /// is meant where none is named.
    #[arg(value_name = "SESSION[@N]")]
    session: SessionArg,
    /// List everything.
    #[arg(long)]
    all: bool,
    /// Print it as JSON, which always lists everything.
    #[arg(long)]
    json: bool,
}

impl DiffArgs {
    pub(super) fn run(self, output: &mut Output) -> Result<ExitCode, CliError> {
        let session = import::open_file(&self.session.path)?.session;
        let difference = diff_compaction(&session, self.session.number)?;
        let text = match self.json {
            true => {
                let json = serde_json::to_string_pretty(&difference);
                json.map_err(|error| CliError::internal(error.to_string()))? + "\n"
            }
            false => {
                render::diff::render(&difference, &self.session.path, self.all, output.style())
            }
        };
        output.print(&text)?;
        Ok(ExitCode::SUCCESS)
    }
}
