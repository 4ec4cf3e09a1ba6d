//! An engine in a process of its own: whatever it does there, the host only loses a process.
//!
//! ```text
//!  host                                              worker (the same program, `engine-worker`)
//!  Sandbox ─ keeps a Link, starts the next one            confinement: limits, landlock, seccomp
//!   │                                                  │
//!  Link ── calls in flight, writer, reader ══ socket ══ Desk ── mirrors, calls, the engine's lane
//!   │                                                  │
//!  services of the host  ◄──────────── asks ────────── Errands (what the engine has of the host)
//! ```
//!
//! Frames have numbers, so that calls and services overlap in both directions. A transcript is sent
//! once and then only what is new ([`mirror`](ctxhost_engine_api::transcript::mirror)).
//!
//! What it cannot protect from: an engine still decides what the model sees, within the law.

mod settings;

mod replay_log;

mod connection;
mod host_calls;
mod launch;
mod process;
mod program;
mod sender;
mod supervisor;
mod usage;
mod wire;

mod child;
mod confinement;

pub use child::sandbox_main;
pub use confinement::Confinement;
pub use program::ProgramError;
pub use settings::SandboxSettings;

pub(super) use supervisor::SandboxSupervisor;

/// What is known of the process that an engine sits in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SandboxInfo {
    /// Its number; `None` while there is none, because the last one died and nobody has asked since.
    pub pid: Option<u32>,
    /// How many were started after the first.
    pub respawns: u64,
    /// What holds it.
    pub confinement: Confinement,
}

/// Why there is no worker.
#[derive(Debug, thiserror::Error)]
pub enum SandboxError {
    /// No program to start.
    #[error(transparent)]
    Program(#[from] ProgramError),
    /// The system did not start it.
    #[error("the worker program {program} does not start: {source}")]
    Start {
        /// The program.
        program: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// It ended, or said something else, before the engine was loaded.
    #[error("the worker program {program} {reason}; is it a ctxhost of version {}?", env!("CARGO_PKG_VERSION"))]
    NotASandbox {
        /// The program.
        program: String,
        /// What it did.
        reason: String,
    },
    /// It did not load the engine.
    #[error("{reason}")]
    Refused {
        /// Why.
        reason: String,
    },
}
