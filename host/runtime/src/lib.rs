//! Drivers of a context: the agent's turns, sessions of clients, replay and manual compaction; and what swaps engines.
//!
//! ```text
//!  agent ──────── Turn ─┐
//!  gateway ─────────────┼─► SessionGuard ─► Context
//!  replay, compact ─────┴──────────────────────┘
//! ```

#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

mod agent;
pub mod event;
mod projection;
mod recovery;
mod swap;
mod turn;

pub mod canary;
pub mod inbox;
pub mod lane;

pub mod subagent;

mod client_session;
pub mod engine_options;
pub mod filling;
mod listeners;
mod live_prefix;
mod offline;
mod open_context;
pub mod originals;
mod session_guard;

#[cfg(test)]
mod testing;

pub mod installation;
mod memory;
mod precompute;
pub mod replay;
pub mod roster;
pub mod shadow;
#[cfg(test)]
mod tests;
pub mod workspace;

pub use agent::{BuildError, Occupancy, Runtime, RuntimeBuilder, SessionId};
pub use engine_options::EngineOptions;
pub use listeners::Listener;
pub use offline::{OfflineOptions, compact_session};
pub use open_context::{engines_of_slot, open_context};
pub use session_guard::SessionGuard;
pub use swap::{SwapError, Swapped};
pub use turn::{Reply, TurnError};
