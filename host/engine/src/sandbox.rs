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

pub(super) mod child;
pub(super) mod confinement;
pub(super) mod error;
pub(super) mod program;
pub(super) mod settings;
pub(super) mod supervisor;

mod connection;
mod host_calls;
mod launch;
mod process;
mod replay_log;
mod sender;
mod usage;
mod wire;
