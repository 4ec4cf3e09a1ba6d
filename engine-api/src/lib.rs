//! The API for context engines of ctxhost.
//!
//! An engine is a type that implements [`ContextEngine`], exported with one macro:
//!
//! ```no_run
//! use ctxhost_engine_api::*;
//!
//! /// Keeps the newest entries that fit.
//! struct Newest;
//!
//! impl ContextEngine for Newest {
//!     const INFO: Info = Info::new("newest", "Newest", "0.1.0").owning_compaction();
//!
//!     fn create(_host: Host, _config: serde_json::Value) -> Result<Self> {
//!         Ok(Newest)
//!     }
//!
//!     async fn assemble(&self, transcript: Transcript, request: AssembleRequest) -> Result<Plan> {
//!         let mut plan = Plan::default();
//!         plan.keep(transcript.tail_within(request.budget)..transcript.len() as u64);
//!         Ok(plan)
//!     }
//!
//!     async fn compact(&self, _: Transcript, _: CompactRequest) -> Result<Compaction> {
//!         Ok(Compaction::Delegate)
//!     }
//! }
//!
//! # fn main() {}
//! // In a crate of type `cdylib`: export_engine!(Newest);
//! ```
//!
//! # Getting started
//!
//! `ctxhost new my-engine` writes a crate with all of this. By hand:
//!
//! 1. Create a crate with this in its `Cargo.toml`:
//!
//!    ```toml
//!    [lib]
//!    crate-type = ["cdylib"]       # add "rlib" so that files in tests/ can link it
//!
//!    [dependencies]
//!    ctxhost-engine-api = "1.1"
//!
//!    [dev-dependencies]
//!    ctxhost-engine-api = { version = "1.1", features = ["testing"] }
//!    ```
//!
//! 2. Implement [`ContextEngine`] and call [`export_engine!`] once. Keep `panic = "unwind"`, cargo's default.
//! 3. Run the contract suite of [`testing`](https://docs.rs/ctxhost-engine-api) in `cargo test`, then
//!    `ctxhost check target/release/libmy_engine.so`, which runs each case in a separate process.
//! 4. Run `ctxhost dev`, which rebuilds at every change and compares a replay with the bundled engine.
//! 5. Run `ctxhost install` and `ctxhost use my-engine`.
//!
//! # Tokens and budgets
//!
//! There are two units. *Provider tokens* are counted by a provider; windows are in provider tokens.
//! *Estimated tokens* are the host's estimate by script ([`transcript::tokens`]), without a margin:
//! [`Entry::tokens`], [`Transcript::tokens`], every `budget` and every size of a plan. The host converts a
//! window to a budget (minus the reserve for the answer, system prompt and tools, divided by its safety
//! margin), so an engine compares sums of entries with `budget` and adds no margin. Fields in provider
//! tokens are documented as such.
//!
//! # Modules
//!
//! * [`transcript`] – the conversation as an engine reads it,
//! * [`ContextEngine`] – the calls, their lifecycle and thread model,
//! * [`request`] – requests and replies of the calls,
//! * [`Plan`] – the result of `assemble` and `compact`,
//! * [`Host`] – the services of the host,
//! * [`EngineError`] – errors,
//! * [`testing`](https://docs.rs/ctxhost-engine-api) – the contract suite and a scripted host (feature `testing`).
//!
//! Engines in C and C++ use `include/ctxhost_engine.h` of this crate (experimental); see `docs/engines/c.md` of
//! the project.
//!
//! # State
//!
//! The simplest engine is stateless and computes every plan from the transcript, which takes microseconds:
//! token sums and safe cuts are precomputed. A stateful one keys its state by [`SessionRef::id`], discards
//! positions when [`Transcript::epoch`] changes, and stores durable state with [`Host::kv_put`].
//!
//! # Versions
//!
//! The semantic version of this crate is the version of the ABI. An engine built with any 1.x runs in a host
//! built with any other 1.x: additions have defaults for the older side.

#![deny(missing_docs)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing))]

pub mod transcript;

mod engine;
pub mod request;

#[macro_use]
mod calls;

mod embedding;
mod error;
mod host;
mod json_levels;
mod plan;
mod projection;
pub mod settings;

mod abi;
#[cfg(feature = "testing")]
pub mod testing;

pub use embedding::{EmbedPurpose, EmbedRequest, Embeddings};
pub use engine::{ContextEngine, EngineInfo, Info, capability};
pub use error::{EngineError, ErrorKind, Result};
pub use host::{
    Completion, CompletionRequest, HistoryEntry, HistoryPage, HistoryRequest, Host, HostInfo,
    LogLevel, PromptCache, Purpose,
};
pub use plan::{Action, Compaction, Op, Plan, PlanExtras, PlanNote, PromptAuthority};
pub use projection::PlanItem;
pub use request::*;
pub use transcript::{
    ContentBlock, Entry, EntryKind, Flags, Message, Role, ToolCall, ToolResult, Transcript,
};

pub use serde_json;

/// The host's half of the ABI, for hosts and tests. Engines do not need it.
pub mod border {
    #[cfg(feature = "testing")]
    pub use crate::abi::c::layout_check;
    pub use crate::abi::c::{C_HEADER, C_ROOT_SYMBOL, ThreadInit, set_thread_init};
    pub use crate::abi::import::{EngineFactory, EngineHandle};
    pub use crate::abi::metadata::{
        ABI_MAJOR, EngineMetadata, EntryPoint, META_BYTES, decode_meta, metadata_magic,
    };
    pub use crate::abi::services::{BoxFuture, HostServices};
    pub use crate::abi::validate::{ROOT_SYMBOL, ValidateError};
    pub use crate::calls::{
        DisposeRequest, EngineCall, EngineReply, EngineRequest, FailurePolicy, StatusRequest,
    };
    pub use crate::engine::is_engine_id;
    pub use crate::json_levels::{
        MAX_JSON_LEVELS, check_text_levels, check_value_levels, has_levels_up_to, levels_of_text,
    };
}

/// Items used by the expansion of `export_engine!`.
#[doc(hidden)]
pub mod __border {
    pub use crate::abi::export::{LibHeader, header};
    pub use crate::abi::metadata::{META_BYTES, encode_meta};
}

/// The examples of the project's README, compiled.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
pub struct ReadmeExamples;
