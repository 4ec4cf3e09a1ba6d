//! `Context`: a session, the active engine and a budget, which keep one conversation inside a model's window.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use ctxhost_engine_api::{AfterTurnRequest, CommitTurnRequest, ModelRef, Role, Transcript};

use crate::accounting::{
    CachedTokens, LearnedWindow, RequestSize, SizePart, TokenAccounting, TokenCount,
};
use crate::attachments::AttachmentSizes;
use crate::error::ContextError;
use crate::ingest::IngestProgress;
use crate::instruction_edits::InstructionEdits;
use crate::live_session::LiveSession;
use crate::precompute::PrecomputeState;
use crate::prompt::Prompt;
use crate::sent_request::SentRequest;
use crate::settings::ContextSettings;
use crate::target::{Budget, Target};
use ctxhost_dialects::ProviderError;
use ctxhost_dialects::message::{StopReason, TokenUsage};
use ctxhost_engine::ActiveEngine;
use ctxhost_invariants::{has_attachments, progress::CompactionLimits};
use ctxhost_models::ModelName;
use ctxhost_provider::silent_truncation::{CountBasis, CountHistory, SentPrompt, SilentTruncation};
use ctxhost_session::{RecordBody, Session, SessionError};

/// Keeps one conversation inside a model's window.
#[derive(Debug)]
pub struct Context {
    pub(crate) settings: Arc<ContextSettings>,
    pub(crate) engine: Arc<ActiveEngine>,
    pub(crate) session: LiveSession,
    pub(crate) progress: IngestProgress,
    pub(crate) limits: CompactionLimits,
    pub(crate) precomputed: PrecomputeState,
    pub(crate) is_trim_logged: bool,
    pub(crate) accounting: TokenAccounting,
    counts: CountHistory,
    attachments: AttachmentSizes,
    pub(crate) instruction_edits: InstructionEdits,
    /// The tokens of the last prompt, and what its images and files are estimated at.
    last_prompt: Option<(u64, u64)>,
    /// The last answer of the current turn.
    last_answer: Option<LastAnswer>,
}

impl Context {
    /// A context of a session. The first call bootstraps the engine.
    pub fn new(
        session: Session,
        engine: Arc<ActiveEngine>,
        settings: Arc<ContextSettings>,
    ) -> Context {
        let mut accounting =
            TokenAccounting::new(settings.accounting.clone(), ModelName::default(), 0);
        accounting.restore(&session);
        let mut session = LiveSession::new(session);
        session.register(&settings.sessions);
        session.restore_cache_use(settings.clock.now_ms());
        Context {
            limits: CompactionLimits::new(&settings.invariants),
            accounting,
            settings,
            engine,
            session,
            progress: IngestProgress::default(),
            precomputed: PrecomputeState::default(),
            is_trim_logged: false,
            counts: CountHistory::default(),
            attachments: AttachmentSizes::default(),
            instruction_edits: InstructionEdits::default(),
            last_prompt: None,
            last_answer: None,
        }
    }

    /// The active engine.
    pub fn engine(&self) -> &Arc<ActiveEngine> {
        &self.engine
    }

    /// Sets the engine. The next call bootstraps it with the whole session.
    pub fn set_engine(&mut self, engine: Arc<ActiveEngine>) {
        self.engine = engine;
    }

    /// The session and its live transcript.
    pub fn session(&self) -> &LiveSession {
        &self.session
    }

    /// The session, to append to it or to change its branch.
    pub fn session_mut(&mut self) -> &mut LiveSession {
        &mut self.session
    }

    /// The id of the session.
    pub fn id(&self) -> &str {
        &self.session.reference().id
    }

    /// The live transcript.
    pub fn view(&self) -> Transcript {
        self.session.view()
    }

    /// Appends messages with one write and the current time; returns the ids of their records.
    ///
    /// # Errors
    ///
    /// [`SessionError`]; none of them is appended.
    pub fn append(
        &mut self,
        messages: impl IntoIterator<Item = RecordBody>,
    ) -> Result<Vec<String>, SessionError> {
        self.session.append_all(messages, self.settings.clock.now_ms())
    }

    /// The window of a target in provider tokens: the given one, or a smaller one that its provider has stated.
    pub fn window_tokens(&self, target: &Target) -> u64 {
        let learned = self.learned_window(target).filter(|window| window.is_stated);
        // Only a stated window counts: an estimated bound must not change what engines see.
        target.window_tokens.min(learned.map_or(u64::MAX, |window| window.tokens))
    }

    /// The part of the window for the conversation, which the compactions made for a target record; `None` for a fixed
    /// budget. A limit after a refusal does not count: the history before such a compaction would be refused again.
    pub(crate) fn recorded_window(&self, target: &Target) -> Option<u64> {
        let window_tokens = self.window_tokens(target).saturating_sub(target.overhead_tokens);
        let window_tokens = window_tokens.min(target.requested_tokens.unwrap_or(u64::MAX));
        // Nothing is twice as large as 0.
        target.budget.is_none().then_some(window_tokens.max(1))
    }

    fn learned_window(&self, target: &Target) -> Option<LearnedWindow> {
        self.accounting.learned_window(&target.model, target.window_tokens)
    }

    /// The budget of the next prompt.
    pub fn budget(&mut self, target: &Target) -> Budget {
        self.set_target(target);
        self.attachments.update(&self.session.view());
        if let Some(budget) = target.budget {
            return budget;
        }
        let window_tokens = self.bounding_window(target);
        let own_tokens = || self.settings.budget.budget(window_tokens, 0).0;
        let reserve_tokens = target.reserve_tokens.unwrap_or_else(own_tokens);
        let budget_with = |reserve_tokens| {
            let room_tokens =
                self.room_tokens(target, window_tokens.saturating_sub(reserve_tokens));
            let free_tokens = room_tokens.saturating_sub(target.overhead_tokens);
            free_tokens.min(target.max_tokens.unwrap_or(u64::MAX))
        };
        let tokens = budget_with(reserve_tokens);
        let spare_tokens =
            if target.is_reserve_usable { budget_with(0).saturating_sub(tokens) } else { 0 };
        Budget { tokens, reserve_tokens, spare_tokens }.halved_reserve()
    }

    /// The window that bounds the budget, in provider tokens.
    pub(crate) fn bounding_window(&self, target: &Target) -> u64 {
        // A refused size without a stated limit bounds the budget, but not the window that engines see: it
        // is an estimate, and engines reject small windows.
        let refused = self.learned_window(target);
        self.window_tokens(target).min(refused.map_or(u64::MAX, |window| window.tokens))
    }

    /// The estimated tokens that fit into this many provider tokens, by the target's budget share.
    pub fn room_tokens(&self, target: &Target, free_tokens: u64) -> u64 {
        let share = self.attachment_share();
        let fitting_tokens = self.accounting.fitting_estimated_tokens(free_tokens, share);
        target.budget_share.map_or(fitting_tokens, |share| (fitting_tokens as f64 * share) as u64)
    }

    /// The size of a request of which only the total is known.
    pub fn sent_request(&self, target: &Target, conversation_tokens: u64) -> SentRequest {
        // The parts are not messages: only the total is learned, and two requests of one size are equal.
        let part = |tokens: u64| SizePart::new(&tokens.to_string(), tokens);
        let attachment_tokens = match self.last_prompt {
            Some((tokens, attachment_tokens)) if tokens == conversation_tokens => attachment_tokens,
            _ => (conversation_tokens as f64 * self.attachment_share()) as u64,
        };
        let conversation = part(conversation_tokens).with_attachments(attachment_tokens);
        let size = self.accounting.request_size([part(target.overhead_tokens), conversation]);
        SentRequest { size, conversation_tokens, bytes: None }
    }

    /// Remembers what the images and files of a prompt are estimated at.
    pub(crate) fn record_prompt(&mut self, prompt: &Prompt) {
        self.attachments.update(&prompt.view);
        let attachment_tokens = self.attachments.tokens_of(&prompt.items());
        self.last_prompt = Some((prompt.checked.tokens, attachment_tokens));
    }

    /// The share of images and files in the conversation.
    fn attachment_share(&self) -> f64 {
        let tokens = self.session.view().total_tokens().max(1);
        (self.attachments.total_tokens() as f64 / tokens as f64).min(1.0)
    }

    /// Learns from the usage that a provider reports; returns evidence that it truncated the prompt.
    pub fn record_usage(
        &mut self,
        target: &Target,
        sent: &SentRequest,
        usage: &TokenUsage,
        stop: StopReason,
    ) -> Option<SilentTruncation> {
        self.set_target(target);
        // Before the checks below: the engine gets the provider's number even if it is implausible.
        self.last_answer = LastAnswer::new(&self.session.view(), *usage);
        let count = self.accounting.count(&sent.size);
        let is_anchored = count.counted_tokens > 0;
        let expectation = SentPrompt {
            prompt_tokens: self.accounting.expected(count),
            estimated_tokens: sent.size.estimate_tokens(),
            image_tokens: sent.size.attachment_tokens(),
            basis: if is_anchored { CountBasis::Anchored } else { CountBasis::Estimated },
            window_tokens: self.window_tokens(target),
        };
        if target.may_be_shortened && !expectation.may_be_read_whole(usage) {
            // The provider did what the request asked for. The count is neither of this prompt nor a sign of its window.
            self.counts = self.counts.reset_sizes();
            return None;
        }
        let truncation = SilentTruncation::detect(&expectation, self.counts, usage, stop);
        let truncation = truncation.filter(|_| !target.may_be_shortened);
        match &truncation {
            None => {
                let is_first = self.counts.is_empty();
                self.counts = self.counts.with_answer(&expectation, usage, is_anchored);
                let cached = if self.counts.counts_cached() {
                    CachedTokens::Counted
                } else if is_first {
                    CachedTokens::NotYet
                } else {
                    CachedTokens::Unknown
                };
                self.accounting.record_usage(&target.model, &sent.size, usage, stop, cached);
                self.store_accounting(target);
            }
            Some(truncation) => {
                tracing::warn!(
                    session = self.id(),
                    window_tokens = truncation.window_tokens,
                    "{truncation}"
                );
                self.counts = self.counts.reset_sizes();
                self.learn_window(target, truncation.window_tokens, false);
            }
        }
        truncation
    }

    /// Whether a request can have been too large. A misread error message must not cost a part of the conversation.
    pub fn is_plausible_overflow(
        &self,
        target: &Target,
        sent: &SentRequest,
        failure: &ProviderError,
    ) -> bool {
        let expected_tokens = self.expected_size(&sent.size);
        // Includes the estimated bound of an earlier refusal.
        let window_tokens = self.bounding_window(target);
        // Files have many bytes and few tokens.
        let is_plausible = failure.is_plausible_overflow(expected_tokens, window_tokens)
            || failure.is_byte_limit && has_attachments(&self.view());
        if !is_plausible {
            tracing::info!(
                failure = failure.log_text(false),
                expected_tokens,
                window_tokens,
                "a refusal is not treated as an overflow: the request is far below the window"
            );
        }
        is_plausible
    }

    /// Ends a turn, which began with the record `first_id`; `next_id` is the first record of the next one, if it
    /// exists. Calls the engine's `after_turn` and `commit_turn`.
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
        // A compaction within the turn may have started a new epoch.
        self.ingest().await?;
        let view = self.session.view();
        let entries = entries_between(&view, first_id, next_id);
        let answer = self.last_answer.take().filter(|answer| answer.is_final_in(&view, &entries));
        let session = self.session.reference().clone();
        let after = AfterTurnRequest {
            session: session.clone(),
            entries: entries.clone(),
            budget: budget.tokens,
            provider_tokens: answer.map(|answer| answer.usage.prompt_tokens()).unwrap_or_default(),
            now_ms: self.settings.clock.now_ms(),
            ..AfterTurnRequest::default()
        };
        // In `after_turn` an engine may still change its state; `commit_turn` is final, and idempotent by its key.
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

    /// What this session has learned about the windows and token counts of models.
    pub fn accounting(&self) -> &TokenAccounting {
        &self.accounting
    }

    /// Takes over the accounting of another session.
    pub fn inherit_accounting(&mut self, accounting: TokenAccounting) {
        self.accounting = accounting;
        self.accounting.mark_unstored();
    }

    /// Appends what was learned about the window and token counts of a model, so that a restart knows it.
    fn store_accounting(&mut self, target: &Target) {
        let Some(record) = self.accounting.unstored_record(&target.model) else { return };
        match self.append([record]) {
            Ok(_) => self.accounting.mark_stored(&target.model),
            // The answer is there; only a restart would estimate anew.
            Err(error) => tracing::warn!(%error, "cannot store the token counts of a model"),
        }
    }

    /// The expected size of a request, in provider tokens.
    pub fn expected_size(&self, size: &RequestSize) -> u64 {
        self.accounting.expected(self.accounting.count(size))
    }

    /// The expected provider tokens for estimated tokens, for the model of the last prompt.
    pub fn expected_tokens(&self, estimated_tokens: u64) -> u64 {
        self.accounting.expected(self.estimated(estimated_tokens))
    }

    /// An upper bound of the provider tokens for estimated tokens; one request in ten exceeds it. What images and files cost is not known
    /// before the model has counted some, so until then they are left out.
    pub fn upper_tokens(&self, estimated_tokens: u64) -> u64 {
        let mut size = self.estimated(estimated_tokens);
        if !self.accounting.knows_attachments() {
            size = TokenCount::estimated(size.estimated_tokens - size.attachment_tokens);
        }
        self.accounting.upper_bound(size)
    }

    /// An estimated size with the conversation's share of images and files.
    fn estimated(&self, estimated_tokens: u64) -> TokenCount {
        TokenCount::estimated_with(estimated_tokens, self.attachment_share())
    }

    /// Discards counted sizes after a compaction was applied or reverted.
    pub fn invalidate_counts(&mut self) {
        self.accounting.invalidate_anchors();
        self.counts = self.counts.reset_sizes();
    }

    /// The model of a target, for engine requests.
    pub fn model_ref(&self, target: &Target) -> ModelRef {
        let ModelName { provider, id } = target.model.clone();
        ModelRef { provider, id, window_tokens: self.window_tokens(target) }
    }

    /// Switches to the target's model: the history that counts for its window, and its accounting. Another model has another
    /// tokenizer, and its server may truncate differently.
    pub(crate) fn set_target(&mut self, target: &Target) {
        if self.session.show_history_for(self.recorded_window(target)) {
            self.invalidate_counts();
        }
        // The truncation statistics are those of one server.
        if *self.accounting.model() != target.model {
            self.counts = CountHistory::default();
        }
        let window_tokens = self.window_tokens(target);
        self.accounting.use_model(target.model.clone(), window_tokens);
    }

    /// Bootstraps the engine if the session is new to it and ingests new entries; returns the time inside the engine.
    /// Every other engine call does this first.
    ///
    /// # Errors
    ///
    /// [`ContextError::Slot`] of the engine.
    pub async fn ingest(&mut self) -> Result<Duration, ContextError> {
        let (view, branch) = (self.session.view(), self.session.branch());
        let session = self.session.reference();
        Ok(self.progress.catch_up(&self.engine, session, branch, &view).await?)
    }

    /// Learns a window if it is smaller than the known one.
    pub(crate) fn learn_window(
        &mut self,
        target: &Target,
        tokens: u64,
        is_stated: bool,
    ) -> Option<LearnedWindow> {
        let plausible = target.min_window_tokens..self.window_tokens(target);
        if !plausible.contains(&tokens) {
            return None;
        }
        let window = LearnedWindow { tokens, is_stated, known_tokens: target.window_tokens };
        self.accounting.learn_window(&target.model, window);
        self.accounting.use_model(target.model.clone(), tokens);
        self.store_accounting(target);
        Some(window)
    }
}

/// An answer and the end of its request.
#[derive(Debug)]
struct LastAnswer {
    /// The last entry of the request.
    last_id: String,
    usage: TokenUsage,
}

impl LastAnswer {
    /// An answer to a request with all entries of `view`.
    fn new(view: &Transcript, usage: TokenUsage) -> Option<LastAnswer> {
        Some(LastAnswer { last_id: view.last()?.id().to_owned(), usage })
    }

    /// Whether it answers the last request of a turn: only assistant entries follow the request.
    fn is_final_in(&self, view: &Transcript, turn: &Range<u64>) -> bool {
        let entries = view.iter().filter(|entry| turn.contains(&entry.seq()));
        let mut rest = entries.skip_while(|entry| entry.id() != self.last_id);
        rest.next().is_some() && rest.all(|entry| entry.role() == Role::Assistant)
    }
}

/// The entries from `first_id` until `next_id`; from the start if a compaction has folded the first.
fn entries_between(view: &Transcript, first_id: &str, next_id: Option<&str>) -> Range<u64> {
    let seq = |id: &str| view.iter().rev().find(|entry| entry.id() == id).map(|entry| entry.seq());
    let next = next_id.and_then(seq).unwrap_or(view.len() as u64);
    seq(first_id).unwrap_or(0).min(next)..next
}
