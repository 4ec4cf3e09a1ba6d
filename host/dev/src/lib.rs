//! The development loop of `ctxhost dev`: build, replay a recorded session, wait for a change.
//!
//! ```text
//!  project ─► build ─► generation ─► trial (a process of its own) ─► report
//!     ▲                                                                │
//!     └──────────────────────────── watch ◄────────────────────────────┘
//! ```
//!
//! The library is loaded in the process of the trial only, so a crash of the engine does not end the loop.

#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

mod build;
mod generation;
mod output;
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

/// Why a cycle of the loop failed.
#[derive(Debug, thiserror::Error)]
pub enum DevError {
    /// The folder does not contain an engine.
    #[error("{} has neither a Cargo.toml nor a Makefile; run this in the folder of an engine, or create one with `ctxhost new`", folder.display())]
    NoProject {
        /// The folder.
        folder: PathBuf,
    },
    /// A tool could not be started.
    #[error("cannot run {program}: {source}")]
    NoTool {
        /// The program.
        program: String,
        /// The system error.
        source: io::Error,
    },
    /// A tool was killed.
    #[error("{program} wrote more than {limit_mib} MiB to its standard output and was killed")]
    TooMuchOutput {
        /// The program.
        program: String,
        /// The limit, in mebibytes.
        limit_mib: u64,
    },
    /// The build failed; the tool has printed the reason.
    #[error("{program} failed to build the engine{hint}")]
    BuildFailed {
        /// The program.
        program: String,
        /// What to do if a dependency was not found; may be empty.
        hint: &'static str,
    },
    /// The build succeeded without a library.
    #[error("the build created no engine library: {hint}")]
    NoLibrary {
        /// What to change.
        hint: String,
    },
    /// The library is not an engine.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The trial's process died.
    #[error("the engine crashed its process: {how}")]
    TrialCrashed {
        /// The signal.
        how: String,
    },
    /// The trial ended without a report; it has printed the reason.
    #[error("the replay failed: {status}")]
    NoReport {
        /// The exit status.
        status: String,
    },
    /// Files cannot be watched or copied.
    #[error("cannot {action}: {reason}")]
    Io {
        /// The action, as a verb.
        action: String,
        /// The system error.
        reason: String,
    },
}

/// Maps an error to [`DevError::Io`].
fn cannot<E: std::fmt::Display>(action: impl Into<String>) -> impl FnOnce(E) -> DevError {
    let action = action.into();
    move |reason| DevError::Io { action, reason: reason.to_string() }
}
