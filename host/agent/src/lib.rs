//! The agent: runs turns, replays and manual compactions on a `Context`, and manages the engines of a running host.
//!
//! ```text
//!  agent ──────── AgentTurn ─┐
//!  gateway ──────────────────┼─► SessionGuard ─► Context
//!  replay, compact ──────────┴──────────────────────┘
//! ```

#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

pub mod canary;
pub mod context_usage;
pub mod engine_options;
pub mod engine_registry;
pub mod event;
pub mod inbox;
pub mod installation;
pub mod originals;
pub mod replay;
pub mod session_locks;
pub mod shadow;
pub mod subagent;
pub mod workspace;

mod cached_prefixes;
mod client_session;
mod engine_manager;
mod error;
mod event_bus;
mod file_stamp;
mod memory;
mod model_messages;
mod offline;
mod open_context;
mod precompute;
mod private_files;
mod recovery;
mod reload;
mod runtime;
mod session_cell;
mod session_guard;
mod state;
mod turn;

#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;

pub use engine_manager::EngineChange;
pub use engine_options::EngineOptions;
pub use error::TurnError;
pub use event_bus::EventListener;
pub use offline::{OfflineOptions, compact_session, preview_session};
pub use open_context::{open_context, slot_engines};
pub use reload::ReloadError;
pub use runtime::builder::{BuildError, RuntimeBuilder};
pub use runtime::slot_status::{CanaryStatus, SlotStatus};
pub use runtime::{Runtime, WindowOccupancy};
pub use session_cell::SessionId;
pub use session_guard::SessionGuard;
pub use turn::TurnReply;
