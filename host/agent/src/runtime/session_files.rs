//! Checks the files of open sessions once a second and recreates those that were deleted, renamed or replaced.

use std::sync::Arc;
use std::time::Duration;

use super::Runtime;
use crate::event::EventKind;
use crate::session_cell::{SessionCell, SessionId};
use crate::state::RuntimeState;
use ctxhost_session::FileCheck;

/// How long a lost file may go unnoticed while nothing is appended. A check costs two system calls per open session.
const INTERVAL: Duration = Duration::from_secs(1);

impl Runtime {
    /// Checks the files of all open sessions for as long as the runtime lives.
    pub(super) fn watch_session_files(&self) {
        let shutdown = self.state.shutdown.clone();
        let state = Arc::downgrade(&self.state);
        tokio::spawn(async move {
            while shutdown.run_until_cancelled(tokio::time::sleep(INTERVAL)).await.is_some() {
                let Some(state) = state.upgrade() else { return };
                if state.sessions.lock().is_empty() {
                    continue;
                }
                // The check may block: a disk may be slow, and a recreated file is synced.
                let check = tokio::task::spawn_blocking(move || state.check_session_files());
                if check.await.is_err() {
                    tracing::error!("the check of session files panicked");
                }
            }
        });
    }
}

impl RuntimeState {
    fn check_session_files(&self) {
        let sessions: Vec<(SessionId, Arc<SessionCell>)> =
            self.sessions.lock().iter().map(|(id, cell)| (id.clone(), cell.clone())).collect();
        for (id, cell) in sessions {
            // A session in use is skipped: every append checks the file as well.
            let Ok(mut active) = cell.active.try_lock() else { continue };
            let check = active.context.session_mut().check_file();
            // Released first: a listener may read the session.
            drop(active);
            match check {
                FileCheck::Intact => {}
                FileCheck::Recreated { path } => {
                    self.emit(id.as_str(), EventKind::SessionFileRecreated { path });
                }
                FileCheck::Lost { path, reason: why } => {
                    self.emit(id.as_str(), EventKind::SessionFileMissing { path, why });
                }
            }
        }
    }
}
