//! One turn: from the person's words to the model's last word.
//!
//! ```text
//!  words ─► hear ─► assemble ─► recovery::complete ─► record ─┬─ no tools ─► settle ─► reply
//!                      ▲                                      └─ tools ─► use_tools ─┐
//!                      └─────────────────────────────────────────────────────────────┘
//! ```
//!
//! Whatever is said is in the session before anything else is waited for, so a turn that is dropped at
//! any `await` leaves a valid session behind.

mod error;
mod model_call;
mod outgoing_request;
mod target;
mod tools;

use std::collections::HashSet;
use std::sync::Arc;

use ctxhost_engine_api::Trigger;

use super::event::EventKind;
use super::inbox::Inbox;
use super::recovery::{self, RetryState};
use super::runtime::RuntimeState;
use super::session_guard::SessionGuard;
use ctxhost_context::LiveSession;
use ctxhost_dialects::message::{StopReason, TokenUsage};
use ctxhost_dialects::{AssistantMessage, ChatMessage};
use ctxhost_models::failover::ModelCursor;
use ctxhost_session::SessionError;

pub use error::TurnError;
pub(super) use outgoing_request::OutgoingRequest;
pub(super) use target::MIN_OUTPUT_TOKENS;

/// What a turn ended with.
#[derive(Clone, Debug)]
pub struct TurnReply {
    /// The final answer.
    pub message: AssistantMessage,
    /// Requests that were answered on the way, this one among them.
    pub requests: u32,
    /// What the provider counted over all of them.
    pub usage: TokenUsage,
    /// The engine that shaped the last request.
    pub engine: String,
}

/// One turn, from the person's words to the model's last word.
pub(super) async fn run(
    turn: &mut AgentTurn,
    letter: QueuedMessageRef<'_>,
) -> Result<TurnReply, TurnError> {
    let outcome = run_loop(turn, letter).await;
    let synced = turn.guard.active_mut().context.session_mut().sync();
    let reply = outcome?;
    synced?;
    Ok(reply)
}

async fn run_loop(
    turn: &mut AgentTurn,
    letter: QueuedMessageRef<'_>,
) -> Result<TurnReply, TurnError> {
    turn.as_parent().record_ends().await?;
    turn.receive(letter)?;
    let message = loop {
        let draft = turn.prepare_request(Trigger::Threshold).await?;
        let reply = recovery::complete(turn, draft).await?;
        turn.record(&reply)?;
        if reply.stop_reason != StopReason::ToolUse {
            break reply;
        }
        turn.use_tools(&reply).await?;
    };
    turn.finish().await?;
    Ok(turn.reply(message))
}

/// What begins a turn: the person's words, where they wait.
#[derive(Clone, Copy, Debug)]
pub(super) struct QueuedMessageRef<'a> {
    /// The inbox of the session.
    pub(super) inbox: &'a Inbox,
    /// Their id in it.
    pub(super) id: &'a str,
}

/// A turn that is under way.
pub(super) struct AgentTurn {
    pub(super) state: Arc<RuntimeState>,
    /// The session, held to the end of the turn.
    pub(super) guard: SessionGuard,
    /// The way along the models: the one that answers, and those that did not.
    pub(super) cursor: ModelCursor,
    /// What has gone wrong so far.
    pub(super) retry: RetryState,
    /// Tools that the engine has offered in this turn.
    engine_tools: HashSet<String>,
    /// The id of the record that the turn began with.
    first_id: String,
    requests: u32,
    usage: TokenUsage,
    engine: String,
}

impl AgentTurn {
    /// A turn in which nothing has been said yet.
    ///
    /// # Errors
    ///
    /// [`TurnError::NoModel`].
    pub(super) fn new(guard: SessionGuard) -> Result<Self, TurnError> {
        let shared = guard.state().clone();
        let model = guard.active().subagents.model();
        let walk = shared.failover().start_turn_with(model, shared.now_ms());
        Ok(AgentTurn {
            cursor: walk.ok_or(TurnError::NoModel)?,
            state: shared,
            guard,
            retry: RetryState::default(),
            engine_tools: HashSet::new(),
            first_id: String::new(),
            requests: 0,
            usage: TokenUsage::default(),
            engine: String::new(),
        })
    }

    /// The live session.
    pub(super) fn session(&self) -> &LiveSession {
        self.guard.context().session()
    }

    /// Appends a message that is said now.
    fn append(&mut self, message: &ChatMessage) -> Result<(), SessionError> {
        let now_ms = self.state.clock().now_ms();
        self.guard.active_mut().context.session_mut().append_message(message, now_ms)?;
        Ok(())
    }

    /// The person's words are in the session before anything is done about them.
    fn receive(&mut self, letter: QueuedMessageRef<'_>) -> Result<(), TurnError> {
        let now_ms = self.state.clock().now_ms();
        let live = self.guard.active_mut().context.session_mut();
        letter.inbox.deliver(Some(letter.id), |body| -> Result<(), SessionError> {
            let id = live.append(body, now_ms)?;
            // The letter goes once this returns.
            live.sync()?;
            if self.first_id.is_empty() {
                self.first_id = id;
            }
            Ok(())
        })?;
        self.guard.emit(EventKind::TurnStarted);
        Ok(())
    }

    /// The answer is in the session.
    fn record(&mut self, reply: &AssistantMessage) -> Result<(), TurnError> {
        let timestamp = self.state.clock().now_ms();
        let message = AssistantMessage { timestamp, ..reply.clone() };
        self.append(&ChatMessage::Assistant(message))?;
        self.retry.reset_counts();
        self.state.failover().record_success(self.cursor.model());
        self.requests += 1;
        self.usage = sum_usage(self.usage, reply.usage);
        self.guard.emit(EventKind::Answered { usage: reply.usage });
        Ok(())
    }

    /// The turn has ended well: the engine is told, once before it may change its mind and once for good.
    async fn finish(&mut self) -> Result<(), TurnError> {
        let (target, _) = self.target(Trigger::Threshold).await;
        let context = &mut self.guard.active_mut().context;
        context.end_turn(&target, &self.first_id, None).await?;
        self.guard.emit(EventKind::TurnEnded);
        Ok(())
    }

    fn reply(&self, message: AssistantMessage) -> TurnReply {
        let engine = self.engine.clone();
        TurnReply { message, requests: self.requests, usage: self.usage, engine }
    }
}

fn sum_usage(sum: TokenUsage, more: TokenUsage) -> TokenUsage {
    TokenUsage {
        input: sum.input + more.input,
        output: sum.output + more.output,
        cache_read: sum.cache_read + more.cache_read,
        cache_write: sum.cache_write + more.cache_write,
        ..sum
    }
    .with_total()
}

impl RuntimeState {
    /// Tells whoever listens. Nobody needs to.
    pub(super) fn emit(&self, session: &str, what: EventKind) {
        self.event_bus.emit(session, what);
    }
}
