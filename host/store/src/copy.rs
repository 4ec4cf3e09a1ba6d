//! Sessions of one store copied into another: what is there already stays, what differs is told.

use super::SessionStore;
use ctxhost_session::{Session, SessionError};

/// What became of the sessions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CopyReport {
    /// Sessions that were not there.
    pub copied: usize,
    /// Their lines.
    pub lines: usize,
    /// Sessions that were there, with the same lines or with more behind them.
    pub present: usize,
    /// Sessions that say something else there: nothing was done about them.
    pub different: Vec<String>,
    /// Sessions that could not be copied, each with the reason.
    pub failed: Vec<(String, String)>,
}

/// Copies sessions, the oldest first. Doing it again copies what is new; one failure keeps no other session
/// back.
pub fn copy_sessions(
    sessions: impl IntoIterator<Item = (String, Result<Session, SessionError>)>,
    to: &dyn SessionStore,
) -> CopyReport {
    let mut copied = CopyReport::default();
    for (name, session) in sessions {
        let outcome = session.and_then(|session| copy(session, to));
        match outcome {
            Ok(CopyOutcome::Copied { lines }) => {
                copied.copied += 1;
                copied.lines += lines;
            }
            Ok(CopyOutcome::Present) => copied.present += 1,
            Ok(CopyOutcome::Different) => copied.different.push(name),
            Err(error) => copied.failed.push((name, error.to_string())),
        }
    }
    copied
}

enum CopyOutcome {
    Copied { lines: usize },
    Present,
    Different,
}

fn copy(session: Session, to: &dyn SessionStore) -> Result<CopyOutcome, SessionError> {
    let id = session.header().id().to_owned();
    match to.read(&id) {
        Ok(there) => {
            let (ours, theirs) = (session.normalized_bytes(), there.to_bytes());
            Ok(if theirs.starts_with(&ours) {
                CopyOutcome::Present
            } else {
                CopyOutcome::Different
            })
        }
        Err(SessionError::NotFound { .. }) => {
            let lines = session.normalized_bytes().split_inclusive(|byte| *byte == b'\n').count();
            to.insert(session)?;
            Ok(CopyOutcome::Copied { lines })
        }
        Err(error) => Err(error),
    }
}
