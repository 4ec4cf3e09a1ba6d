//! The files of open sessions, looked at once a second: one that was deleted, renamed or replaced is made again
//! while its conversation waits.

use std::sync::Arc;
use std::time::Duration;

use super::{Runtime, RuntimeState, SessionCell, SessionId};
use crate::event::EventKind;
use ctxhost_session::FileCheck;

/// How long a file may be gone before it is noticed, where nothing is appended meanwhile. A look costs two
/// system calls for each open session.
const INTERVAL: Duration = Duration::from_secs(1);

impl Runtime {
    /// Looks after the files of all open sessions, as long as the runtime lives.
    pub(super) fn watch_session_files(&self) {
        let closing = self.state.shutdown.clone();
        let watched = Arc::downgrade(&self.state);
        tokio::spawn(async move {
            while closing.run_until_cancelled(tokio::time::sleep(INTERVAL)).await.is_some() {
                let Some(shared) = watched.upgrade() else { return };
                if shared.sessions().is_empty() {
                    continue;
                }
                // A disk may be slow, and a file that is made again is synced.
                let looked = tokio::task::spawn_blocking(move || shared.check_session_files());
                if looked.await.is_err() {
                    tracing::error!("looking after session files failed");
                }
            }
        });
    }
}

impl RuntimeState {
    fn check_session_files(&self) {
        let sessions: Vec<(SessionId, Arc<SessionCell>)> =
            self.sessions().iter().map(|(id, held)| (id.clone(), held.clone())).collect();
        for (id, held) in sessions {
            // A turn that is at work in it looks when it appends.
            let Ok(mut open) = held.active.try_lock() else { continue };
            match open.context.session_mut().check_file() {
                FileCheck::Intact => {}
                FileCheck::Recreated { path } => {
                    self.event_bus.emit(id.as_str(), EventKind::SessionFileRecreated { path });
                }
                FileCheck::Lost { path, reason: why } => {
                    self.event_bus.emit(id.as_str(), EventKind::SessionFileMissing { path, why });
                }
            }
        }
    }
}
