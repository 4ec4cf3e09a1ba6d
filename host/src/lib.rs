//! Keeps the conversations of LLM agents inside their context windows, with pluggable engines.
//!
//! A program that calls its model itself uses [`Context`]: [`open_context`], `append`, `prepare`,
//! `record_usage`. One that also wants turns, tools and failover uses [`Runtime`]. What fewer programs
//! need is in [`context`], [`engine`] and [`session`], or in another of the crates behind this facade.

#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

pub use ctxhost_cli::run;
pub use ctxhost_config::{Config, ConfigError};
pub use ctxhost_context::hook::{CompactionHook, HookDecision, PendingCompaction};

pub use ctxhost_agent::event::{EventKind, RuntimeEvent};
pub use ctxhost_agent::{
    BuildError, Runtime, RuntimeBuilder, SessionGuard, SessionId, TurnError, TurnReply,
    open_context, slot_engines,
};
pub use ctxhost_context::overflow::Overflow;
pub use ctxhost_context::{
    Budget, CompactionOutcome, CompactionPolicy, CompactionVerdict, Context, ContextError, Prompt,
    SentRequest, Target,
};
pub use ctxhost_dialects::message::{StopReason, TokenUsage};
pub use ctxhost_dialects::{ChatBlock, ChatMessage, ProviderError};
pub use ctxhost_engine::{EngineSpec, sandbox_main};
pub use ctxhost_gateway::{Gateway, GatewayError, GatewayOptions};
pub use ctxhost_models::ModelName;
pub use ctxhost_session::{RecordBody, Session, SessionError};
pub use ctxhost_tools::{CallContext, Tool, ToolOutput};
pub use {ctxhost_context as context, ctxhost_engine as engine, ctxhost_session as session};
