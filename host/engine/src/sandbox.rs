//! An engine in a sandbox: a confined child process, whose crash costs the host only that process.
//!
//! ```text
//!  host                                                   child (the same program, `engine-sandbox`)
//!  SandboxSupervisor ─ restarts the child                 confinement: limits, landlock, seccomp
//!   │                                                       │
//!  SandboxConnection ─ pending calls, threads ══ socket ══ SandboxServer ─ replicas, the engine's threads
//!   │                                                       │
//!  EngineServices  ◄────────────── host calls ──────────── HostProxy (the host, as the engine sees it)
//! ```
//!
//! Calls and host calls are numbered, so that they overlap in both directions. A transcript is sent once
//! and then by its differences ([`replica`](ctxhost_engine_api::transcript::replica)).
//!
//! A sandbox does not restrict the answers: the engine still decides what the model sees, within the
//! invariants.

pub(super) mod error;
pub(super) mod info;
pub(super) mod program;
pub(super) mod settings;

#[cfg(unix)]
pub(super) mod child;
#[cfg_attr(not(unix), path = "sandbox/absent.rs")]
pub(super) mod supervisor;

#[cfg(unix)]
mod confinement;
#[cfg(unix)]
mod connection;
#[cfg(unix)]
mod host_call_table;
#[cfg(unix)]
mod host_calls;
#[cfg(unix)]
mod launch;
#[cfg(unix)]
mod process;
#[cfg(unix)]
mod replay_log;
#[cfg(unix)]
mod sender;
#[cfg(not(target_os = "linux"))]
mod unconfined;
#[cfg(unix)]
mod usage;
#[cfg(unix)]
mod wire;

#[cfg(unix)]
pub use child::sandbox_main;
#[cfg(target_os = "linux")]
pub use confinement::confine;
#[cfg(unix)]
pub use confinement::detach_from_host;
#[cfg(not(unix))]
pub use supervisor::{detach_from_host, sandbox_main};
#[cfg(not(target_os = "linux"))]
pub use unconfined::confine;
