//! The loop of an engine author: a folder is built, the library tried on a recorded session, and that again
//! whenever something changes.
//!
//! ```text
//!  project ─► build ─► generation ─► trial (a process of its own) ─► report
//!     ▲                                                                │
//!     └──────────────────────────── watch ◄────────────────────────────┘
//! ```
//!
//! The library is never loaded into this process: what an engine does to its process, it does to the
//! trial's, and a library that was replaced is gone with it.

#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

mod build;
mod generation;
mod project;
mod trial;
mod watch;

use std::io;
use std::path::PathBuf;

pub use build::{BuildOutput, BuildProfile};
pub use generation::{EngineGeneration, GenerationLog};
pub use project::EngineProject;
pub use trial::ReplayTrial;
pub use watch::SourceWatcher;

use ctxhost_engine::LoadError;

/// Why there is nothing to show.
#[derive(Debug, thiserror::Error)]
pub enum DevError {
    /// The folder holds no engine's sources.
    #[error("{} holds no engine: neither a Cargo.toml nor a Makefile; run this in the folder of one, or make one with `ctxhost new`", folder.display())]
    NoProject {
        /// The folder.
        folder: PathBuf,
    },
    /// A tool could not be started.
    #[error("cannot run {program}: {source}")]
    NoTool {
        /// The program.
        program: String,
        /// What the system said.
        source: io::Error,
    },
    /// The build failed; the tool has said why.
    #[error("{program} did not build the engine")]
    BuildFailed {
        /// The program.
        program: String,
    },
    /// The build went well and left no library.
    #[error("the build left no engine: {hint}")]
    NoLibrary {
        /// What is missing.
        hint: String,
    },
    /// The library is no engine.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The trial's process died.
    #[error("the engine took its process down: {how}")]
    TrialCrashed {
        /// By what.
        how: String,
    },
    /// The trial ended without an answer; it has said why.
    #[error("the replay came to no end: {status}")]
    NoReport {
        /// How it ended.
        status: String,
    },
    /// Files cannot be watched or copied.
    #[error("cannot {action}: {reason}")]
    Io {
        /// What was tried, as a verb.
        action: String,
        /// What the system said.
        reason: String,
    },
}

/// What was tried when the system refused.
fn cannot<E: std::fmt::Display>(action: impl Into<String>) -> impl FnOnce(E) -> DevError {
    let action = action.into();
    move |reason| DevError::Io { action, reason: reason.to_string() }
}
