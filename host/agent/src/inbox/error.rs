//! Errors of the inbox.

use std::io;
use std::path::PathBuf;

use ctxhost_session::SessionError;

/// Why a message was not queued.
#[derive(Debug, thiserror::Error)]
pub enum InboxError {
    /// The inbox file could not be read or written.
    #[error("cannot {action} {}: {source}; the message was not queued", path.display())]
    Io {
        /// The operation, as a verb.
        action: &'static str,
        path: PathBuf,
        source: io::Error,
    },
    /// The session store rejected the message.
    #[error("{0}; the message was not queued")]
    Store(SessionError),
    /// The text is not a message.
    #[error("the inbox accepts messages only: {0}")]
    InvalidMessage(SessionError),
}
