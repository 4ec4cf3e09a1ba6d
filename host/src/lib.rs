//! Keeps the conversations of LLM agents inside their windows, with an engine that the user picks.
//!
//! A program that asks its model itself uses [`Context`]: [`open_context`], `append`, `prepare`, `record_usage`. One that
//! wants turns, tools and failover as well uses [`Runtime`]. Each crate behind this one is public by itself;
//! `tests/tests/architecture.rs` says which may know which.

#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

pub use ctxhost_cli::run;
pub use ctxhost_config::{Config, ConfigError};
pub use ctxhost_context::hook::{ComingCompaction, CompactionHook, HookDecision};

pub use ctxhost_context::overflow::Overflow;
pub use ctxhost_context::{
    Amendment, BackTo, Budget, CompactionOutcome, CompactionPolicy, Context, ContextError,
    ContextSettings, FoldedEntry, LiveSession, Prompt, SentRequest, Target, Verdict,
};
pub use ctxhost_dialects::message::{StopReason, Usage};
pub use ctxhost_dialects::{AssistantMessage, ChatMessage, Content, ProviderError};
pub use ctxhost_engine::{
    ActiveEngine, EngineSpec, Isolation, OnEngineError, SlotError, worker_main,
};
pub use ctxhost_gateway::{Gateway, GatewayError, GatewayOptions};
pub use ctxhost_models::ModelName;
pub use ctxhost_runtime::event::{Event, What};
pub use ctxhost_runtime::{
    BuildError, EngineOptions, Reply, Runtime, RuntimeBuilder, SessionGuard, SessionId, TurnError,
    engines_of_slot, open_context,
};
pub use ctxhost_session::{Header, Record, RecordBody, Session, SessionError};
pub use ctxhost_tool::{CallContext, Tool, ToolOutput};
