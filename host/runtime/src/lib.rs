//! The only place where time passes: requests are shaped, compactions are tried, sessions grow.
//!
//! ```text
//!  entry ─► conversation.append ─► slot.ingest ─► slot.assemble ─► law ─► fits ─► the model sees it
//!                                                      ▲            │
//!                                                      │            └─ too large ─► compaction
//!                                                      └── applied ◄── progress law ◄──┘  (at most 3)
//!                                                                        │
//!                                                                        └─ no progress ─► last rung
//! ```

#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

pub mod conversation;
pub mod request;
pub mod setup;

pub mod hook;

mod agent;
pub mod event;
mod projection;
mod recovery;
mod swap;
mod timing;
mod turn;

pub mod accounting;
pub mod canary;
pub mod failover;
pub mod inbox;
pub mod lane;
pub mod model_name;

pub mod subagent;

mod by_hand;
pub mod filling;
mod guest_windows;
mod known_session;
mod listeners;
mod live_prefix;
pub mod originals;
pub mod passage;

#[cfg(test)]
mod testing;

mod compaction;
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
pub use by_hand::{ByHand, compact_by_hand};
pub use compaction::{CompactionOutcome, FoldedEntry, Verdict};
pub use conversation::{Amendment, BackTo, Conversation};
pub use listeners::Listener;
pub use passage::{Passage, Passed};
pub use recovery::SMALLER_SHARE;
pub use request::{Ask, Compacting, RuntimeError, Shaped, Shaper};
pub use setup::Setup;
pub use swap::{SwapError, Swapped};
pub use turn::{Guest, Reply, TurnError};
