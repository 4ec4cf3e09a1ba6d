//! The engine host: opens the engines that a slot configures, calls them, and handles their failures.
//!
//! A call is a value ([`EngineCall`](ctxhost_engine_api::border::EngineCall)). It passes four layers on
//! its way to an engine: `trial`, `fallback`, `chain` and `deadline`. Bundled, linked and loaded engines
//! are created and called in the same way ([`EngineInstance`]); only the backend distinguishes engines in
//! this process from engines in a sandbox. This crate reads neither session files nor the config file:
//! it is given specs and transcripts.

// Without sandboxes nothing uses their settings, and few use the limits of calls.
#![cfg_attr(not(unix), allow(dead_code))]
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
mod clock;
mod crash_marker;
mod deadline;
mod deep_replies;
mod embedding;
mod engine_texts;
mod environment;
mod error;
mod failures;
mod fallback;
mod idle;
mod instance;
mod library;
mod load;
mod model_calls;
mod object_file;
mod quarantine;
mod quotas;
mod sandbox;
mod service;
mod services;
mod session_queries;
#[cfg_attr(not(unix), path = "signal_handler/absent.rs")]
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
    CHAIN_SEPARATOR, ChainSpecError, MAX_CHAIN_LINKS, format_engine, format_versions,
    is_library_path, join_ids, parse_chain, split_ids, validate_chain,
};
pub use clock::HostClock;
pub use environment::{EngineEnvironment, state_folder};
pub use error::{EngineOpenError, OnEngineError, SlotError};
pub use failures::FailureCounts;
pub use idle::IdleMark;
pub use instance::EngineInstance;
pub use library::{EngineFile, LibraryCopy, LoadError, inspect, inspect_pinned, short_digest};
pub use quarantine::failure_log::{FailureLog, FailureRecord, QuarantineRules};
pub use quarantine::{Quarantine, QuarantineRecord};
pub use quotas::Quotas;
pub use sandbox::error::SandboxError;
pub use sandbox::info::{Confinement, ConfinementLimits, SandboxInfo, WritableFolder};
pub use sandbox::program::ProgramError;
pub use sandbox::settings::SandboxSettings;
pub use sandbox::{confine, detach_from_host, sandbox_main};
pub use service::{AssembleContext, EngineContext, OnRefusal, SlotResult};
pub use session_queries::SessionQueries;
pub use spec::{EngineSource, EngineSpec, LinkedEngine, PinSource};
pub use store::EngineStores;
pub use threads::Isolation;
pub use timeouts::EngineTimeouts;
pub use trial::TrialFailure;
