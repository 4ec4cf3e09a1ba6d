//! The slot: a name in the config becomes an engine that can be called, and what it answers says who
//! answered.
//!
//! A call is a value ([`EngineCall`](ctxhost_engine_api::border::EngineCall)). It passes four layers on its
//! way to an engine: `trial`, `fallback`, `chain` and `deadline`. Linked and loaded engines are created in
//! the same way ([`EngineDoor`]) and called in the same way ([`EngineInstance`]). This crate knows neither
//! sessions on disk nor the config file: it is told what to open, and it is handed transcripts. Whether an
//! engine runs in this process or in a sandbox, only its backend knows.
//!
//! [`EngineDoor`]: ctxhost_engine_api::border::EngineDoor

#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

mod active;
mod backend;
mod background;
mod bundled;
mod calls;
mod chain;
mod client;
mod crash;
mod deadline;
mod environment;
mod error;
mod failures;
mod fallback;
mod instance;
mod library;
mod opening;
mod quarantine;
mod quotas;
mod row;
mod sentinel;
mod served;
mod service;
mod services;
mod spec;
pub mod store;
mod threads;
mod timeouts;
mod trial;
mod watch;
mod worker;

pub use active::ActiveEngine;
pub use bundled::{BUNDLED, LEGACY, bundled, bundled_settings};
pub use deadline::grouped;
pub use environment::{Clock, Environment, SessionView, state_folder};
pub use error::{OnEngineError, SlotError};
pub use failures::FailureCounts;
pub use instance::EngineInstance;
pub use library::{Inspected, LoadError, inspect, inspect_pinned, shown_digest};
pub use opening::OpenError;
pub use quarantine::book::{FailureBook, KeptRecord, QuarantineRules};
pub use quarantine::{Quarantine, QuarantineRecord};
pub use quotas::Quotas;
pub use row::{
    JOINT, MAX_STAGES, RowError, check_row, joined, read_row, stages, versions, with_version,
};
pub use served::{Served, Serving};
pub use service::{Answer, AnswerFuture, AssembleContext, EngineContext, EngineService, OnRefusal};
pub use spec::{EngineSpec, LinkedEngine, PinnedBy, Source};
pub use store::EngineStores;
pub use threads::Isolation;
pub use timeouts::Timeouts;
pub use trial::LostTrial;
pub use worker::{
    Confinement, ProgramError, WorkerError, WorkerFacts, WorkerSettings, worker_main,
};
