//! `ctxhost branch`: another session that begins like this one.

use std::path::PathBuf;
use std::process::ExitCode;

use super::chat::media_home;
use super::failure::Failure;
use super::moment::now_ms;
use super::named::Named;
use super::output::Output;
use ctxhost_history::{HistoryError, Until, fork};
use ctxhost_runtime::originals;
use ctxhost_session::Session;

/// Fork a session: a new file with all that was said up to a moment. Prints its path.
///
/// The original stays as it is, byte for byte; the fork names it as its parent, as Pi does. Without a
/// moment it is forked where it stands.
#[derive(Debug, clap::Args)]
pub(super) struct Branch {
    /// The session; `session.jsonl@2` ends just before its second compaction.
    #[arg(value_name = "SESSION[@N]")]
    session: Named,
    /// End with this entry, of whatever branch of the file.
    #[arg(long, value_name = "ID", conflicts_with = "turn")]
    at: Option<String>,
    /// End with this turn.
    #[arg(long, value_name = "N")]
    turn: Option<usize>,
    /// The new file; by default one beside the original.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
}

impl Branch {
    pub(super) fn run(self, output: &mut Output) -> Result<ExitCode, Failure> {
        let until = match (self.at, self.turn, self.session.number) {
            (None, None, None) => Until::Leaf,
            (Some(id), None, None) => Until::Record(id),
            (None, Some(turn), None) => Until::Turn(turn),
            (None, None, Some(number)) => Until::BeforeCompaction(number),
            _ => return Err(Failure::caller("the moment is named twice; name it once")),
        };
        let original = &self.session.path;
        let session = Session::read(original)?;
        let parent = std::path::absolute(original)?.display().to_string();
        let fork = fork(&session, &until, &parent, now_ms())?;
        let path = self.out.unwrap_or_else(|| original.with_file_name(fork.header().file_name()));
        if path.exists() {
            return Err(HistoryError::Taken { path }.into());
        }
        fork.kept_in(&path)?;
        let (from, own) = (media_home().of_session(original), media_home().of_session(&path));
        originals::bring_along(&session, &from, &own)?;
        output.print(&format!("{}\n", path.display()))?;
        Ok(ExitCode::SUCCESS)
    }
}
