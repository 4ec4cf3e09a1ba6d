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

pub mod event;
mod model_messages;
mod recovery;
mod reload;
mod runtime;
mod turn;

pub mod canary;
pub mod inbox;
pub mod session_locks;

pub mod subagent;

mod cached_prefixes;
mod client_session;
pub mod context_usage;
pub mod engine_options;
mod event_bus;
mod offline;
mod open_context;
pub mod originals;
mod session_guard;

#[cfg(test)]
mod testing;

pub mod engine_registry;
pub mod installation;
mod memory;
mod precompute;
pub mod replay;
pub mod shadow;
#[cfg(test)]
mod tests;
pub mod workspace;

pub use engine_options::EngineOptions;
pub use event_bus::EventListener;
pub use offline::{OfflineOptions, compact_session};
pub use open_context::{open_context, slot_engines};
pub use reload::{EngineChange, ReloadError};
pub use runtime::{BuildError, Runtime, RuntimeBuilder, SessionId, WindowOccupancy};
pub use session_guard::SessionGuard;
pub use turn::{TurnError, TurnReply};
