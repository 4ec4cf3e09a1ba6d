//! The slot: a name in the config becomes a live engine, and what it answers says who answered.
//!
//! Linked and loaded engines come through the same door ([`EngineDoor`]) and are called the same
//! way ([`LiveEngine`]). This room does not know sessions, laws or the config file: it is told what
//! to open and it is handed transcripts. Where an engine sits, on a lane or in a worker process, only its
//! seat knows.
//!
//! [`EngineDoor`]: ctxhost_engine_api::border::EngineDoor

#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

mod background;
mod bundled;
mod calls;
mod crash;
mod environment;
mod lane;
mod library;
mod live;
mod opening;
mod quarantine;
mod question;
mod quotas;
mod row;
mod seat;
mod sentinel;
mod services;
mod slot;
mod spec;
pub mod store;
mod timeouts;
mod watch;
mod worker;

pub use bundled::{BUNDLED, LEGACY, bundled};
pub use environment::{Clock, Environment, SessionView, state_folder};
pub use lane::Isolation;
pub use library::{Inspected, LoadError, inspect, inspect_pinned, shown_digest};
pub use live::{LiveEngine, grouped};
pub use opening::OpenError;
pub use quarantine::book::{FailureBook, KeptRecord, QuarantineRules};
pub use quarantine::{Quarantine, QuarantineRecord};
pub use quotas::Quotas;
pub use row::{
    JOINT, MAX_STAGES, RowError, check_row, joined, read_row, stages, versions, with_version,
};
pub use slot::{OnEngineError, Served, Serving, Slot, SlotError, TroubleCounter, Troubles};
pub use slot::{is_answer, is_breakage};
pub use spec::{EngineSpec, LinkedEngine, PinnedBy, Source};
pub use store::EngineStores;
pub use timeouts::Timeouts;
pub use worker::{
    Confinement, ProgramError, WorkerError, WorkerFacts, WorkerSettings, worker_main,
};
