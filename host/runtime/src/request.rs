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
use ctxhost_engine::{
    ActiveEngine, AssembleContext, EngineContext, OnRefusal, Served, SlotError, grouped,
};
use ctxhost_law::{self as law, CannotFit, LawSettings, Lawful, Repair};
use ctxhost_session::SessionError;
use ctxhost_survival::{self as survival, Gate};

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
    /// What it had to fit, as entries count: more than was asked for where the answer's reserve was used.
    pub budget_tokens: u64,
    /// What the engine did that no operation of the plan shows.
    pub notes: Vec<Note>,
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
    pub slot: &'a ActiveEngine,
    /// The numbers of the law.
    pub law: &'a LawSettings,
    /// What a request must fit into, in tokens as entries count them.
    pub budget_tokens: u64,
    /// What is held free for the answer, in provider tokens.
    pub reserve_tokens: u64,
    /// What the budget grows by where nothing is held free for the answer, as entries count. It is used
    /// before the emergency trim, never for comfort.
    pub spare_tokens: u64,
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
        if let Some(shaped) = self.shape_within(conversation, ask, &mut work).await? {
            return Ok(shaped);
        }
        if self.spare_tokens > 0 {
            let bare = self.without_reserve();
            if let Some(shaped) = bare.shape_within(conversation, ask, &mut work).await? {
                return Ok(shaped);
            }
            // Trimmed to what leaves room for an answer, as long as that is possible.
            if trimmed(&conversation.view(), self.budget_tokens, self.law).is_err() {
                return bare.last_rung(conversation, work);
            }
        }
        self.last_rung(conversation, work)
    }

    /// The same with nothing held free for the answer.
    fn without_reserve(&self) -> Self {
        let budget_tokens = self.budget_tokens.saturating_add(self.spare_tokens);
        Shaper { budget_tokens, reserve_tokens: 0, spare_tokens: 0, ..*self }
    }

    /// Shapes a request with the engine's plans and compactions; `None` where none of them fits.
    async fn shape_within(
        &self,
        conversation: &mut Conversation,
        ask: &Ask,
        work: &mut Work,
    ) -> Result<Option<Shaped>, RuntimeError> {
        let mut allowance_tokens = self.budget_tokens;
        for attempt in 1..=MAX_COMPACTIONS + 1 {
            let view = conversation.view();
            let assembled = self.assemble(conversation, &view, ask, allowance_tokens).await?;
            work.took += assembled.served.took;
            work.refused += assembled.served.refused;
            let fits = assembled.lawful.tokens <= self.budget_tokens;
            if !fits {
                work.over_budget = Some(self.over_budget(&assembled));
            }
            let may_improve = attempt == 1 && ask.compacting == Compacting::WhenWanted;
            if fits && !(may_improve && assembled.wants_compaction()) {
                return Ok(Some(assembled.into_shaped(view, self.budget_tokens, work)));
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
            if attempt > MAX_COMPACTIONS || !self.compact(conversation, attempt, ask, work).await? {
                return Ok(fits.then(|| assembled.into_shaped(view, self.budget_tokens, work)));
            }
        }
        Ok(None)
    }

    /// By how much a plan is over the budget, in words.
    fn over_budget(&self, assembled: &Assembled) -> String {
        let (tokens, budget_tokens) = (assembled.lawful.tokens, self.budget_tokens);
        format!(
            "plan of {} needs {} tokens, {} over the budget of {}",
            assembled.served.engine,
            grouped(tokens),
            grouped(tokens.saturating_sub(budget_tokens)),
            grouped(budget_tokens),
        )
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
            let assemble = Some(AssembleContext { anchors, budget_tokens, law, on_refusal });
            let context = EngineContext { transcript: view, assemble };
            let mut served = self.slot.ask(context, request).await?;
            let plan = served.value.clone();
            match law::enforce_with(anchors, view, plan, budget_tokens, law) {
                Ok(mut lawful) => {
                    self.slot.passed(&served);
                    lawful.repairs.splice(0..0, std::mem::take(&mut served.repairs));
                    served.refused += refused_before;
                    return Ok(Assembled { served, lawful });
                }
                Err(violation) => {
                    refused_before += served.refused + 1;
                    self.slot.refuse(&served, "assemble", &violation.to_string())?;
                    self.ingest(conversation).await?;
                }
            }
        }
    }

    /// A request without any engine, where nothing else fits.
    fn last_rung(
        &self,
        conversation: &mut Conversation,
        work: Work,
    ) -> Result<Shaped, RuntimeError> {
        let view = conversation.view();
        let plan = trimmed(&view, self.budget_tokens, self.law)?;
        let lawful = law::enforce(&view, plan, self.budget_tokens, self.law)
            .map_err(|violation| EngineError::failed(violation.to_string()))
            .map_err(|error| SlotError::engine(LAST_RUNG, "assemble", error))?;
        let effective = self.slot.effective().id;
        let over =
            work.over_budget.unwrap_or_else(|| format!("plan of {effective} is over its budget"));
        let why = match work.compactions.last() {
            Some(CompactionOutcome {
                engine,
                verdict: Verdict::Rejected { reason } | Verdict::NotTried { reason },
                ..
            }) => format!("{over}; compact of {engine}: {reason}"),
            _ => over,
        };
        let (tokens, kept_tokens) = (view.total_tokens(), lawful.tokens);
        let budget_tokens = self.budget_tokens;
        let session = conversation.reference().id.clone();
        if conversation.report_trim() {
            tracing::warn!(
                session,
                engine = effective,
                why,
                tokens,
                kept_tokens,
                budget_tokens,
                reserve_tokens = self.reserve_tokens,
                model = self.model.id,
                window_tokens = self.model.window_tokens,
                "emergency trim: neither a plan nor a compaction fits the budget; use a larger window, or a smaller system prompt and fewer tools. Later trims of this session are logged at debug level"
            );
        } else {
            tracing::debug!(session, why, kept_tokens, "emergency trim");
        }
        Ok(Shaped {
            budget_tokens,
            view,
            lawful,
            engine: LAST_RUNG.into(),
            fallback: Some(why),
            compactions: work.compactions,
            notes: Vec::new(),
            refused: work.refused,
            took: work.took,
        })
    }
}

/// The plan of the last rung, with the ledger of what it leaves out in the engines' words.
pub(super) fn trimmed(
    view: &Transcript,
    budget_tokens: u64,
    settings: &LawSettings,
) -> Result<Plan, CannotFit> {
    law::last_rung(view, budget_tokens, settings, &|left_out, room| {
        survival::ledger(view, left_out, room.tokens, room.request_tokens)
    })
}

/// What went into a request so far.
#[derive(Default)]
struct Work {
    compactions: Vec<CompactionOutcome>,
    refused: u64,
    took: Duration,
    /// By how much the last plan that did not fit was over, in words.
    over_budget: Option<String>,
}

/// A plan that the law passed, with who made it.
struct Assembled {
    served: Served<Plan>,
    lawful: Lawful,
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

    fn into_shaped(self, view: Transcript, budget_tokens: u64, work: &mut Work) -> Shaped {
        let work = std::mem::take(work);
        Shaped {
            budget_tokens,
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
