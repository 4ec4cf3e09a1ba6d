//! Copies sessions from one store to another without changing existing ones.

use super::SessionStore;
use ctxhost_session::{Session, SessionError};

/// The result of a copy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CopyReport {
    /// Number of new sessions.
    pub copied: usize,
    /// Number of their lines.
    pub lines: usize,
    /// Number of sessions that were there with the same lines, perhaps followed by more.
    pub present: usize,
    /// Sessions with other content in the target, which were not changed.
    pub different: Vec<String>,
    /// Sessions that could not be copied, with the reason.
    pub failed: Vec<(String, String)>,
}

/// Copies sessions, oldest first. It can be repeated, and a failure does not stop the others.
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
            // The stored session may have been continued since it was copied.
            Ok(if theirs.starts_with(&ours) {
                CopyOutcome::Present
            } else {
                CopyOutcome::Different
            })
        }
        // Read first instead of relying on `AlreadyExists`: a second run has to tell copied sessions from different ones.
        Err(SessionError::NotFound { .. }) => {
            let lines = session.normalized_bytes().split_inclusive(|byte| *byte == b'\n').count();
            to.insert(session)?;
            Ok(CopyOutcome::Copied { lines })
        }
        Err(error) => Err(error),
    }
}
