//! The state of a running turn.

use std::collections::HashSet;
use std::sync::Arc;

use crate::error::TurnError;
use crate::session_guard::SessionGuard;
use crate::state::RuntimeState;
use ctxhost_context::LiveSession;
use ctxhost_dialects::message::TokenUsage;
use ctxhost_dialects::{ChatMessage, FailureReason, ProviderError};
use ctxhost_invariants::AttachmentCut;
use ctxhost_models::failover::ModelCursor;
use ctxhost_session::SessionError;

/// A running turn.
pub(crate) struct AgentTurn {
    pub(crate) state: Arc<RuntimeState>,
    /// The session, locked until the turn ends.
    pub(crate) guard: SessionGuard,
    /// The current model of the failover chain, and those that failed in this turn.
    pub(crate) cursor: ModelCursor,
    pub(crate) retry: RetryState,
    /// The tools that the engine offers in this turn.
    pub(super) engine_tools: HashSet<String>,
    /// The id of the turn's first record.
    pub(super) first_id: String,
    pub(super) requests: u32,
    pub(super) usage: TokenUsage,
    pub(super) engine: String,
    /// The tools of the calls that started in the last answer, also if they were cut off.
    pub(super) started_calls: Vec<String>,
    /// The length of answer that the last request allowed, in provider tokens.
    pub(super) asked_output_tokens: u64,
}

/// Failures of a turn so far, and the limits that they impose on its requests.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RetryState {
    /// Consecutive requests that were too large.
    pub(crate) overflows: u32,
    /// Consecutive requests that timed out.
    pub(crate) timeouts: u32,
    /// The maximum size of the conversation after an overflow, in estimated tokens.
    pub(crate) cap_tokens: Option<u64>,
    /// Which images and files the next request leaves out.
    pub(crate) attachment_cut: Option<AttachmentCut>,
    /// The maximum length of the answer, in provider tokens, if the provider stated one.
    pub(crate) max_output_tokens: Option<u64>,
    /// Whether thinking and provider items are left out.
    pub(crate) without_thinking: bool,
}

impl RetryState {
    /// Resets the counters after an answer; the limits stay in force for the turn.
    pub(super) fn reset_counts(&mut self) {
        (self.overflows, self.timeouts) = (0, 0);
    }
}

impl AgentTurn {
    /// A turn without any messages yet.
    pub(crate) fn new(guard: SessionGuard) -> Result<Self, TurnError> {
        let state = guard.state().clone();
        // A sub-agent may start with another model of the chain.
        let model = guard.active().subagents.model();
        let cursor = state.failover.lock().start_turn_with(model, state.now_ms());
        Ok(AgentTurn {
            cursor: cursor.ok_or(TurnError::NoModel)?,
            state,
            guard,
            retry: RetryState::default(),
            engine_tools: HashSet::new(),
            first_id: String::new(),
            requests: 0,
            usage: TokenUsage::default(),
            engine: String::new(),
            started_calls: Vec::new(),
            asked_output_tokens: 0,
        })
    }

    pub(crate) fn session(&self) -> &LiveSession {
        self.guard.context().session()
    }

    /// Appends a message with the current time.
    pub(super) fn append(&mut self, message: &ChatMessage) -> Result<(), SessionError> {
        let now_ms = self.state.clock().now_ms();
        self.guard.active_mut().context.session_mut().append_message(message, now_ms)?;
        Ok(())
    }

    /// A failure that the host detects itself, in the form of a provider's.
    pub(crate) fn host_failure(&self, reason: FailureReason, message: &str) -> ProviderError {
        let model = self.cursor.model();
        ProviderError::new(reason, &model.provider, &model.id, message.to_owned())
    }
}
