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

mod ask;
mod draft;
mod error;
mod target;
mod tools;

use std::collections::HashSet;
use std::sync::Arc;

use ctxhost_engine_api::Trigger;

use super::agent::Shared;
use super::event::What;
use super::inbox::Inbox;
use super::recovery::{self, Pressure};
use super::session_guard::SessionGuard;
use ctxhost_context::LiveSession;
use ctxhost_dialects::message::{StopReason, Usage};
use ctxhost_dialects::{AssistantMessage, ChatMessage};
use ctxhost_models::failover::Walk;
use ctxhost_session::SessionError;

pub(super) use draft::Draft;
pub use error::TurnError;
pub(super) use target::MIN_OUTPUT_TOKENS;

/// What a turn ended with.
#[derive(Clone, Debug)]
pub struct Reply {
    /// The final answer.
    pub message: AssistantMessage,
    /// Requests that were answered on the way, this one among them.
    pub requests: u32,
    /// What the provider counted over all of them.
    pub usage: Usage,
    /// The engine that shaped the last request.
    pub engine: String,
}

/// One turn, from the person's words to the model's last word.
pub(super) async fn run(turn: &mut Turn, letter: Letter<'_>) -> Result<Reply, TurnError> {
    let outcome = talk(turn, letter).await;
    let synced = turn.guard.open().context.session_mut().sync();
    let reply = outcome?;
    synced?;
    Ok(reply)
}

async fn talk(turn: &mut Turn, letter: Letter<'_>) -> Result<Reply, TurnError> {
    turn.as_parent().tidy().await?;
    turn.hear(letter)?;
    let message = loop {
        let draft = turn.assemble(Trigger::Threshold).await?;
        let reply = recovery::complete(turn, draft).await?;
        turn.record(&reply)?;
        if reply.stop_reason != StopReason::ToolUse {
            break reply;
        }
        turn.use_tools(&reply).await?;
    };
    turn.settle().await?;
    Ok(turn.reply(message))
}

/// What begins a turn: the person's words, where they wait.
#[derive(Clone, Copy, Debug)]
pub(super) struct Letter<'a> {
    /// The inbox of the session.
    pub(super) inbox: &'a Inbox,
    /// Their id in it.
    pub(super) id: &'a str,
}

/// A turn that is under way.
pub(super) struct Turn {
    pub(super) shared: Arc<Shared>,
    /// The session, held to the end of the turn.
    pub(super) guard: SessionGuard,
    /// The way along the models: the one that answers, and those that did not.
    pub(super) walk: Walk,
    /// What has gone wrong so far.
    pub(super) pressure: Pressure,
    /// Tools that the engine has offered in this turn.
    offered: HashSet<String>,
    /// The id of the record that the turn began with.
    first_id: String,
    requests: u32,
    usage: Usage,
    engine: String,
}

impl Turn {
    /// A turn in which nothing has been said yet.
    ///
    /// # Errors
    ///
    /// [`TurnError::NoModel`].
    pub(super) fn new(guard: SessionGuard) -> Result<Self, TurnError> {
        let shared = guard.shared().clone();
        let model = guard.session().children.model();
        let walk = shared.failover().begin_with(model, shared.now_ms());
        Ok(Turn {
            walk: walk.ok_or(TurnError::NoModel)?,
            shared,
            guard,
            pressure: Pressure::default(),
            offered: HashSet::new(),
            first_id: String::new(),
            requests: 0,
            usage: Usage::default(),
            engine: String::new(),
        })
    }

    /// The live session.
    pub(super) fn session(&self) -> &LiveSession {
        self.guard.context().session()
    }

    /// Appends a message that is said now.
    fn append(&mut self, message: &ChatMessage) -> Result<(), SessionError> {
        let now_ms = self.shared.clock().now_ms();
        self.guard.open().context.session_mut().append_message(message, now_ms)?;
        Ok(())
    }

    /// The person's words are in the session before anything is done about them.
    fn hear(&mut self, letter: Letter<'_>) -> Result<(), TurnError> {
        let now_ms = self.shared.clock().now_ms();
        let live = self.guard.open().context.session_mut();
        letter.inbox.deliver(Some(letter.id), |body| -> Result<(), SessionError> {
            let id = live.append(body, now_ms)?;
            // The letter goes once this returns.
            live.sync()?;
            if self.first_id.is_empty() {
                self.first_id = id;
            }
            Ok(())
        })?;
        self.guard.tell(What::TurnBegan);
        Ok(())
    }

    /// The answer is in the session.
    fn record(&mut self, reply: &AssistantMessage) -> Result<(), TurnError> {
        let timestamp = self.shared.clock().now_ms();
        let message = AssistantMessage { timestamp, ..reply.clone() };
        self.append(&ChatMessage::Assistant(message))?;
        self.pressure.relieved();
        self.shared.failover().answered(self.walk.model());
        self.requests += 1;
        self.usage = added(self.usage, reply.usage);
        self.guard.tell(What::Answered { usage: reply.usage });
        Ok(())
    }

    /// The turn has ended well: the engine is told, once before it may change its mind and once for good.
    async fn settle(&mut self) -> Result<(), TurnError> {
        let (target, _) = self.target(Trigger::Threshold).await;
        let context = &mut self.guard.open().context;
        context.end_turn(&target, &self.first_id, None).await?;
        self.guard.tell(What::TurnEnded);
        Ok(())
    }

    fn reply(&self, message: AssistantMessage) -> Reply {
        let engine = self.engine.clone();
        Reply { message, requests: self.requests, usage: self.usage, engine }
    }
}

fn added(sum: Usage, more: Usage) -> Usage {
    Usage {
        input: sum.input + more.input,
        output: sum.output + more.output,
        cache_read: sum.cache_read + more.cache_read,
        cache_write: sum.cache_write + more.cache_write,
        ..sum
    }
    .summed()
}

impl Shared {
    /// Tells whoever listens. Nobody needs to.
    pub(super) fn tell(&self, session: &str, what: What) {
        self.listeners.tell(session, what);
    }
}
