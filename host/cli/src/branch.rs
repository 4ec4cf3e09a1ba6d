//! `ctxhost branch`: forks a session.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use super::agent_folders::is_of_openclaw;
use super::chat::blob_dirs;
use super::clock::now_ms;
use super::error::CliError;
use super::output::Output;
use super::session_arg::{SessionArg, shell_quote};
use super::session_file::read_session;
use super::store::find_session;
use ctxhost_agent::originals;
use ctxhost_history::{ForkPoint, HistoryError, fork_session};
use ctxhost_session::{SESSION_VERSION, SessionError};

/// Fork a session into a new file and print its path.
///
/// The original is not changed; the fork names it as its parent, as Pi does. By default the fork
/// holds the whole session.
#[derive(Debug, clap::Args)]
pub(super) struct BranchArgs {
    /// Session; `session.jsonl@2` ends just before its second compaction.
    #[arg(value_name = "SESSION[@N]")]
    session: SessionArg,
    /// Last entry of the fork, on any branch of the file.
    #[arg(long, value_name = "ID", conflicts_with = "turn")]
    at: Option<String>,
    /// Last turn of the fork.
    #[arg(long, value_name = "N")]
    turn: Option<usize>,
    /// New file; by default beside the original (OpenClaw's: here).
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

impl BranchArgs {
    pub(super) fn run(
        self,
        config_path: Option<&Path>,
        output: &mut Output,
    ) -> Result<ExitCode, CliError> {
        let until = match (self.at, self.turn, self.session.number) {
            (None, None, None) => ForkPoint::Leaf,
            (Some(id), None, None) => ForkPoint::Record(id),
            (None, Some(turn), None) => ForkPoint::Turn(turn),
            (None, None, Some(number)) => ForkPoint::BeforeCompaction(number),
            _ => return Err(CliError::user("give only one of --at, --turn and @N")),
        };
        let named = &self.session.path;
        let original = &find_session(named, config_path)?;
        let session = read_session(named, original)?;
        // Absolute, since the fork may be moved or opened from another folder.
        let parent = std::path::absolute(original)?.display().to_string();
        let fork = fork_session(&session, &until, &parent, now_ms());
        let fork = fork.map_err(|error| fork_error(error, original))?;
        let beside = || {
            let name = fork.header().file_name();
            // OpenClaw would list the fork as a session of its own.
            if is_of_openclaw(original) { name.into() } else { original.with_file_name(name) }
        };
        let path = self.out.unwrap_or_else(beside);
        // Checked before anything is written; a fork must never replace a session.
        if path.exists() {
            return Err(HistoryError::AlreadyExists { path }.into());
        }
        fork.into_file(&path)?;
        let (from, own) = (blob_dirs().session_blobs(original), blob_dirs().session_blobs(&path));
        originals::copy_blobs(&session, &from, &own)?;
        output.print_unwrapped(&format!("{}\n", path.display()))?;
        if let Some(version) = session.migrated_from() {
            output.note(&format!(
                "the fork has version {SESSION_VERSION} of the session format; the original stays in version {version}"
            ));
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// The error of a fork, with the command that lists the ids if one is unknown.
fn fork_error(error: HistoryError, original: &Path) -> CliError {
    match error {
        HistoryError::Session(SessionError::UnknownRecord { id }) => {
            let original = shell_quote(original);
            let list = format!("`ctxhost sessions show {original}` lists the ids of its branch");
            CliError::user(format!("no record {id:?} in {original}")).hint(list)
        }
        other => other.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_id_names_the_command_that_lists_them() {
        let unknown = SessionError::UnknownRecord { id: "nope".into() };
        let error = fork_error(unknown.into(), Path::new("a.jsonl")).to_string();
        assert!(error.contains("\"nope\"") && error.contains("sessions show a.jsonl"), "{error}");
    }
}
