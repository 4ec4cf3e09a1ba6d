//! A conversation that is kept inside the window of a model: a session, the active engine, a budget.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use ctxhost_engine_api::transcript::tokens;
use ctxhost_engine_api::{AfterTurnRequest, CommitTurnRequest, Flags, ModelRef, Role, Transcript};

use crate::accounting::{LearnedWindow, RequestSize, SizePart, TokenAccounting, TokenCount};
use crate::error::ContextError;
use crate::ingest::IngestProgress;
use crate::live_session::LiveSession;
use crate::overflow::{self, Overflow, RefusedRequest};
use crate::precompute::PrecomputeState;
use crate::sent_request::SentRequest;
use crate::settings::ContextSettings;
use crate::target::{Budget, Target};
use ctxhost_dialects::ProviderError;
use ctxhost_dialects::message::{StopReason, TokenUsage};
use ctxhost_engine::ActiveEngine;
use ctxhost_invariants::progress::CompactionLimits;
use ctxhost_models::ModelName;
use ctxhost_provider::silent_truncation::{CountBasis, CountHistory, SentPrompt, SilentTruncation};
use ctxhost_session::{RecordBody, Session, SessionError};

/// A conversation that is kept inside the window of a model.
#[derive(Debug)]
pub struct Context {
    pub(crate) settings: Arc<ContextSettings>,
    pub(crate) engine: Arc<ActiveEngine>,
    pub(crate) session: LiveSession,
    pub(crate) progress: IngestProgress,
    pub(crate) limits: CompactionLimits,
    pub(crate) precomputed: PrecomputeState,
    pub(crate) is_trim_logged: bool,
    /// What is known of the sizes of its requests.
    accounting: TokenAccounting,
    counts: CountHistory,
    /// What was answered last in a turn that has not ended yet.
    last_answer: Option<LastAnswer>,
}

impl Context {
    /// The context of a session. The engine is told of it at the first call.
    pub fn new(
        session: Session,
        engine: Arc<ActiveEngine>,
        settings: Arc<ContextSettings>,
    ) -> Context {
        let mut session = LiveSession::new(session);
        session.register(&settings.sessions);
        Context {
            limits: CompactionLimits::new(&settings.invariants),
            accounting: TokenAccounting::new(settings.accounting.clone(), ModelName::default(), 0),
            settings,
            engine,
            session,
            progress: IngestProgress::default(),
            precomputed: PrecomputeState::default(),
            is_trim_logged: false,
            counts: CountHistory::default(),
            last_answer: None,
        }
    }

    /// The engine.
    pub fn engine(&self) -> &Arc<ActiveEngine> {
        &self.engine
    }

    /// Another engine serves from here on. It is told of the whole session at its first call.
    pub fn set_engine(&mut self, engine: Arc<ActiveEngine>) {
        self.engine = engine;
    }

    /// The session with its live transcript.
    pub fn session(&self) -> &LiveSession {
        &self.session
    }

    /// The session, to append to it or to go back in it.
    pub fn session_mut(&mut self) -> &mut LiveSession {
        &mut self.session
    }

    /// The id of the session.
    pub fn id(&self) -> &str {
        &self.session.reference().id
    }

    /// What the model could see now.
    pub fn view(&self) -> Transcript {
        self.session.view()
    }

    /// Appends messages with one write, all at the time of the clock, and answers the ids of their records.
    ///
    /// # Errors
    ///
    /// Whatever the session's file answers; none of them is in the session then.
    pub fn append(
        &mut self,
        messages: impl IntoIterator<Item = RecordBody>,
    ) -> Result<Vec<String>, SessionError> {
        self.session.append_all(messages, self.settings.clock.now_ms())
    }

    /// The window of a model: as it was given, or a smaller one that its provider stated in a refusal. In
    /// provider tokens.
    pub fn window_tokens(&self, target: &Target) -> u64 {
        let learned =
            self.accounting.learned_window(&target.model).filter(|window| window.is_stated);
        target.window_tokens.min(learned.map_or(u64::MAX, |window| window.tokens))
    }

    /// What the next prompt may take.
    pub fn budget(&mut self, target: &Target) -> Budget {
        self.set_model(target);
        if let Some(budget) = target.budget {
            return budget;
        }
        // The size that the model refused last without naming its limit bounds a prompt, not the window that
        // engines are told: those refuse to work in a small one, and this is an estimate.
        let refused = self.accounting.learned_window(&target.model);
        let window_tokens =
            self.window_tokens(target).min(refused.map_or(u64::MAX, |window| window.tokens));
        let own_tokens = || self.settings.budget.budget(window_tokens, 0).0;
        let reserve_tokens = target.reserve_tokens.unwrap_or_else(own_tokens);
        let beside = |reserve_tokens| {
            let room_tokens =
                self.room_tokens(target, window_tokens.saturating_sub(reserve_tokens));
            let free_tokens = room_tokens.saturating_sub(target.overhead_tokens);
            free_tokens.min(target.max_tokens.unwrap_or(u64::MAX))
        };
        let tokens = beside(reserve_tokens);
        let spare_tokens = match target.is_reserve_usable {
            true => beside(0).saturating_sub(tokens),
            false => 0,
        };
        Budget { tokens, reserve_tokens, spare_tokens }
    }

    /// What fits into so many provider tokens, as entries count.
    pub fn room_tokens(&self, target: &Target, free_tokens: u64) -> u64 {
        let fitting_tokens = self.accounting.fitting_estimated_tokens(free_tokens);
        target.budget_share.map_or(fitting_tokens, |share| (fitting_tokens as f64 * share) as u64)
    }

    /// A request of which no part is known by itself, but what it took of the conversation.
    pub fn sent_request(&self, target: &Target, conversation_tokens: u64) -> SentRequest {
        // Only the size as a whole is learned from, so the parts name no messages, and two requests of one size
        // are one to the account.
        let part = |tokens: u64| SizePart::new(&tokens.to_string(), tokens);
        let size =
            self.accounting.request_size([target.overhead_tokens, conversation_tokens].map(part));
        let view = self.session.view();
        let images = view.iter().filter(|entry| entry.has(Flags::IMAGES)).count() as u64;
        SentRequest { size, image_tokens: images * tokens::IMAGE_TOKENS, conversation_tokens }
    }

    /// Learns from what the provider counted for a request. Answers where the provider has not read all that it
    /// was sent.
    pub fn record_usage(
        &mut self,
        target: &Target,
        sent: &SentRequest,
        usage: &TokenUsage,
        stop: StopReason,
    ) -> Option<SilentTruncation> {
        self.set_model(target);
        self.last_answer = LastAnswer::new(&self.session.view(), *usage);
        let count = self.accounting.count(&sent.size);
        let is_anchored = count.counted_tokens > 0;
        let of_request = SentPrompt {
            prompt_tokens: self.accounting.expected(count),
            image_tokens: sent.image_tokens,
            basis: if is_anchored { CountBasis::Anchored } else { CountBasis::Estimated },
            window_tokens: self.window_tokens(target),
        };
        let truncation = SilentTruncation::detect(&of_request, self.counts, usage, stop);
        match &truncation {
            None => {
                self.counts = self.counts.with_answer(&of_request, usage, is_anchored);
                self.accounting.record_usage(&target.model, &sent.size, usage, stop);
            }
            Some(truncation) => {
                self.counts = self.counts.reset_sizes();
                let tokens = truncation.window_tokens;
                self.learn_window(target, LearnedWindow { tokens, is_stated: false });
            }
        }
        truncation
    }

    /// Whether a request can have been too large: no part of a conversation is left out for a sentence that was
    /// misread.
    pub fn is_plausible_overflow(
        &self,
        target: &Target,
        sent: &SentRequest,
        failure: &ProviderError,
    ) -> bool {
        let expected_tokens = self.expected_size(&sent.size);
        // A size that was refused before bounds the window, too.
        let refused = self.accounting.learned_window(&target.model).map(|window| window.tokens);
        let window_tokens = self.window_tokens(target).min(refused.unwrap_or(u64::MAX));
        let is_plausible = failure.is_plausible_overflow(expected_tokens, window_tokens);
        if !is_plausible {
            tracing::info!(%failure, expected_tokens, window_tokens, "far below the window, so not taken for too large");
        }
        is_plausible
    }

    /// Learns from the refusal of a request as too large, and makes `target` smaller: the answer that it asks for
    /// where that is enough, else the conversation.
    pub fn overflow(
        &mut self,
        target: &mut Target,
        sent: &SentRequest,
        failure: &ProviderError,
    ) -> Overflow {
        self.set_model(target);
        let expected_tokens = self.expected_size(&sent.size);
        let upper_tokens = self.accounting.upper_bound(self.accounting.count(&sent.size));
        let counted = overflow::prompt_only(failure, expected_tokens, target.output_tokens);
        let refused_tokens = overflow::refused_tokens(&counted, expected_tokens, target);
        let learned = self.learn_overflow(target, sent, &counted, refused_tokens);
        let window_tokens = self.window_tokens(target);
        let refusal =
            RefusedRequest { failure, sent, expected_tokens, upper_tokens, window_tokens };
        let max_output_tokens = overflow::shrink_target(target, &refusal);
        Overflow { max_output_tokens, learned, refused_tokens }
    }

    /// Ends a turn: it began with the record `first_id`, and the next one begins with `next_id`, where there is
    /// one already. The engine is told, once before it may change its mind and once for good.
    ///
    /// # Errors
    ///
    /// [`ContextError::Slot`] of the engine.
    pub async fn end_turn(
        &mut self,
        target: &Target,
        first_id: &str,
        next_id: Option<&str>,
    ) -> Result<(), ContextError> {
        let budget = self.budget(target);
        // A compaction on the way may have replaced the transcript that the engine knows.
        self.ingest().await?;
        let view = self.session.view();
        let entries = entries_between(&view, first_id, next_id);
        let answer = self.last_answer.take().filter(|answer| answer.is_final_in(&view, &entries));
        let session = self.session.reference().clone();
        let after = AfterTurnRequest {
            session: session.clone(),
            entries: entries.clone(),
            budget: budget.tokens,
            provider_tokens: answer.map(|it| it.usage.prompt_tokens()).unwrap_or_default(),
            now_ms: self.settings.clock.now_ms(),
            ..AfterTurnRequest::default()
        };
        self.engine.after_turn(&view, after).await?;
        let commit = CommitTurnRequest {
            advancement_key: format!("{}/{first_id}", session.id),
            session,
            entries,
            ..CommitTurnRequest::default()
        };
        self.engine.commit_turn(&view, commit).await?;
        Ok(())
    }

    /// What this session has learned of models: their windows, and how they count.
    pub fn accounting(&self) -> &TokenAccounting {
        &self.accounting
    }

    /// Goes on with what another session has learned.
    pub fn inherit_accounting(&mut self, accounting: TokenAccounting) {
        self.accounting = accounting;
    }

    /// What a request is probably counted as, in provider tokens.
    pub fn expected_size(&self, size: &RequestSize) -> u64 {
        self.accounting.expected(self.accounting.count(size))
    }

    /// What so many estimated tokens are probably counted as by the model of the last prompt, in provider tokens.
    pub fn expected_tokens(&self, estimated_tokens: u64) -> u64 {
        self.accounting.expected(TokenCount::estimated(estimated_tokens))
    }

    /// What so many estimated tokens are not counted above, but for one request in ten, in provider tokens.
    pub fn upper_tokens(&self, estimated_tokens: u64) -> u64 {
        self.accounting.upper_bound(TokenCount::estimated(estimated_tokens))
    }

    /// A compaction was applied or taken back: sizes that were counted before say nothing any more.
    pub fn invalidate_counts(&mut self) {
        self.accounting.invalidate_anchors();
        self.counts = self.counts.reset_sizes();
    }

    /// The model of a target, as engines know it.
    pub fn model_ref(&self, target: &Target) -> ModelRef {
        let ModelName { provider, id } = target.model.clone();
        ModelRef { provider, id, window_tokens: self.window_tokens(target) }
    }

    /// Sizes are those of the model that answers now: another one has another tokenizer, and its server other
    /// habits.
    fn set_model(&mut self, target: &Target) {
        if *self.accounting.model() != target.model {
            self.counts = CountHistory::default();
        }
        let window_tokens = self.window_tokens(target);
        self.accounting.use_model(target.model.clone(), window_tokens);
    }

    /// Tells the engine of the session, where it is new to it, and of the entries that it has not seen; answers the time
    /// inside the engine. Every other call does so first.
    ///
    /// # Errors
    ///
    /// [`ContextError::Slot`] of the engine.
    pub async fn ingest(&mut self) -> Result<Duration, ContextError> {
        let (view, branch) = (self.session.view(), self.session.branch());
        let session = self.session.reference();
        Ok(self.progress.catch_up(&self.engine, session, branch, &view).await?)
    }

    /// What a refusal teaches: the provider may have named the size and the limit. Where it named no limit, the size
    /// that it refused bounds this session, as far as that can be estimated.
    fn learn_overflow(
        &mut self,
        target: &Target,
        sent: &SentRequest,
        failure: &ProviderError,
        refused_tokens: u64,
    ) -> Option<LearnedWindow> {
        if let Some(prompt_tokens) = failure.prompt_tokens {
            self.accounting.record_count(&target.model, &sent.size, prompt_tokens);
        }
        if failure.is_ceiling {
            // What a key may use in a minute is no window.
            return None;
        }
        let window = match failure.limit_tokens.filter(|tokens| *tokens > 0) {
            Some(tokens) => LearnedWindow { tokens, is_stated: true },
            None => LearnedWindow { tokens: refused_tokens, is_stated: false },
        };
        self.learn_window(target, window).then_some(window)
    }

    /// The provider knows its window; the config may not. Only a smaller one is believed; whether it was.
    fn learn_window(&mut self, target: &Target, window: LearnedWindow) -> bool {
        let believed = target.min_window_tokens..self.window_tokens(target);
        if !believed.contains(&window.tokens) {
            return false;
        }
        self.accounting.learn_window(&target.model, window);
        self.accounting.use_model(target.model.clone(), window.tokens);
        true
    }
}

/// What was answered, and to what.
#[derive(Debug)]
struct LastAnswer {
    /// The last entry of the request.
    asked_id: String,
    usage: TokenUsage,
}

impl LastAnswer {
    /// An answer to a request that is all of `view`.
    fn new(view: &Transcript, usage: TokenUsage) -> Option<LastAnswer> {
        Some(LastAnswer { asked_id: view.last()?.id().to_owned(), usage })
    }

    /// Whether it is that of the last request of a turn: there is nothing more in the turn but what it says.
    fn is_final_in(&self, view: &Transcript, turn: &Range<u64>) -> bool {
        let of_turn = view.iter().filter(|entry| turn.contains(&entry.seq()));
        let mut asked = of_turn.skip_while(|entry| entry.id() != self.asked_id);
        asked.next().is_some() && asked.all(|entry| entry.role() == Role::Assistant)
    }
}

/// The entries from one to before another; a compaction may have folded the first of them.
fn entries_between(view: &Transcript, first_id: &str, next_id: Option<&str>) -> Range<u64> {
    let seq = |id: &str| view.iter().rev().find(|entry| entry.id() == id).map(|it| it.seq());
    let next = next_id.and_then(seq).unwrap_or(view.len() as u64);
    seq(first_id).unwrap_or(0).min(next)..next
}
