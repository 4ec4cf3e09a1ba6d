//! The crash test: an agent at work is killed again and again, and whatever it had promised must be there.
//!
//! ```text
//!  supervisor ─ spawns ─► child: turns, letters, compactions, undos in a real runtime
//!      │ ◄── promises ── "this record, this message, this letter is kept"
//!      └─── kill -9 ───► ✂  after a while, at a point of its log, in the middle of a write
//!    then: the file is read and opened again, and held against every promise
//! ```
//!
//! The child promises only what the runtime has told it: a call returned, or a model was shown a message.
//! The supervisor knows no way into the session but those that everybody has. Nothing of the runtime is
//! altered for it; points are the events that the host logs anyway.

mod campaign;
mod child;
mod inspect;
mod kill;
mod model;
mod promise;
mod speech;
mod supervisor;

use std::io;
use std::path::PathBuf;

pub use campaign::{Campaign, Tally};
pub use child::{Orders, live};
pub use inspect::Violation;

use ctxhost_agent::inbox::InboxError;
use ctxhost_agent::{BuildError, TurnError};
use ctxhost_config::ConfigError;
use ctxhost_session::SessionError;

/// Why the experiment itself could not go on.
#[derive(Debug, thiserror::Error)]
pub enum CrashtestError {
    /// The system refused.
    #[error("cannot {action}: {source}")]
    Io {
        /// What was tried, as a verb.
        action: String,
        /// What the system said.
        source: io::Error,
    },
    /// Something that was promised is not so.
    #[error("{violation}, after kill {kill}")]
    Violation {
        /// What.
        violation: Violation,
        /// The number of the kill, from 1.
        kill: u64,
        /// How the child was killed.
        way: String,
        /// The session.
        session: PathBuf,
    },
    /// A child ended by itself.
    #[error("a child ended by itself ({status}): {said}")]
    ChildEnded {
        /// How.
        status: String,
        /// What it said.
        said: String,
    },
    /// The runtime of a child could not be put together.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// The settings of a child are none.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A turn of a child failed.
    #[error(transparent)]
    Turn(#[from] TurnError),
    /// A session of a child failed.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// An inbox of a child failed.
    #[error(transparent)]
    Inbox(#[from] InboxError),
}

/// What was tried when the system refused.
fn cannot(action: impl Into<String>) -> impl FnOnce(io::Error) -> CrashtestError {
    let action = action.into();
    move |source| CrashtestError::Io { action, source }
}
