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
mod answer;
mod backend;
mod background;
mod build_guard;
mod bundled;
mod calls;
mod chain;
mod chain_spec;
mod client;
mod crash_marker;
mod deadline;
mod environment;
mod error;
mod failures;
mod fallback;
mod instance;
mod library;
mod load;
mod quarantine;
mod quotas;
mod sandbox;
mod service;
mod services;
mod signal_handler;
mod spec;
pub mod store;
mod threads;
mod timeouts;
mod trial;

pub use active::ActiveEngine;
pub use answer::{EngineAnswer, EngineSet};
pub use bundled::{BUNDLED, LEGACY, bundled, bundled_settings};
pub use chain_spec::{
    CHAIN_SEPARATOR, ChainSpecError, MAX_CHAIN_LINKS, format_engine, format_versions, join_ids,
    parse_chain, split_ids, validate_chain,
};
pub use deadline::group_thousands;
pub use environment::{EngineEnvironment, HostClock, SessionQueries, state_folder};
pub use error::{OnEngineError, SlotError};
pub use failures::FailureCounts;
pub use instance::EngineInstance;
pub use library::{EngineFile, LoadError, inspect, inspect_pinned, short_digest};
pub use load::EngineOpenError;
pub use quarantine::failure_log::{FailureLog, FailureRecord, QuarantineRules};
pub use quarantine::{Quarantine, QuarantineRecord};
pub use quotas::Quotas;
pub use sandbox::{
    Confinement, ProgramError, SandboxError, SandboxInfo, SandboxSettings, sandbox_main,
};
pub use service::{
    AssembleContext, EngineContext, EngineService, OnRefusal, SlotFuture, SlotResult,
};
pub use spec::{EngineSource, EngineSpec, LinkedEngine, PinSource};
pub use store::EngineStores;
pub use threads::Isolation;
pub use timeouts::EngineTimeouts;
pub use trial::TrialFailure;
