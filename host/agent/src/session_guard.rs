//! Exclusive access to one session for a driver: its context, its lock, and the events it emits.
//!
//! ```text
//!  lock_session ─► append ─► prepare ─► write_out ─► (dropped during the model call) ─► record_answer | overflow ─► ...
//! ```
//!
//! The agent's turns and hosts that call the model themselves use the same guard, so canaries, shadow engines, events
//! and accounting work the same for both.

use std::mem;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;

use crate::canary::metrics::TurnMetrics;
use crate::engine_manager::canary::CanaryRecorder;
use crate::error::TurnError;
use crate::event::EventKind;
use crate::session_cell::{ActiveSession, SessionCell, SessionUse};
use crate::session_locks::SessionLock;
use crate::state::RuntimeState;
use ctxhost_context::overflow::Overflow;
use ctxhost_context::{
    Amendment, Budget, CompactionOutcome, CompactionVerdict, Context, Prompt, SentRequest, Target,
};
use ctxhost_dialects::ProviderError;
use ctxhost_dialects::message::{StopReason, TokenUsage};
use ctxhost_engine_api::{AssembleRequest, Transcript};
use ctxhost_history::{self as history, ForkPoint};
use ctxhost_provider::silent_truncation::SilentTruncation;
use ctxhost_session::{RecordBody, Session, SessionError, SyncPolicy};

/// Clients resend their whole history, so a turn does not wait for the disk: what was lost is sent again.
pub(crate) const CLIENT_SYNC: SyncPolicy = SyncPolicy::Os;

/// Where neither config nor provider states a model's window, an overflow is plausible from a share of this many provider tokens on,
/// instead of the assumed window: local servers often load a model with this much or less, and refuse without numbers.
const UNCERTAIN_WINDOW_TOKENS: u64 = 32_768;

/// Exclusive access to one session. Dropping it unlocks the session.
pub struct SessionGuard {
    state: Arc<RuntimeState>,
    cell: Arc<SessionCell>,
    lock: SessionLock,
    active: SessionUse,
    /// Records metrics while a canary is active.
    recorder: Option<CanaryRecorder>,
    metrics: TurnMetrics,
}

impl SessionGuard {
    /// The guard of a session whose lock the caller holds.
    pub(crate) async fn new(
        state: &Arc<RuntimeState>,
        cell: &Arc<SessionCell>,
        lock: SessionLock,
    ) -> SessionGuard {
        let (active, recorder) = SessionUse::begin(cell, &state.engines).await;
        let (state, cell) = (state.clone(), cell.clone());
        SessionGuard { state, cell, lock, active, recorder, metrics: TurnMetrics::default() }
    }

    /// The session's context.
    pub fn context(&self) -> &Context {
        &self.active.context
    }

    /// The budget of the next prompt.
    pub fn budget(&mut self, target: &Target) -> Budget {
        self.active.context.budget(target)
    }

    /// The id of the session.
    pub fn session_id(&self) -> &str {
        self.lock.session_id()
    }

    /// Appends records, all with the current time, and returns their ids. [`write_out`](Self::write_out) or a
    /// compaction writes them to the file.
    ///
    /// # Errors
    ///
    /// If the session cannot be written; none of them is appended.
    pub fn append(
        &mut self,
        bodies: impl IntoIterator<Item = RecordBody>,
    ) -> Result<Vec<String>, SessionError> {
        self.active.context.append(bodies)
    }

    /// Applies an amendment and appends records with one write. Returns the ids of the records.
    ///
    /// # Errors
    ///
    /// As [`append`](Self::append).
    pub fn amend(
        &mut self,
        amendment: Amendment,
        bodies: Vec<RecordBody>,
    ) -> Result<Vec<String>, SessionError> {
        let now_ms = self.state.clock().now_ms();
        self.active.context.session_mut().amend(amendment, bodies, now_ms)
    }

    /// The live transcript.
    pub fn view(&self) -> Transcript {
        self.active.context.view()
    }

    /// Writes appended records to the file. May run after the model call was started.
    ///
    /// # Errors
    ///
    /// If the session cannot be written. It must be reopened before further use.
    pub fn write_out(&mut self) -> Result<(), SessionError> {
        self.active.context.session_mut().write_out()
    }

    /// Closes the session. Waiters get [`TurnError::NoSession`].
    pub fn close(self) {
        self.state.close(self.lock.session_id());
    }

    /// Moves a session from memory to a new file.
    ///
    /// # Errors
    ///
    /// If the file exists or cannot be written; the session stays in memory.
    pub fn move_to_file(&mut self, path: &Path) -> Result<(), SessionError> {
        let live = self.active.context.session_mut();
        live.move_to_file(path, CLIENT_SYNC)?;
        // The image folder is beside the file, so it exists only now.
        let images = self.state.image_store(live.session());
        live.set_images(images);
        Ok(())
    }

    /// Forks the session in memory at a point. The fork names `parent` as its parent session's file.
    ///
    /// # Errors
    ///
    /// [`TurnError::History`] if the session has no such point.
    pub fn fork(&self, until: &ForkPoint, parent: &Path) -> Result<Session, TurnError> {
        let parent = parent.display().to_string();
        let now_ms = self.state.clock().now_ms();
        Ok(history::fork_session(self.active.context.session().session(), until, &parent, now_ms)?)
    }

    /// Takes over what another session has learned about models.
    pub fn inherit(&mut self, accounting: ctxhost_context::accounting::TokenAccounting) {
        self.active.context.inherit_accounting(accounting);
    }

    /// Prepares the next prompt, emits events and submits it to the shadow engines.
    ///
    /// # Errors
    ///
    /// [`TurnError`]; the session is unchanged except for applied compactions.
    pub fn prepare<'a>(
        &'a mut self,
        target: &'a Target,
    ) -> BoxFuture<'a, Result<Prompt, TurnError>> {
        Box::pin(async move {
            // Without the global permit: a compaction may wait for a summary from a model.
            let preparing = self.active.context.prepare(target);
            let prompt = self.lock.yield_permit_during(preparing).await;
            if let Ok(prompt) = &prompt {
                self.submit_to_shadows(target, prompt);
                self.record_prompt(prompt);
                self.record_compactions(&prompt.compactions);
                let model = target.model.to_string();
                self.emit(EventKind::from_prompt(prompt, prompt.budget_tokens, model));
            }
            self.report_metrics();
            Ok(prompt?)
        })
    }

    /// Compacts the session. The last outcome is the result; earlier ones are rejected attempts.
    ///
    /// # Errors
    ///
    /// [`TurnError`]; the session is unchanged.
    pub fn compact<'a>(
        &'a mut self,
        target: &'a Target,
        focus: Option<&'a str>,
    ) -> BoxFuture<'a, Result<Vec<CompactionOutcome>, TurnError>> {
        Box::pin(async move {
            // Without the global permit: the summary may be a model call.
            let compacting = self.active.context.compact(target, focus);
            let outcomes = self.lock.yield_permit_during(compacting).await;
            if let Ok(outcomes) = &outcomes {
                self.record_compactions(outcomes);
            }
            self.report_metrics();
            Ok(outcomes?)
        })
    }

    /// Learns from the usage that the provider reports; returns and emits a silent truncation.
    pub(crate) fn record_usage(
        &mut self,
        target: &Target,
        sent: &SentRequest,
        usage: &TokenUsage,
        stop: StopReason,
    ) -> Option<SilentTruncation> {
        let truncation = self.active.context.record_usage(target, sent, usage, stop);
        if let Some(truncation) = &truncation {
            self.emit(EventKind::SilentTruncation { message: truncation.to_string() });
        }
        truncation
    }

    /// Records the answer to a client's request that contained `sent_tokens` of the conversation, in estimated tokens.
    pub fn record_answer(&mut self, target: &Target, sent_tokens: u64, usage: &TokenUsage) {
        let sent = self.active.context.sent_request(target, sent_tokens);
        self.record_usage(target, &sent, usage, StopReason::Stop);
        self.state.models.record_accepted_prompt(&target.model, usage.prompt_tokens());
        self.report_answer(usage);
    }

    /// Reports an answer whose usage says nothing of the size of its request.
    pub fn report_answer(&mut self, usage: &TokenUsage) {
        self.emit(EventKind::Answered { usage: *usage });
        self.report_metrics();
    }

    /// Whether a request can have been too large for the window of its model.
    pub(crate) fn is_plausible_overflow(
        &self,
        target: &Target,
        sent: &SentRequest,
        failure: &ProviderError,
    ) -> bool {
        let mut target = target.clone();
        if !self.state.models.window(&target.model).is_certain {
            target.window_tokens = target.window_tokens.min(UNCERTAIN_WINDOW_TOKENS);
        }
        self.active.context.is_plausible_overflow(&target, sent, failure)
    }

    /// Handles a provider's refusal of a client's request as too large, with `sent_tokens` of the conversation, in estimated
    /// tokens, and `sent_bytes` in all: shrinks `target`. Returns `None` if the request cannot have been too large, or if
    /// no part of the conversation is what made it so.
    pub fn overflow(
        &mut self,
        target: &mut Target,
        (sent_tokens, sent_bytes): (u64, u64),
        failure: &ProviderError,
    ) -> Option<Overflow> {
        let sent = self.active.context.sent_request(target, sent_tokens);
        let sent = SentRequest { bytes: Some(sent_bytes), ..sent };
        if !self.is_plausible_overflow(target, &sent, failure) {
            return None;
        }
        let overflow = self.active.context.overflow(target, &sent, failure);
        if !overflow.is_smaller {
            return None;
        }
        // Neither a limit per minute nor one of bytes is a window.
        if !failure.is_ceiling && !failure.is_byte_limit {
            let (session, models) = (self.lock.session_id(), &self.state.models);
            let assumed = (&target.model, target.window_tokens);
            models.record_refusal(assumed, session, failure, overflow.refused_tokens);
        }
        self.emit(EventKind::recovering(failure, "made the request smaller"));
        self.report_metrics();
        Some(overflow)
    }

    /// Ends a client's turn, which began with the record `first_id`; the next one begins with `next_id`. Notifies the
    /// engine.
    pub fn end_turn<'a>(
        &'a mut self,
        target: &'a Target,
        first_id: &'a str,
        next_id: &'a str,
    ) -> BoxFuture<'a, Result<(), TurnError>> {
        Box::pin(async move {
            let outcome = self.active.context.end_turn(target, first_id, Some(next_id)).await;
            if outcome.is_ok() {
                self.emit(EventKind::TurnEnded);
            }
            self.record_turn(outcome.is_err());
            Ok(outcome?)
        })
    }

    pub(crate) fn state(&self) -> &Arc<RuntimeState> {
        &self.state
    }

    pub(crate) fn lock(&self) -> &SessionLock {
        &self.lock
    }

    pub(crate) fn active_mut(&mut self) -> &mut ActiveSession {
        &mut self.active
    }

    pub(crate) fn active(&self) -> &ActiveSession {
        &self.active
    }

    /// Releases the session and keeps its lock.
    pub(crate) fn into_lock(self) -> (Arc<SessionCell>, SessionLock) {
        (self.cell, self.lock)
    }

    pub(crate) fn emit(&self, kind: EventKind) {
        self.state.emit(self.lock.session_id(), kind);
    }

    /// Switches to the current engine if the turn's engine was replaced and its drain time is over.
    pub(crate) fn refresh_engine(&mut self) {
        if !self.active.context.engine().is_retired() {
            return;
        }
        self.report_metrics();
        let (engine, recorder) = self.state.engines.engine_for(&self.active.lineage);
        tracing::warn!(
            engine = engine.configured_id(),
            "the engine of a long turn was retired (swap.drain_ms); the turn continues with the current one"
        );
        self.active.context.set_engine(engine);
        self.recorder = recorder;
    }

    pub(crate) fn record_turn(&mut self, failed: bool) {
        self.metrics.turns += 1;
        self.metrics.failed_turns += u64::from(failed);
        self.report_metrics();
    }

    /// Records the metrics collected so far, if a canary is active.
    pub(crate) fn report_metrics(&mut self) {
        let metrics = mem::take(&mut self.metrics);
        let Some(recorder) = &self.recorder else { return };
        let session = self.lock.session_id().to_owned();
        let metrics = TurnMetrics { session, at_ms: self.state.clock().now_ms(), ..metrics };
        self.state.engines.record_turn(recorder, self.active.context.engine(), metrics);
    }

    fn record_prompt(&mut self, prompt: &Prompt) {
        // Compactions are measured on their own.
        let compacting: Duration = prompt.compactions.iter().map(|outcome| outcome.took).sum();
        let took = prompt.took.saturating_sub(compacting);
        self.metrics.engine_us.push(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
        self.metrics.repairs += prompt.checked.repairs.len() as u64;
        self.metrics.fallbacks += u64::from(prompt.fallback.is_some());
    }

    fn record_compactions(&mut self, outcomes: &[CompactionOutcome]) {
        for outcome in outcomes {
            match outcome.verdict {
                CompactionVerdict::Applied => {
                    self.metrics.compactions += 1;
                    if let Some(retention) = &outcome.retention {
                        self.metrics.retention.add(retention);
                    }
                    // The next request starts differently.
                    self.state.cached_prefixes.forget(self.lock.session_id());
                }
                CompactionVerdict::Rejected { .. } => self.metrics.rejected += 1,
                CompactionVerdict::NotTried { .. } => {}
            }
            self.emit(EventKind::Compaction(outcome.clone().into()));
        }
    }

    fn submit_to_shadows(&mut self, target: &Target, prompt: &Prompt) {
        let state = self.state.clone();
        let Some(shadows) = &state.shadows else { return };
        let context = &mut self.active.context;
        let budget = context.budget(target);
        let request = AssembleRequest {
            session: context.session().reference().clone(),
            budget: budget.tokens,
            reserve_tokens: budget.reserve_tokens,
            prompt: context.session().prompt(),
            model: context.model_ref(target),
            available_tools: target.tools.clone(),
            now_ms: state.clock().now_ms(),
            ..AssembleRequest::default()
        };
        shadows.submit(request, prompt);
    }
}

impl std::fmt::Debug for SessionGuard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SessionGuard")
            .field("session", &self.lock.session_id())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::scripted_engine::{calls, scripted_engine};
    use crate::{RuntimeBuilder, SessionId};
    use ctxhost_config::Config;
    use ctxhost_models::ModelName;
    use ctxhost_session::{SessionHeader, SyncPolicy};

    #[tokio::test]
    async fn client_sessions_do_not_wait_for_the_disk() {
        let folder = tempfile::tempdir().unwrap();
        let builder =
            RuntimeBuilder::from_config(&Config::default()).store_folder(folder.path().join("e"));
        let runtime = builder.build().await.unwrap();
        let path = folder.path().join("s.jsonl");
        let policy = async |id: &SessionId| {
            let guard = runtime.lock_session(id).await.unwrap();
            guard.context().session().session().sync_policy()
        };
        let id =
            runtime.attach_session(Session::in_memory(SessionHeader::new(None, "/", 1))).unwrap();
        assert_eq!(policy(&id).await, None);
        runtime.lock_session(&id).await.unwrap().move_to_file(&path).unwrap();
        assert_eq!(policy(&id).await, Some(SyncPolicy::Os));
        runtime.close_session(&id).await;
        let id = runtime.attach_session(Session::open(&path).unwrap()).unwrap();
        assert_eq!(policy(&id).await, Some(SyncPolicy::Os));
        // Messages of other senders are not resent, so appends are durable again.
        runtime.close_session(&id).await;
        let id = runtime.adopt_session(Session::open(&path).unwrap()).unwrap();
        assert_eq!(policy(&id).await, Some(SyncPolicy::Always));
    }

    #[tokio::test]
    async fn end_turn_reports_the_usage_of_the_last_request() {
        let folder = tempfile::tempdir().unwrap();
        let builder = RuntimeBuilder::from_config(&Config::default()).store_folder(folder.path());
        let builder = builder.engine_spec(scripted_engine::<0>("counted", ""));
        let runtime = builder.build().await.unwrap();
        let id =
            runtime.attach_session(Session::in_memory(SessionHeader::new(None, "/", 1))).unwrap();
        let mut guard = runtime.lock_session(&id).await.unwrap();
        let model = ModelName::new("anthropic", "claude");
        let target = Target { model, window_tokens: 64_000, ..Target::default() };
        let user = || RecordBody::message(r#"{"role":"user","content":"word"}"#).unwrap();
        let tool = r#"{"role":"toolResult","toolCallId":"c","toolName":"t","content":"done"}"#;
        let ids = guard.append([user()]).unwrap();
        let mut first = ids[0].clone();
        let mut next_turn = async |guard: &mut SessionGuard, rest: &[&str]| {
            let rest = rest.iter().map(|message| RecordBody::message(message).unwrap());
            let ids = guard.append(rest.chain([user()])).unwrap();
            let next = ids.last().unwrap().clone();
            guard.end_turn(&target, &first, &next).await.unwrap();
            first = next;
        };
        let usage = |input: u64| TokenUsage { input, cache_read: 7, ..TokenUsage::default() };
        guard.record_answer(&target, 10, &usage(100));
        guard.record_answer(&target, 10, &usage(250));
        next_turn(
            &mut guard,
            &[r#"{"role":"assistant","content":[{"type":"text","text":"yes"}]}"#],
        )
        .await;
        next_turn(&mut guard, &[]).await;
        guard.record_answer(&target, 10, &usage(300));
        next_turn(&mut guard, &[tool]).await;
        let after = calls("counted").into_iter().filter(|line| line.contains(" after "));
        let after: Vec<String> = after.map(|line| line.split(':').next().unwrap().into()).collect();
        // The usage of the turn's last request; none for a turn without an answer at its end.
        assert_eq!(after, ["first after 0..2 of 257", "first after 2..3", "first after 3..5"]);
    }
}
