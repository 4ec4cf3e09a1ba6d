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
mod budget;
mod draft;
mod error;
mod figures;
mod guest;
mod tools;

use std::collections::HashSet;
use std::ops::Range;
use std::sync::Arc;

use ctxhost_engine_api::{AfterTurnRequest, CommitTurnRequest, SessionRef, Trigger};

use super::accounting::Accounting;
use super::agent::{OpenSession, Shared};
use super::canary::Family;
use super::canary::figures::TurnFigures;
use super::conversation::Conversation;
use super::event::What;
use super::failover::Walk;
use super::inbox::Inbox;
use super::lane::LaneGuard;
use super::memory::SessionMemory;
use super::recovery::{self, Pressure};
use super::subagent::Children;
use super::swap::{Lease, Watch};
use ctxhost_dialects::message::{StopReason, Usage};
use ctxhost_dialects::{AssistantMessage, ChatMessage};
use ctxhost_engine::ActiveEngine;
use ctxhost_provider::truncation::Counts;
use ctxhost_session::SessionError;

pub(super) use budget::Budget;
pub(super) use draft::Draft;
pub use error::TurnError;
pub(super) use guest::Answered;
pub use guest::Guest;

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
pub(super) async fn run(turn: &mut Turn<'_>, letter: Letter<'_>) -> Result<Reply, TurnError> {
    let outcome = talk(turn, letter).await;
    let synced = turn.conversation.session.sync();
    let reply = outcome?;
    synced?;
    Ok(reply)
}

async fn talk(turn: &mut Turn<'_>, letter: Letter<'_>) -> Result<Reply, TurnError> {
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
pub(super) struct Turn<'a> {
    pub(super) shared: &'a Shared,
    pub(super) lane: &'a LaneGuard,
    pub(super) conversation: &'a mut Conversation,
    /// What is known of the sizes of its requests.
    accounting: &'a mut Accounting,
    counts: &'a mut Counts,
    /// The sub-agents of its session, and whether that is one itself.
    pub(super) children: &'a mut Children,
    /// What earlier sessions left, and how saving more of it went.
    pub(super) memory: &'a mut SessionMemory,
    /// Whose session it is, as far as canaries go.
    pub(super) family: &'a Family,
    /// The slot of this turn: a swap takes effect with the next one.
    pub(super) slot: Arc<ActiveEngine>,
    /// Who wants to know how it goes.
    watch: Option<Watch>,
    /// How it goes.
    figures: TurnFigures,
    /// The way along the models: the one that answers, and those that did not.
    pub(super) walk: Walk,
    /// Who asks the model itself; `None` where the runtime does.
    pub(super) guest: Option<&'a Guest>,
    /// What has gone wrong so far.
    pub(super) pressure: Pressure,
    /// Tools that the engine has offered in this turn.
    offered: HashSet<String>,
    /// The id of the record that the turn began with.
    first_id: String,
    requests: u32,
    usage: Usage,
    last_usage: Usage,
    engine: String,
}

impl<'a> Turn<'a> {
    /// A turn in which nothing has been said yet.
    ///
    /// # Errors
    ///
    /// [`TurnError::NoModel`].
    pub(super) fn new(
        shared: &'a Shared,
        lane: &'a LaneGuard,
        open: &'a mut OpenSession,
    ) -> Result<Self, TurnError> {
        let walk = shared.failover().begin_with(open.children.model(), shared.now_ms());
        let walk = walk.ok_or(TurnError::NoModel)?;
        Ok(Turn::along(walk, None, shared, lane, open))
    }

    fn along(
        walk: Walk,
        guest: Option<&'a Guest>,
        shared: &'a Shared,
        lane: &'a LaneGuard,
        open: &'a mut OpenSession,
    ) -> Self {
        let Lease { slot, watch } = shared.slots.lease(&open.family);
        let mut turn = Turn {
            shared,
            lane,
            conversation: &mut open.conversation,
            accounting: &mut open.accounting,
            counts: &mut open.counts,
            children: &mut open.children,
            memory: &mut open.memory,
            family: &open.family,
            slot,
            watch,
            figures: TurnFigures::default(),
            walk,
            guest,
            pressure: Pressure::default(),
            offered: HashSet::new(),
            first_id: String::new(),
            requests: 0,
            usage: Usage::default(),
            last_usage: Usage::default(),
            engine: String::new(),
        };
        turn.use_model();
        turn
    }

    /// Sizes are those of the model that answers now: another one has another tokenizer, and its server
    /// other habits.
    pub(super) fn use_model(&mut self) {
        let model = self.walk.model().clone();
        if *self.accounting.model() != model {
            *self.counts = Counts::default();
        }
        let window_tokens = self.window_tokens();
        self.accounting.use_model(model, window_tokens);
    }

    /// Tells whoever listens.
    pub(super) fn tell(&self, what: What) {
        self.shared.tell(&self.conversation.reference().id, what);
    }

    /// The person's words are in the session before anything is done about them.
    fn hear(&mut self, letter: Letter<'_>) -> Result<(), TurnError> {
        let now_ms = self.shared.clock.now_ms();
        letter.inbox.deliver(Some(letter.id), |body| -> Result<(), SessionError> {
            let id = self.conversation.hear(body, now_ms)?;
            // The letter goes once this returns.
            self.conversation.session.sync()?;
            self.shared.known.grew(self.conversation);
            if self.first_id.is_empty() {
                self.first_id = id;
            }
            Ok(())
        })?;
        self.tell(What::TurnBegan);
        Ok(())
    }

    /// The answer is in the session.
    fn record(&mut self, reply: &AssistantMessage) -> Result<(), TurnError> {
        let now_ms = self.shared.clock.now_ms();
        let message = AssistantMessage { timestamp: now_ms, ..reply.clone() };
        self.conversation.say(&ChatMessage::Assistant(message), now_ms)?;
        self.shared.known.grew(self.conversation);
        self.pressure.relieved();
        self.shared.failover().answered(self.walk.model());
        self.requests += 1;
        self.last_usage = reply.usage;
        self.usage = added(self.usage, reply.usage);
        self.tell(What::Answered { usage: reply.usage });
        Ok(())
    }

    /// The turn has ended well: the engine is told, once before it may change its mind and once for good.
    async fn settle(&mut self) -> Result<(), TurnError> {
        let view = self.conversation.view();
        let entries = self.first_seq(&view)..view.len() as u64;
        self.settle_with(entries).await?;
        self.tell(What::TurnEnded);
        Ok(())
    }

    async fn settle_with(&mut self, entries: Range<u64>) -> Result<(), TurnError> {
        let (slot, model, budget) = (self.slot.clone(), self.model_ref(), self.budget().await);
        self.shared.shaper(&slot, &model, budget).ingest(self.conversation).await?;
        let view = self.conversation.view();
        let session: SessionRef = self.conversation.reference().clone();
        let after = AfterTurnRequest {
            session: session.clone(),
            entries: entries.clone(),
            budget: budget.tokens,
            provider_tokens: self.last_usage.prompt_tokens(),
            now_ms: self.shared.clock.now_ms(),
            ..AfterTurnRequest::default()
        };
        self.slot.after_turn(&view, after).await?;
        let commit = CommitTurnRequest {
            advancement_key: format!("{}/{}", session.id, self.first_id),
            session,
            entries,
            ..CommitTurnRequest::default()
        };
        self.slot.commit_turn(&view, commit).await?;
        Ok(())
    }

    /// Where the turn begins in the live transcript; a compaction may have moved it.
    fn first_seq(&self, view: &ctxhost_engine_api::Transcript) -> u64 {
        let first = view.iter().rev().find(|entry| entry.id() == self.first_id);
        first.map_or(0, |entry| entry.seq())
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
