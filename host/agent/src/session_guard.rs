//! One session in the hands of one driver: its context, its lock, and who is told what happens in it.
//!
//! ```text
//!  lock_session ─► append ─► prepare ─► write_out ─► (dropped; the model is asked) ─► record_answer | overflow ─► ...
//! ```
//!
//! A turn of this runtime and a host that asks the model itself hold the same guard, so canaries, shadows, events
//! and accounting are the same for both.

use std::mem;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::sync::OwnedMutexGuard;

use super::canary::metrics::TurnMetrics;
use super::client_session::CLIENT_SYNC;
use super::event::EventKind;
use super::reload::CanaryRecorder;
use super::runtime::{ActiveSession, RuntimeState, SessionCell};
use super::session_locks::SessionLock;
use super::turn::TurnError;
use ctxhost_context::overflow::Overflow;
use ctxhost_context::{
    Amendment, CompactionOutcome, CompactionVerdict, Context, Prompt, SentRequest, Target,
};
use ctxhost_dialects::ProviderError;
use ctxhost_dialects::message::{StopReason, TokenUsage};
use ctxhost_engine_api::{AssembleRequest, Transcript};
use ctxhost_history::{self as history, ForkPoint};
use ctxhost_provider::silent_truncation::SilentTruncation;
use ctxhost_session::{RecordBody, Session, SessionError};

/// The right to work in one session. Dropping it lets the next one in.
pub struct SessionGuard {
    state: Arc<RuntimeState>,
    cell: Arc<SessionCell>,
    lock: SessionLock,
    active: OwnedMutexGuard<ActiveSession>,
    /// Who wants to know how it goes, because a canary is on.
    watch: Option<CanaryRecorder>,
    metrics: TurnMetrics,
}

impl SessionGuard {
    /// The guard of a session whose lane is held.
    pub(crate) async fn new(
        shared: &Arc<RuntimeState>,
        held: &Arc<SessionCell>,
        lane: SessionLock,
    ) -> SessionGuard {
        let mut open = held.active.clone().lock_owned().await;
        let (engine, watch) = shared.engines.engine_for(&open.lineage);
        open.context.set_engine(engine);
        let (shared, held) = (shared.clone(), held.clone());
        SessionGuard {
            state: shared,
            cell: held,
            lock: lane,
            active: open,
            watch,
            metrics: TurnMetrics::default(),
        }
    }

    /// The conversation and what is known of it.
    pub fn context(&self) -> &Context {
        &self.active.context
    }

    /// The id of the session.
    pub fn session_id(&self) -> &str {
        self.lock.session_id()
    }

    /// Appends records that come at the end of the session, all now; answers their ids. They are in the file once
    /// [`write_out`](Self::write_out) or a compaction has written them.
    ///
    /// # Errors
    ///
    /// Where the session cannot be written any more; none of them is in it then.
    pub fn append(
        &mut self,
        bodies: impl IntoIterator<Item = RecordBody>,
    ) -> Result<Vec<String>, SessionError> {
        self.active.context.append(bodies)
    }

    /// The same behind an amendment: one write for both. Answers the ids of the records behind it.
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

    /// What the model could see now.
    pub fn view(&self) -> Transcript {
        self.active.context.view()
    }

    /// Writes what was appended; nobody need wait for it before the model is asked.
    ///
    /// # Errors
    ///
    /// Where the session cannot be written. It can be used again only when it is opened again.
    pub fn write_out(&mut self) -> Result<(), SessionError> {
        self.active.context.session_mut().write_out()
    }

    /// Closes the session. Whoever waits for it is told that it is not open.
    pub fn close(self) {
        self.state.close(self.lock.session_id());
    }

    /// Moves a session that is in memory into a file, which must not be there yet.
    ///
    /// # Errors
    ///
    /// Whatever the disk answers; the session stays in memory then.
    pub fn move_to_file(&mut self, path: &Path) -> Result<(), SessionError> {
        let live = self.active.context.session_mut();
        live.move_to_file(path, CLIENT_SYNC)?;
        let images = self.state.image_store(live.session());
        live.set_images(images);
        Ok(())
    }

    /// A session of its own, in memory, of all up to a moment. It names `parent` as the file it comes from.
    ///
    /// # Errors
    ///
    /// [`TurnError::History`] where there is no such moment.
    pub fn fork(&self, until: &ForkPoint, parent: &Path) -> Result<Session, TurnError> {
        let parent = parent.display().to_string();
        let now_ms = self.state.clock().now_ms();
        Ok(history::fork_session(self.active.context.session().session(), until, &parent, now_ms)?)
    }

    /// Goes on with what another session has learned of models.
    pub fn inherit(&mut self, accounting: ctxhost_context::accounting::TokenAccounting) {
        self.active.context.inherit_accounting(accounting);
    }

    /// Prepares the next prompt and tells everybody who wants to know of it.
    ///
    /// # Errors
    ///
    /// [`TurnError`]; the session is as it was, except for compactions that were applied.
    pub fn prepare<'a>(
        &'a mut self,
        target: &'a Target,
    ) -> BoxFuture<'a, Result<Prompt, TurnError>> {
        Box::pin(async move {
            // Other sessions go on meanwhile: a compaction on the way may wait for a summary.
            let preparing = self.active.context.prepare(target);
            let prompt = self.lock.yield_permit_during(preparing).await;
            if let Ok(prompt) = &prompt {
                self.submit_to_shadows(target, prompt);
                self.measure_prompt(prompt);
                self.record_compactions(&prompt.compactions);
                let model = target.model.to_string();
                self.emit(EventKind::from_prompt(prompt, prompt.budget_tokens, model));
            }
            self.report_metrics();
            Ok(prompt?)
        })
    }

    /// Compacts because somebody asked for it. The last outcome says how it ended.
    ///
    /// # Errors
    ///
    /// [`TurnError`]; the session is as it was.
    pub fn compact<'a>(
        &'a mut self,
        target: &'a Target,
        focus: Option<&'a str>,
    ) -> BoxFuture<'a, Result<Vec<CompactionOutcome>, TurnError>> {
        Box::pin(async move {
            // A summary is a model call too, and may take as long.
            let compacting = self.active.context.compact(target, focus);
            let outcomes = self.lock.yield_permit_during(compacting).await;
            if let Ok(outcomes) = &outcomes {
                self.record_compactions(outcomes);
            }
            self.report_metrics();
            Ok(outcomes?)
        })
    }

    /// Learns from what the provider counted for a request, and says so where it has not read all of that.
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

    /// A client's request was answered: it had `sent_tokens` of the conversation, as entries count.
    pub fn record_answer(&mut self, target: &Target, sent_tokens: u64, usage: &TokenUsage) {
        let sent = self.active.context.sent_request(target, sent_tokens);
        self.record_usage(target, &sent, usage, StopReason::Stop);
        self.state.models.record_accepted_prompt(&target.model, usage.prompt_tokens());
        self.emit(EventKind::Answered { usage: *usage });
        self.report_metrics();
    }

    /// A client's request that had `sent_tokens` of the conversation was refused as too large. Makes `target` smaller;
    /// `None` where the refusal is not believed.
    pub fn overflow(
        &mut self,
        target: &mut Target,
        sent_tokens: u64,
        failure: &ProviderError,
    ) -> Option<Overflow> {
        let sent = self.active.context.sent_request(target, sent_tokens);
        if !self.active.context.is_plausible_overflow(target, &sent, failure) {
            return None;
        }
        let overflow = self.active.context.overflow(target, &sent, failure);
        if !failure.is_ceiling {
            let (session, models) = (self.lock.session_id(), &self.state.models);
            let thought = (&target.model, target.window_tokens);
            models.record_refusal(thought, session, failure, overflow.refused_tokens);
        }
        self.emit(EventKind::recovering(failure, "made smaller"));
        self.report_metrics();
        Some(overflow)
    }

    /// A client's turn has ended: it began with the record `first_id` and the next one with `next_id`. The engine is
    /// told.
    ///
    /// # Errors
    ///
    /// [`TurnError`] of the engine.
    pub fn end_turn<'a>(
        &'a mut self,
        target: &'a Target,
        first_id: &'a str,
        next_id: &'a str,
    ) -> BoxFuture<'a, Result<(), TurnError>> {
        Box::pin(async move {
            let ended = self.active.context.end_turn(target, first_id, Some(next_id)).await;
            if ended.is_ok() {
                self.emit(EventKind::TurnEnded);
            }
            self.measure_turn(ended.is_err());
            Ok(ended?)
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

    /// Gives the session back and keeps its lane.
    pub(crate) fn into_lock(self) -> (Arc<SessionCell>, SessionLock) {
        (self.cell, self.lock)
    }

    /// Tells whoever listens.
    pub(crate) fn emit(&self, what: EventKind) {
        self.state.emit(self.lock.session_id(), what);
    }

    /// A turn that outlives the time its engine had to finish goes on with the one that serves now.
    pub(crate) fn refresh_engine(&mut self) {
        if !self.active.context.engine().is_retired() {
            return;
        }
        self.report_metrics();
        let (engine, watch) = self.state.engines.engine_for(&self.active.lineage);
        tracing::warn!(engine = engine.configured_id(), "a long turn goes on with another engine");
        self.active.context.set_engine(engine);
        self.watch = watch;
    }

    /// The turn is over.
    pub(crate) fn measure_turn(&mut self, failed: bool) {
        self.metrics.turns += 1;
        self.metrics.failed_turns += u64::from(failed);
        self.report_metrics();
    }

    /// Reports how the engine did so far, where a canary is on.
    pub(crate) fn report_metrics(&mut self) {
        let figures = mem::take(&mut self.metrics);
        let Some(watch) = &self.watch else { return };
        let session = self.lock.session_id().to_owned();
        let figures = TurnMetrics { session, at_ms: self.state.clock().now_ms(), ..figures };
        self.state.engines.record_turn(watch, self.active.context.engine(), figures);
    }

    fn measure_prompt(&mut self, prompt: &Prompt) {
        let compacting: Duration = prompt.compactions.iter().map(|outcome| outcome.took).sum();
        let took = prompt.took.saturating_sub(compacting);
        self.metrics.engine_us.push(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
        self.metrics.repairs += prompt.checked.repairs.len() as u64;
        self.metrics.fallbacks += u64::from(prompt.fallback.is_some());
    }

    /// Compactions were tried.
    fn record_compactions(&mut self, outcomes: &[CompactionOutcome]) {
        for outcome in outcomes {
            match outcome.verdict {
                CompactionVerdict::Applied => {
                    self.metrics.compactions += 1;
                    if let Some(survival) = &outcome.retention {
                        self.metrics.survival.add(survival);
                    }
                    self.state.cached_prefixes.forget(self.lock.session_id());
                }
                CompactionVerdict::Rejected { .. } => self.metrics.rejected += 1,
                CompactionVerdict::NotTried { .. } => {}
            }
            self.emit(EventKind::Compaction(outcome.clone().into()));
        }
    }

    /// Lets engines in the shadow see what the active one was asked. Nobody waits for them.
    fn submit_to_shadows(&mut self, target: &Target, prompt: &Prompt) {
        let shared = self.state.clone();
        let Some(shadows) = &shared.shadows else { return };
        let context = &mut self.active.context;
        let budget = context.budget(target);
        let request = AssembleRequest {
            session: context.session().reference().clone(),
            budget: budget.tokens,
            reserve_tokens: budget.reserve_tokens,
            prompt: context.session().prompt(),
            model: context.model_ref(target),
            available_tools: target.tools.clone(),
            now_ms: shared.clock().now_ms(),
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
    use crate::testing::puppet::{heard, puppet};
    use crate::{RuntimeBuilder, SessionId};
    use ctxhost_config::Config;
    use ctxhost_models::ModelName;
    use ctxhost_session::{SessionHeader, SyncPolicy};

    #[tokio::test]
    async fn nobody_waits_for_the_disk_where_all_is_sent_again() {
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
        // Others' words come once, and last.
        runtime.close_session(&id).await;
        let id = runtime.adopt_session(Session::open(&path).unwrap()).unwrap();
        assert_eq!(policy(&id).await, Some(SyncPolicy::Always));
    }

    #[tokio::test]
    async fn the_engine_hears_what_a_turn_was_counted_as() {
        let folder = tempfile::tempdir().unwrap();
        let builder = RuntimeBuilder::from_config(&Config::default()).store_folder(folder.path());
        let builder = builder.engine_spec(puppet::<0>("counted", ""));
        let runtime = builder.build().await.unwrap();
        let id =
            runtime.attach_session(Session::in_memory(SessionHeader::new(None, "/", 1))).unwrap();
        let mut guard = runtime.lock_session(&id).await.unwrap();
        let model = ModelName::new("anthropic", "claude");
        let target = Target { model, window_tokens: 64_000, ..Target::default() };
        let person = || RecordBody::message(r#"{"role":"user","content":"word"}"#).unwrap();
        let tool = r#"{"role":"toolResult","toolCallId":"c","toolName":"t","content":"done"}"#;
        let ids = guard.append([person()]).unwrap();
        let mut first = ids[0].clone();
        let mut next_turn = async |guard: &mut SessionGuard, rest: &[&str]| {
            let rest = rest.iter().map(|message| RecordBody::message(message).unwrap());
            let ids = guard.append(rest.chain([person()])).unwrap();
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
        let told = heard("counted").into_iter().filter(|line| line.contains(" after "));
        let told: Vec<String> = told.map(|line| line.split(':').next().unwrap().into()).collect();
        // That of the last request, not of another turn, nor of a request before the last one.
        assert_eq!(told, ["first after 0..2 of 257", "first after 2..3", "first after 3..5"]);
    }
}
