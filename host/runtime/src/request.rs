//! One request: ingest what is new, assemble, hold it against the law, compact while it does not fit.

use std::sync::Arc;
use std::time::Duration;

use ctxhost_engine_api::{
    AssembleRequest, BootstrapRequest, EngineError, IngestRequest, Item, ModelRef, Note, Plan,
    Transcript, Trigger,
};

use super::compaction::{self, CompactionOutcome, Verdict, Wanted};
use super::conversation::Conversation;
use super::hook::CompactionHook;
use super::stack::{Bench, OnRefusal, Stack, Staged};
use ctxhost_engine::{Served, SlotError};
use ctxhost_law::{self as law, CannotFit, LawSettings, Lawful, Repair};
use ctxhost_session::SessionError;
use ctxhost_survival::Gate;

/// How often one request may ask for a compaction before the last rung (DESIGN 2, overflow recovery).
pub const MAX_COMPACTIONS: u32 = 3;

/// The name under which the host's own last rung signs.
pub const LAST_RUNG: &str = "last rung";

/// Why a request could not be shaped.
#[derive(Debug, thiserror::Error)]
pub enum RuntimeError {
    /// The slot has no answer.
    #[error(transparent)]
    Slot(#[from] SlotError),
    /// Not even the last rung fits.
    #[error(transparent)]
    CannotFit(#[from] CannotFit),
    /// The session could not be written.
    #[error(transparent)]
    Session(#[from] SessionError),
    /// The request does not fit and compactions are left to the person.
    #[error(
        "the next request needs {tokens} tokens and {budget_tokens} are free; compact the session (/compact, or `ctxhost compact`)"
    )]
    CompactionOwed {
        /// What it needs, as entries count.
        tokens: u64,
        /// What it may take.
        budget_tokens: u64,
    },
}

/// What is asked of an engine.
#[derive(Clone, Debug, Default)]
pub struct Ask {
    /// The prompt that is about to be answered; empty inside a tool loop.
    pub prompt: String,
    /// The tools the model may call.
    pub available_tools: Vec<String>,
    /// Now, in milliseconds since 1970.
    pub now_ms: i64,
    /// Why a compaction that it needs is wanted.
    pub trigger: Trigger,
    /// When the host may compact for it by itself.
    pub compacting: Compacting,
}

/// When the host may compact by itself on the way to a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compacting {
    /// Where the request does not fit, and where its engine would like to.
    #[default]
    WhenWanted,
    /// Only where the request does not fit.
    WhenNeeded,
    /// Never: a request that does not fit is an error, and a person compacts by hand.
    Never,
}

/// A request that obeys the law, and the truth about how it came to be.
#[derive(Debug)]
pub struct Shaped {
    /// The transcript it was made from.
    pub view: Transcript,
    /// The plan after repairs.
    pub lawful: Lawful,
    /// The engine that shaped it.
    pub engine: String,
    /// Why it was not the configured engine.
    pub fallback: Option<String>,
    /// The compactions that were tried for it.
    pub compactions: Vec<CompactionOutcome>,
    /// What the engine did that no operation of the plan shows.
    pub notes: Vec<Note>,
    /// Up to how many tokens of the live transcript the engine would keep all of it again; `None` where
    /// it has not said so, or somebody stood in for it.
    pub idle_within_tokens: Option<u64>,
    /// Plans that the law refused on the way.
    pub refused: u64,
    /// Time inside engines.
    pub took: Duration,
}

impl Shaped {
    /// The items the model would see.
    pub fn items(&self) -> Vec<Item<'_>> {
        self.lawful.items(&self.view)
    }
}

/// Shapes requests of one model: its budget, the slot and the law.
#[derive(Clone, Copy, Debug)]
pub struct Shaper<'a> {
    /// The engines.
    pub slot: &'a Stack,
    /// The numbers of the law.
    pub law: &'a LawSettings,
    /// What a request must fit into, in tokens as entries count them.
    pub budget_tokens: u64,
    /// What is held free for the answer, in provider tokens.
    pub reserve_tokens: u64,
    /// The model.
    pub model: &'a ModelRef,
    /// The least that a compaction has to keep.
    pub gate: &'a Gate,
    /// Who wants to know of compactions.
    pub hooks: &'a [Arc<dyn CompactionHook>],
}

impl Shaper<'_> {
    /// Tells the engine of a session that begins or is opened again.
    ///
    /// # Errors
    ///
    /// [`RuntimeError::Slot`].
    pub async fn bootstrap(&self, conversation: &mut Conversation) -> Result<(), RuntimeError> {
        let session = conversation.reference().clone();
        let request = BootstrapRequest { session, ..BootstrapRequest::default() };
        self.slot.bootstrap(&conversation.view(), request).await?;
        conversation.told(self.slot.serving());
        Ok(())
    }

    /// Shapes the next request of a conversation.
    ///
    /// # Errors
    ///
    /// [`RuntimeError`]; the conversation is as it was, except for compactions that were applied.
    pub async fn shape(
        &self,
        conversation: &mut Conversation,
        ask: &Ask,
    ) -> Result<Shaped, RuntimeError> {
        let mut work = Work { took: self.ingest(conversation).await?, ..Work::default() };
        let mut allowance_tokens = self.budget_tokens;
        for attempt in 1..=MAX_COMPACTIONS + 1 {
            let view = conversation.view();
            let assembled = self.assemble(conversation, &view, ask, allowance_tokens).await?;
            work.took += assembled.served.took;
            work.refused += assembled.refused;
            let fits = assembled.lawful.tokens <= self.budget_tokens;
            let may_improve = attempt == 1 && ask.compacting == Compacting::WhenWanted;
            if fits && !(may_improve && assembled.wants_compaction()) {
                return Ok(assembled.into_shaped(view, work));
            }
            if !fits && self.slot.effective().owns_compaction {
                // It has promised to fit. What the law put back it could not have counted, so it is
                // asked again with that much less.
                let overshoot_tokens = assembled.lawful.tokens - self.budget_tokens;
                let less_tokens = overshoot_tokens.max(assembled.put_back_tokens(&view));
                allowance_tokens = allowance_tokens.saturating_sub(less_tokens);
                continue;
            }
            if ask.compacting == Compacting::Never {
                let (tokens, budget_tokens) = (assembled.lawful.tokens, self.budget_tokens);
                return Err(RuntimeError::CompactionOwed { tokens, budget_tokens });
            }
            if attempt > MAX_COMPACTIONS
                || !self.compact(conversation, attempt, ask, &mut work).await?
            {
                if fits {
                    return Ok(assembled.into_shaped(view, work));
                }
                break;
            }
        }
        self.last_rung(conversation, work)
    }

    /// Whether the next request would be better for a compaction, or would not fit without one.
    ///
    /// # Errors
    ///
    /// [`RuntimeError`].
    pub(super) async fn wants_compaction(
        &self,
        conversation: &mut Conversation,
        ask: &Ask,
    ) -> Result<bool, RuntimeError> {
        self.ingest(conversation).await?;
        let view = conversation.view();
        let assembled = self.assemble(conversation, &view, ask, self.budget_tokens).await?;
        Ok(assembled.lawful.tokens > self.budget_tokens || assembled.wants_compaction())
    }

    /// Whether a compaction comes before the next request, because that would not fit without one.
    ///
    /// # Errors
    ///
    /// [`RuntimeError`].
    pub(super) async fn needs_compaction(
        &self,
        conversation: &mut Conversation,
        ask: &Ask,
    ) -> Result<bool, RuntimeError> {
        let view = conversation.view();
        let compacts =
            ask.compacting != Compacting::Never && !self.slot.effective().owns_compaction;
        let most_tokens = view.total_tokens() + conversation.anchors().added_tokens();
        if !compacts || most_tokens <= self.budget_tokens {
            return Ok(false);
        }
        self.ingest(conversation).await?;
        let assembled = self.assemble(conversation, &view, ask, self.budget_tokens).await?;
        Ok(assembled.lawful.tokens > self.budget_tokens)
    }

    /// Tries a compaction; whether it makes sense to assemble again.
    async fn compact(
        &self,
        conversation: &mut Conversation,
        attempt: u32,
        ask: &Ask,
        work: &mut Work,
    ) -> Result<bool, RuntimeError> {
        let wanted =
            Wanted { trigger: ask.trigger, attempt, now_ms: ask.now_ms, ..Wanted::default() };
        let outcome = compaction::attempt_one(self, conversation, wanted).await?;
        work.took += outcome.took;
        let goes_on = outcome.verdict.allows_another();
        work.compactions.push(outcome);
        work.took += self.ingest(conversation).await?;
        Ok(goes_on)
    }

    /// Tells the engine of the entries it has not seen; of all of them where another one serves now.
    pub(super) async fn ingest(
        &self,
        conversation: &mut Conversation,
    ) -> Result<Duration, RuntimeError> {
        if !conversation.is_told(&self.slot.serving()) {
            self.bootstrap(conversation).await?;
        }
        let view = conversation.view();
        let entries = conversation.ingested..view.len() as u64;
        if entries.is_empty() {
            return Ok(Duration::ZERO);
        }
        let session = conversation.reference().clone();
        let request =
            IngestRequest { session, entries: entries.clone(), ..IngestRequest::default() };
        let served = self.slot.ingest(&view, request).await?;
        conversation.ingested = entries.end;
        Ok(served.took)
    }

    /// Assembles until the law accepts a plan: at most once with each engine of the slot.
    ///
    /// What the host adds itself is taken off the allowance, so an engine may use its budget up.
    async fn assemble(
        &self,
        conversation: &mut Conversation,
        view: &Transcript,
        ask: &Ask,
        allowance_tokens: u64,
    ) -> Result<Assembled, RuntimeError> {
        let mut refused_before = 0;
        let budget = conversation.anchors().request_budget(allowance_tokens);
        loop {
            let request = AssembleRequest {
                session: conversation.reference().clone(),
                budget,
                reserve_tokens: self.reserve_tokens,
                prompt: ask.prompt.clone(),
                model: self.model.clone(),
                available_tools: ask.available_tools.clone(),
                now_ms: ask.now_ms,
                ..AssembleRequest::default()
            };
            let Shaper { law, budget_tokens, .. } = *self;
            let anchors = conversation.anchors();
            let on_refusal = OnRefusal::LeaveOut;
            let bench = Bench { anchors, budget_tokens, law, on_refusal };
            let Staged { served, repairs, refused } =
                self.slot.assemble(view, request, bench).await?;
            let plan = served.value.clone();
            match law::enforce_with(anchors, view, plan, budget_tokens, law) {
                Ok(mut lawful) => {
                    self.slot.passed(&served);
                    lawful.repairs.splice(0..0, repairs);
                    let refused = refused_before + refused;
                    return Ok(Assembled { served, lawful, refused });
                }
                Err(violation) => {
                    refused_before += refused + 1;
                    self.slot.refuse(&served, "assemble", &violation.to_string())?;
                    self.ingest(conversation).await?;
                }
            }
        }
    }

    fn last_rung(&self, conversation: &Conversation, work: Work) -> Result<Shaped, RuntimeError> {
        let view = conversation.view();
        let plan = law::last_rung(&view, self.budget_tokens)?;
        let lawful = law::enforce(&view, plan, self.budget_tokens, self.law)
            .map_err(|violation| EngineError::failed(violation.to_string()))
            .map_err(|error| SlotError::engine(LAST_RUNG, "assemble", error))?;
        let effective = self.slot.effective().id;
        let why = match work.compactions.last().map(|outcome| &outcome.verdict) {
            Some(Verdict::Rejected { reason } | Verdict::NotTried { reason }) => reason.clone(),
            _ => format!("{effective} left the request above its budget"),
        };
        tracing::warn!(engine = effective, why, "the last rung shaped a request");
        Ok(Shaped {
            view,
            lawful,
            engine: LAST_RUNG.into(),
            fallback: Some(why),
            compactions: work.compactions,
            notes: Vec::new(),
            idle_within_tokens: None,
            refused: work.refused,
            took: work.took,
        })
    }
}

/// What went into a request so far.
#[derive(Default)]
struct Work {
    compactions: Vec<CompactionOutcome>,
    refused: u64,
    took: Duration,
}

/// A plan that the law passed, with who made it.
struct Assembled {
    served: Served<Plan>,
    lawful: Lawful,
    refused: u64,
}

impl Assembled {
    fn wants_compaction(&self) -> bool {
        self.served.value.extras.compaction_wanted.is_some()
    }

    fn put_back_tokens(&self, view: &Transcript) -> u64 {
        let tokens = |repair: &Repair| match repair {
            Repair::PutBack { entries, .. } => view.tokens(entries.clone()),
            _ => 0,
        };
        self.lawful.repairs.iter().map(tokens).sum()
    }

    fn into_shaped(self, view: Transcript, work: Work) -> Shaped {
        let idle_within_tokens = self.served.value.extras.idle_within_tokens;
        Shaped {
            idle_within_tokens: idle_within_tokens.filter(|_| self.served.fallback.is_none()),
            view,
            lawful: self.lawful,
            engine: self.served.engine,
            fallback: self.served.fallback,
            compactions: work.compactions,
            notes: self.served.value.extras.notes,
            refused: work.refused,
            took: work.took,
        }
    }
}

#[cfg(test)]
mod tests;
