//! Runs one turn of an agent: from a queued message to the model's final answer.
//!
//! ```text
//!  message ─► receive ─► prepare_request ─► recovery::complete ─► record ─┬─ no tool calls ─► finish ─► reply
//!                              ▲                                          └─ tool calls ─► use_tools ─┐
//!                              └──────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! Everything is recorded in the session before the next `await`, so a turn that is dropped leaves a valid session.

pub(crate) mod agent_turn;
mod incomplete;
mod model_call;
pub(crate) mod outgoing_request;
pub(crate) mod target;
mod tools;

use std::sync::Arc;

use ctxhost_engine_api::Trigger;
use futures_util::future::BoxFuture;

use self::agent_turn::AgentTurn;
use crate::error::TurnError;
use crate::event::EventKind;
use crate::inbox::Inbox;
use crate::recovery;
use crate::session_cell::SessionId;
use crate::session_guard::SessionGuard;
use crate::state::RuntimeState;
use ctxhost_dialects::message::{StopReason, TokenUsage, UserMessage};
use ctxhost_dialects::{AssistantMessage, ChatBlock, ChatMessage};
use ctxhost_session::SessionError;

/// The result of a turn.
#[derive(Clone, Debug)]
pub struct TurnReply {
    /// The final answer.
    pub message: AssistantMessage,
    /// Answered requests of the turn, including the last one.
    pub requests: u32,
    /// The usage of all of them.
    pub usage: TokenUsage,
    /// The engine that shaped the last request.
    pub engine: String,
}

/// A message in a session's inbox that starts a turn.
#[derive(Clone, Copy, Debug)]
struct QueuedMessageRef<'a> {
    inbox: &'a Inbox,
    id: &'a str,
}

impl RuntimeState {
    /// Runs a turn of a session. Boxed, because a turn may wait for the turn of a sub-agent.
    pub(crate) fn run_turn<'a>(
        self: &'a Arc<Self>,
        session: &'a SessionId,
        content: Vec<ChatBlock>,
    ) -> BoxFuture<'a, Result<TurnReply, TurnError>> {
        Box::pin(async move {
            let cell = self.session(session)?;
            // Checked before the message is queued: a message that no model can answer would be
            // delivered with a later turn.
            self.failover.lock().start_turn(self.now_ms()).ok_or(TurnError::NoModel)?;
            let message = UserMessage { content, timestamp: self.clock().now_ms() };
            let (id, lock) = cell.enqueue(&self.session_locks, session, &message).await?;
            let waiter = cell.waiters.add_waiter();
            let lock = lock.await;
            drop(waiter);
            let lock = self.acquire_lease(session, &cell, lock).await?;
            if !cell.inbox.is_waiting(&id) {
                return Err(TurnError::AnsweredElsewhere);
            }
            let mut turn = AgentTurn::new(SessionGuard::new(self, &cell, lock).await)?;
            let outcome = run(&mut turn, QueuedMessageRef { inbox: &cell.inbox, id: &id }).await;
            if let Err(error) = &outcome {
                if cell.inbox.is_waiting(&id) {
                    turn.guard.emit(EventKind::MessageQueued);
                }
                turn.guard.emit(EventKind::TurnFailed { message: error.to_string() });
            }
            turn.guard.record_turn(outcome.is_err());
            outcome
        })
    }
}

async fn run(turn: &mut AgentTurn, message: QueuedMessageRef<'_>) -> Result<TurnReply, TurnError> {
    let outcome = run_loop(turn, message).await;
    // Also after an error: what was recorded so far must be durable.
    let synced = turn.guard.active_mut().context.session_mut().sync();
    let reply = outcome?;
    synced?;
    Ok(reply)
}

async fn run_loop(
    turn: &mut AgentTurn,
    message: QueuedMessageRef<'_>,
) -> Result<TurnReply, TurnError> {
    // First, because the system prompt lists the live sub-agents.
    turn.as_parent().record_ends().await?;
    turn.receive(message)?;
    let answer = loop {
        let request = turn.prepare_request(Trigger::Threshold).await?;
        let answer = recovery::complete(turn, request).await?;
        turn.record(&answer)?;
        if answer.stop_reason != StopReason::ToolUse {
            turn.report_incomplete(&answer)?;
            break answer;
        }
        turn.use_tools(&answer).await?;
    };
    turn.finish().await?;
    Ok(turn.reply(answer))
}

impl AgentTurn {
    /// Moves the queued messages up to `message` into the session.
    fn receive(&mut self, message: QueuedMessageRef<'_>) -> Result<(), TurnError> {
        let now_ms = self.state.clock().now_ms();
        let live = self.guard.active_mut().context.session_mut();
        message.inbox.deliver(Some(message.id), |body| -> Result<(), SessionError> {
            let id = live.append(body, now_ms)?;
            // Synced, because the inbox removes the message when this returns.
            live.sync()?;
            if self.first_id.is_empty() {
                self.first_id = id;
            }
            Ok(())
        })?;
        self.guard.emit(EventKind::TurnStarted);
        Ok(())
    }

    /// Appends the model's answer to the session.
    fn record(&mut self, answer: &AssistantMessage) -> Result<(), TurnError> {
        // The host's clock: providers state no time, or another one.
        let timestamp = self.state.clock().now_ms();
        let message = AssistantMessage { timestamp, ..answer.clone() };
        self.append(&ChatMessage::Assistant(message))?;
        self.retry.reset_counts();
        self.state.failover.lock().record_success(self.cursor.model());
        self.requests += 1;
        self.usage = sum_usage(self.usage, answer.usage);
        self.guard.emit(EventKind::Answered { usage: answer.usage });
        Ok(())
    }

    /// Notifies the engine that the turn has ended.
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
