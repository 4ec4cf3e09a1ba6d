//! What a context engine for ctxhost implements, and nothing else.
//!
//! An engine is a type that implements [`ContextEngine`] in plain `async fn`s, and one line:
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
//! # From nothing to a loaded engine
//!
//! `ctxhost new my-engine` writes a crate with all of this in it. By hand it is:
//!
//! 1. A crate of its own, with two things in its `Cargo.toml`:
//!
//!    ```toml
//!    [lib]
//!    crate-type = ["cdylib"]       # and "rlib", so that files in tests/ can link it
//!
//!    [dependencies]
//!    ctxhost-engine-api = "1.0"
//!
//!    [dev-dependencies]
//!    ctxhost-engine-api = { version = "1.0", features = ["testing"] }
//!    ```
//!
//! 2. A type that implements [`ContextEngine`], and [`export_engine!`] once. Profiles keep
//!    `panic = "unwind"`, which is cargo's default.
//! 3. `cargo test` with the contract suite of [`testing`](https://docs.rs/ctxhost-engine-api) in it, then
//!    `ctxhost check target/release/libmy_engine.so`: every rule, each test in a process of its own.
//! 4. `ctxhost dev`: at every change built, loaded, replayed and held against the bundled engine.
//! 5. `ctxhost install` and `ctxhost use my-engine`.
//!
//! # Tokens and budgets
//!
//! There are two sorts of tokens. *Provider tokens* are what a provider counts and windows are made of.
//! *Tokens as entries count them* are the host's estimate by script ([`transcript::tokens`]), without
//! any margin: [`Entry::tokens`], [`Transcript::tokens`], every `budget` and every size of a plan. The host
//! turns a window into a budget once (less the reserve for the answer, less system prompt and tools,
//! divided by its safety margin), so an engine adds up entries, compares with `budget` and adds no
//! margin of its own. A field that holds provider tokens says so.
//!
//! # What stands where
//!
//! * [`transcript`] – what an engine reads,
//! * [`ContextEngine`] – when it is called; the lifecycle and the thread model are told there,
//! * [`request`] – what goes into each call and comes out,
//! * [`Plan`] – its answer,
//! * [`Host`] – what it may ask for,
//! * [`EngineError`] – what can go wrong,
//! * [`testing`](https://docs.rs/ctxhost-engine-api) – feature `testing`: the contract suite and a scripted host.
//!
//! An engine need not be written in Rust: `include/ctxhost_engine.h` of this crate is the same contract
//! for C and C++, experimental so far, and `docs/engines/c.md` of the project tells how to use it.
//!
//! # State
//!
//! The simplest engine keeps nothing and works every plan out anew: the transcript knows token sums and
//! safe cuts, so that costs microseconds. One that remembers does so by session
//! ([`SessionRef::id`]), forgets positions when [`Transcript::epoch`] has changed, and puts what must
//! survive a restart, or the next build of the engine, into [`Host::kv_put`].
//!
//! # Versions
//!
//! The semantic version of this crate is the version of the ABI. An engine built with any 1.x runs
//! in a host built with any other 1.x: what the older side does not know has a default.

#![deny(missing_docs)]
#![cfg_attr(test, allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing))]

pub mod transcript;

mod engine;
pub mod request;

#[macro_use]
mod calls;

mod error;
mod host;
mod plan;
mod projection;
pub mod settings;

mod abi;
#[cfg(feature = "testing")]
pub mod testing;

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

/// The host's half of the border. For hosts and test kits; engines have no use for it.
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
}

/// What `export_engine!` expands to. Not for use by hand.
#[doc(hidden)]
pub mod __border {
    pub use crate::abi::export::{LibHeader, header};
    pub use crate::abi::metadata::{META_BYTES, encode_meta};
}

/// The examples of the project's README, compiled.
#[cfg(doctest)]
#[doc = include_str!("../../README.md")]
pub struct ReadmeExamples;
