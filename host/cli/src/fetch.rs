//! `ctxhost fetch`: the original behind a notice.

use std::path::PathBuf;
use std::process::ExitCode;

use super::chat::media_home;
use super::failure::Failure;
use super::output::Output;
use ctxhost_runtime::originals::{self, FetchError, Original};
use ctxhost_session::{Session, recording};

/// Print what a notice such as `[truncated: …] … the original is entry a1b2c3d4 of the session`
/// stands for.
///
/// Reads every session that replay reads, and the results and images that were put away for it.
#[derive(Debug, clap::Args)]
pub(super) struct Fetch {
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

impl Fetch {
    pub(super) fn run(self, output: &mut Output) -> Result<ExitCode, Failure> {
        let recorded = recording::read(&self.session)?;
        let bytes = match self.find(&recorded.session)? {
            Original::Entry { line, .. } if self.json => format!("{}\n", line.trim_end()).into(),
            Original::Entry { text, .. } if text.is_empty() => {
                let message = format!("entry {} holds no text", self.handle);
                return Err(Failure::caller(message).hint("print all of it with --json"));
            }
            Original::Entry { text, .. } => text.into_bytes(),
            Original::Bytes(_) if self.json => {
                return Err(Failure::caller(
                    "a file that was put away is no JSON; leave --json out",
                ));
            }
            Original::Bytes(bytes) => bytes,
        };
        match &self.out {
            Some(path) => std::fs::write(path, bytes).map_err(|error| {
                Failure::internal(format!("cannot write {}: {error}", path.display()))
            })?,
            None => output.print_bytes(&bytes)?,
        }
        Ok(ExitCode::SUCCESS)
    }

    fn find(&self, session: &Session) -> Result<Original, FetchError> {
        let blobs = media_home().of_session(&self.session);
        originals::find(&self.session, session, &blobs, &self.handle)
    }
}
