//! `ctxhost fetch`: the original that a notice replaces.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use super::agent_folders::open_session;
use super::chat::blob_dirs;
use super::error::CliError;
use super::output::Output;
use super::output_file::OutputFile;
use super::store::find_session;
use ctxhost_agent::originals::{self, OriginalError, StoredOriginal};
use ctxhost_session::Session;

/// Print the original that a notice replaces.
///
/// A notice is a text such as `[truncated: …] … the original is entry a1b2c3d4 of the session`.
/// Reads every session format that replay reads, and the blobs of the session.
#[derive(Debug, clap::Args)]
pub(super) struct FetchArgs {
    /// Session, by file or id.
    session: PathBuf,
    /// Id of the entry or file from the notice, or a prefix of it.
    #[arg(value_name = "ID")]
    handle: String,
    /// Write to a file, replacing an existing one.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Print the whole entry as one line of JSON.
    #[arg(long)]
    json: bool,
}

impl FetchArgs {
    pub(super) fn run(
        self,
        config_path: Option<&Path>,
        output: &mut Output,
    ) -> Result<ExitCode, CliError> {
        let path = find_session(&self.session, config_path)?;
        let file = self
            .out
            .as_deref()
            .map(|out| OutputFile::new(out, std::slice::from_ref(&path)))
            .transpose()?;
        let recorded = open_session(&path, output)?;
        let bytes = match self.find(&path, &recorded.session)? {
            StoredOriginal::Entry { line, .. } if self.json => {
                format!("{}\n", line.trim_end()).into()
            }
            // Tool calls and images have no text; printing nothing would look like a lost entry.
            StoredOriginal::Entry { text, .. } if text.is_empty() => {
                let message = format!("entry {} has no text", self.handle);
                return Err(CliError::user(message).hint("print the whole entry with --json"));
            }
            StoredOriginal::Entry { text, .. } => text.into_bytes(),
            StoredOriginal::Bytes(_) if self.json => {
                return Err(CliError::user("a stored file is not JSON; omit --json"));
            }
            StoredOriginal::Bytes(bytes) => bytes,
        };
        match file {
            Some(file) => file.write(&bytes)?,
            None => output.print_bytes(&bytes)?,
        }
        Ok(ExitCode::SUCCESS)
    }

    fn find(&self, path: &Path, session: &Session) -> Result<StoredOriginal, OriginalError> {
        let blobs = blob_dirs().session_blobs(path);
        originals::find_original(path, session, &blobs, &self.handle)
    }
}
