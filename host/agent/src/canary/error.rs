//! What can go wrong with the state of a slot.

use std::path::PathBuf;

/// Why the state of a slot could not be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum CanaryError {
    /// The disk said no.
    #[error("cannot {action} {}: {source}", path.display())]
    Disk {
        /// What was tried.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The file holds something else.
    #[error("{} is no state of a slot: {reason}; move it away, and the slot has no canary", path.display())]
    Broken {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// There is a canary already.
    #[error(
        "{engine} is a canary already; `ctxhost slot promote` or `ctxhost slot rollback` ends it"
    )]
    Running {
        /// Its engine.
        engine: String,
    },
    /// There is none.
    #[error("the slot has no canary; `ctxhost slot set ID --canary 10%` begins one")]
    NotRunning,
    /// There is none, and nothing that was promoted is known.
    #[error(
        "there is nothing to roll back: no canary is on, and none was promoted since the last rollback; \
         `ctxhost use ID` puts another engine into the slot"
    )]
    NothingBefore,
}
