//! Errors of the canary state.

use std::path::PathBuf;

/// Why the canary state of a slot could not be read or changed.
#[derive(Debug, thiserror::Error)]
pub enum CanaryError {
    /// A file operation failed.
    #[error("cannot {action} {}: {source}", path.display())]
    Disk {
        /// The operation, as a verb.
        action: &'static str,
        path: PathBuf,
        source: std::io::Error,
    },
    /// The state file belongs to another user.
    #[error(
        "cannot read {}: its owner is another user; give the folder above it to the user of this process with \
         `chown -R`. Until then changes of the slot have no effect",
        path.display()
    )]
    Forbidden { path: PathBuf },
    /// The state file is invalid.
    #[error("{} is not a valid slot state: {reason}; remove the file to reset the slot (its canary ends)", path.display())]
    Broken { path: PathBuf, reason: String },
    /// A canary is active.
    #[error(
        "{engine} is already the canary; end it with `ctxhost slot promote` or `ctxhost slot rollback`"
    )]
    Running { engine: String },
    /// No canary is active.
    #[error("the slot has no canary; start one with `ctxhost slot set ID --canary 10%`")]
    NotRunning,
    /// No canary is active, and no promotion is recorded.
    #[error(
        "nothing to roll back: no canary is active, and none was promoted since the last rollback; \
         change the engine with `ctxhost use ID`"
    )]
    NothingBefore,
}
