//! Keeps one conversation inside a model's window.
//!
//! ```text
//!  append ─► prepare ─► (model call) ─► record_usage ─► append ... end_turn
//!              │  ▲          └─ too large ─► overflow ─► prepare
//!              ▼  │ does not fit
//!            engine.ingest ─► engine.assemble ─► invariants ─► Prompt
//!                                   └─ compact ─► invariants, progress ─► session
//! ```
//!
//! [`Context`] holds a session, the active engine and a budget. The agent, the gateway, replays, manual compactions and
//! embedding programs call the same methods.

#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

pub mod accounting;
pub mod hook;
pub mod overflow;

mod attachments;
mod compact;
mod context;
mod error;
mod ignored_compactions;
mod ingest;
mod instruction_edits;
mod live_session;
mod outcome;
mod own_compactions;
mod policy;
mod precompute;
mod prepare;
mod prompt;
mod sent_request;
mod session_directory;
mod settings;
mod target;

pub use compact::MAX_COMPACTIONS;
pub use context::Context;
pub use error::ContextError;
pub use ingest::IngestProgress;
pub use live_session::{Amendment, BranchPoint, LiveSession};
pub use outcome::{CompactionOutcome, CompactionVerdict, FoldedEntry};
pub use policy::CompactionPolicy;
pub use precompute::PrecomputeJob;
pub use prepare::{EMERGENCY_TRIM, emergency_trim_plan};
pub use prompt::{Prompt, PromptPreview};
pub use sent_request::SentRequest;
pub use session_directory::SessionDirectory;
pub use settings::ContextSettings;
pub use target::{Budget, Target};
