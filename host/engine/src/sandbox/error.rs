//! Why a sandbox does not start.

use super::program::ProgramError;

/// Why a sandbox does not start.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// The system has no sandboxes.
    #[error(
        "engines have no sandbox on {system}, so isolation = \"process\" is refused; isolation = \"thread\" runs it in this process, with all rights of the user"
    )]
    Absent {
        /// The system.
        system: &'static str,
    },
    /// No program was found.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// The system did not start the program.
    #[error("the sandbox program {program} does not start: {source}")]
    Start {
        /// The program.
        program: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// What the program starts with cannot be opened.
    #[error("the sandbox does not start: cannot open {path}: {source}")]
    Unopened {
        /// The device or folder.
        path: String,
        /// The system's error.
        source: std::io::Error,
    },
    /// The program ended, or broke the protocol, before the engine was loaded.
    #[error(
        "the sandbox that loads {library} {reason}: either the library crashed or blocked while it was loaded (`ctxhost check {library}`), or {program} is not ctxhost {}", env!("CARGO_PKG_VERSION")
    )]
    NotASandbox {
        /// The program.
        program: String,
        /// The engine's library.
        library: String,
        /// What it did.
        reason: String,
    },
    /// The sandbox did not load the engine.
    #[error("the engine was not loaded; its sandbox reports: {reason}")]
    Refused {
        /// Why.
        reason: String,
    },
}
