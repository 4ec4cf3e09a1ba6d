//! `ctxhost fetch`: the original behind a notice.

use std::path::PathBuf;
use std::process::ExitCode;

use super::chat::blob_dirs;
use super::error::CliError;
use super::output::Output;
use ctxhost_agent::originals::{self, OriginalError, StoredOriginal};
use ctxhost_session::{Session, import};

/// Print what a notice such as `[truncated: …] … the original is entry a1b2c3d4 of the session`
/// stands for.
///
/// Reads every session that replay reads, and the results and images that were put away for it.
#[derive(Debug, clap::Args)]
pub(super) struct FetchArgs {
    /// The session.
    session: PathBuf,
    /// The handle that the notice names, or the beginning of it.
    handle: String,
    /// Write it to a file instead; one that is there is replaced.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Print the entry as the session has it, one line of JSON with everything but its text too.
    #[arg(long)]
    json: bool,
}

impl FetchArgs {
    pub(super) fn run(self, output: &mut Output) -> Result<ExitCode, CliError> {
        let recorded = import::open_file(&self.session)?;
        let bytes = match self.find(&recorded.session)? {
            StoredOriginal::Entry { line, .. } if self.json => {
                format!("{}\n", line.trim_end()).into()
            }
            StoredOriginal::Entry { text, .. } if text.is_empty() => {
                let message = format!("entry {} holds no text", self.handle);
                return Err(CliError::user(message).hint("print all of it with --json"));
            }
            StoredOriginal::Entry { text, .. } => text.into_bytes(),
            StoredOriginal::Bytes(_) if self.json => {
                return Err(CliError::user(
                    "a file that was put away is no JSON; leave --json out",
                ));
            }
            StoredOriginal::Bytes(bytes) => bytes,
        };
        match &self.out {
            Some(path) => std::fs::write(path, bytes).map_err(|error| {
                CliError::internal(format!("cannot write {}: {error}", path.display()))
            })?,
            None => output.print_bytes(&bytes)?,
        }
        Ok(ExitCode::SUCCESS)
    }

    fn find(&self, session: &Session) -> Result<StoredOriginal, OriginalError> {
        let blobs = blob_dirs().session_blobs(&self.session);
        originals::find_original(&self.session, session, &blobs, &self.handle)
    }
}
