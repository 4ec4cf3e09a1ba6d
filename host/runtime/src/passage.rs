//! A session in the hands of a host that asks the model itself: words come in, the shape of a request
//! goes out.
//!
//! ```text
//!  enter ─► append ─► shape ─► write_out ─► (leave; the model is asked) ─► answered | refused ─► ...
//! ```
//!
//! A [`Passage`] holds the lane of its session, so what happens in two of them happens one after the
//! other. What a turn does is done here by the same code: canaries, shadows, the law, recovery from what a
//! provider refuses, accounting and events.

use futures_util::future::BoxFuture;
use std::path::Path;
use std::sync::Arc;

use ctxhost_engine_api::{Transcript, Trigger};
use tokio::runtime::Handle;

use super::accounting::{Accounting, Counted, LearnedWindow};
use super::agent::{HeldSession, Runtime, SessionId, Shared};
use super::compaction::CompactionOutcome;
use super::conversation::{Amendment, Conversation};
use super::lane::LaneGuard;
use super::model_name::ModelName;
use super::request::Shaped;
use super::turn::{Answered, Guest, Turn, TurnError};
use ctxhost_config::WindowHints;
use ctxhost_dialects::ProviderError;
use ctxhost_dialects::message::Usage;
use ctxhost_history::{self as history, Until};
use ctxhost_session::{RecordBody, Session, SessionError, SyncPolicy};

/// Nobody waits for the disk: what it had not got, its owner sends again.
const OF_GUESTS: SyncPolicy = SyncPolicy::Os;

/// The right to work in one session whose model somebody else asks. Dropping it lets the next one in.
pub struct Passage {
    shared: Arc<Shared>,
    held: Arc<HeldSession>,
    lane: LaneGuard,
}

/// A request that was shaped.
#[derive(Debug)]
pub struct Passed {
    /// It, and the truth about it.
    pub shaped: Shaped,
    /// What it could take, as entries count.
    pub budget_tokens: u64,
    /// The window of its model, in provider tokens: as it was given, or as it was learned.
    pub window_tokens: u64,
}

impl Runtime {
    /// Waits until a session is free. No model need be configured for it.
    ///
    /// # Errors
    ///
    /// [`TurnError::NoSession`], or where another machine cannot be waited for.
    pub fn enter<'a>(
        &'a self,
        session: &'a SessionId,
    ) -> BoxFuture<'a, Result<Passage, TurnError>> {
        Box::pin(async move {
            let shared = self.shared().clone();
            let held = shared.session(session)?;
            let lane = shared.enter(session, &held).await?;
            Ok(Passage { shared, held, lane })
        })
    }

    /// Takes over a session of somebody who has all of it and sends it again, so that no append need be
    /// waited for. One in memory is put on a disk by [`Passage::keep_in`].
    ///
    /// # Errors
    ///
    /// As [`Runtime::adopt_session`].
    pub fn adopt_guest(&self, session: Session) -> Result<SessionId, TurnError> {
        let mut session = session.with_sync(OF_GUESTS);
        session.write_behind();
        Ok(self.shared().take_in_synced(session, None)?)
    }

    /// Does something while nobody waits for it; [`Runtime::finish`] does. A program whose threads have ended does no
    /// more.
    pub fn in_background(&self, work: impl Future<Output = ()> + Send + 'static) {
        if let Ok(threads) = Handle::try_current() {
            self.shared().background.spawn_on(work, &threads);
        }
    }

    /// Now, in milliseconds since 1970, by the clock of this runtime.
    pub fn now_ms(&self) -> i64 {
        self.shared().clock.now_ms()
    }

    /// What refusals and the provider have taught of a model's window, for all sessions of guests.
    pub fn window_hints(&self, provider: &str, model: &str) -> WindowHints {
        self.shared().guest_windows.hints(&ModelName::new(provider, model))
    }

    /// A provider states the window of a model, in provider tokens.
    pub fn state_window(&self, provider: &str, model: &str, tokens: u64) {
        self.shared().guest_windows.state(&ModelName::new(provider, model), tokens);
    }
}

impl Passage {
    /// Appends records that come at the end of the session, all now; answers their ids and what is live
    /// then. A future that is dropped has appended none of them. They are in the file once
    /// [`write_out`](Self::write_out) or a compaction has written them.
    ///
    /// # Errors
    ///
    /// Where the session cannot be written any more; none of them is in it then.
    pub async fn append(
        &self,
        bodies: impl IntoIterator<Item = RecordBody>,
    ) -> Result<(Vec<String>, Transcript), SessionError> {
        let now_ms = self.shared.clock.now_ms();
        let mut open = self.held.open.lock().await;
        let before = open.conversation.view().len() as u64;
        let ids = open.conversation.hear_all(bodies, now_ms)?;
        self.shared.known.grew_from(&open.conversation, before);
        Ok((ids, open.conversation.view()))
    }

    /// The same behind an amendment: one write for both. Answers the ids of the records behind it.
    ///
    /// # Errors
    ///
    /// As [`append`](Self::append).
    pub async fn amend(
        &self,
        amendment: Amendment,
        bodies: Vec<RecordBody>,
    ) -> Result<(Vec<String>, Transcript), SessionError> {
        let now_ms = self.shared.clock.now_ms();
        let mut open = self.held.open.lock().await;
        let ids = open.conversation.amend(amendment, bodies, now_ms)?;
        self.shared.known.opened(open.conversation.session());
        Ok((ids, open.conversation.view()))
    }

    /// What this session has learned of models: their windows, and how they count.
    pub async fn accounting(&self) -> Accounting {
        self.held.open.lock().await.accounting.clone()
    }

    /// Goes on with what another session has learned.
    pub async fn inherit(&self, accounting: Accounting) {
        self.held.open.lock().await.accounting = accounting;
    }

    /// Writes what was appended; nobody need wait for it before the model is asked.
    ///
    /// # Errors
    ///
    /// Where the session cannot be written. It can be gone on with only when it is opened again.
    pub fn write_out<'a>(&'a self) -> BoxFuture<'a, Result<(), SessionError>> {
        Box::pin(async move { self.held.open.lock().await.conversation.session.write_out() })
    }

    /// Closes the session. Whoever waits for it is told that it is not open.
    pub fn close(self) {
        self.shared.close(self.lane.session_id());
    }

    /// The id of the session.
    pub fn session_id(&self) -> &str {
        self.lane.session_id()
    }

    /// Has the next request shaped.
    ///
    /// # Errors
    ///
    /// [`TurnError`]; the session is as it was, except for compactions that were applied.
    pub fn shape<'a>(&'a self, guest: &'a Guest) -> BoxFuture<'a, Result<Passed, TurnError>> {
        Box::pin(async move {
            let mut open = self.held.open.lock().await;
            let mut turn = Turn::of_guest(guest, &self.shared, &self.lane, &mut open);
            let outcome = turn.shape_for_guest(guest).await;
            turn.report();
            let window_tokens = turn.window_tokens();
            let shaped = outcome?;
            Ok(Passed { budget_tokens: shaped.budget_tokens, shaped, window_tokens })
        })
    }

    /// Compacts because somebody asked for it. The last outcome says how it ended.
    ///
    /// # Errors
    ///
    /// [`TurnError`]; the session is as it was.
    pub fn compact<'a>(
        &'a self,
        guest: &'a Guest,
    ) -> BoxFuture<'a, Result<Vec<CompactionOutcome>, TurnError>> {
        Box::pin(async move {
            let mut open = self.held.open.lock().await;
            let mut turn = Turn::of_guest(guest, &self.shared, &self.lane, &mut open);
            let outcomes = turn.compact(Trigger::Manual, None).await;
            turn.report();
            outcomes
        })
    }

    /// Takes in what the provider counted for a request that had `sent_tokens` of the conversation.
    pub fn answered<'a>(
        &'a self,
        guest: &'a Guest,
        sent_tokens: u64,
        usage: &'a Usage,
    ) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let mut open = self.held.open.lock().await;
            open.answered = Answered::behind(&open.conversation.view(), *usage);
            let mut turn = Turn::of_guest(guest, &self.shared, &self.lane, &mut open);
            turn.guest_answered(guest, sent_tokens, usage);
            turn.report();
        })
    }

    /// Takes in that the provider found such a request too large: its count and its limit are believed.
    pub fn refused<'a>(
        &'a self,
        guest: &'a Guest,
        sent_tokens: u64,
        failure: &'a ProviderError,
    ) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let mut open = self.held.open.lock().await;
            let mut turn = Turn::of_guest(guest, &self.shared, &self.lane, &mut open);
            turn.guest_refused(guest, sent_tokens, failure);
            turn.report();
        })
    }

    /// A turn has ended: it began with the record `first_id` and the next one with `next_id`. The engine is
    /// told.
    ///
    /// # Errors
    ///
    /// [`TurnError`] of the engine.
    pub fn ended<'a>(
        &'a self,
        guest: &'a Guest,
        first_id: &'a str,
        next_id: &'a str,
    ) -> BoxFuture<'a, Result<(), TurnError>> {
        Box::pin(async move {
            let mut open = self.held.open.lock().await;
            let answered = open.answered.take();
            let mut turn = Turn::of_guest(guest, &self.shared, &self.lane, &mut open);
            let outcome = turn.guest_ended(first_id, next_id, answered).await;
            turn.ended(outcome.is_err());
            outcome
        })
    }

    /// Puts a session that is in memory into a file, which must not be there yet.
    ///
    /// # Errors
    ///
    /// Whatever the disk answers; the session stays in memory then.
    pub fn keep_in<'a>(&'a self, path: &'a Path) -> BoxFuture<'a, Result<(), SessionError>> {
        Box::pin(async move {
            let mut open = self.held.open.lock().await;
            open.conversation.keep_in(path, OF_GUESTS)?;
            self.shared.known.opened(open.conversation.session());
            let images = self.shared.images_of(open.conversation.session());
            open.conversation.use_images(images);
            Ok(())
        })
    }

    /// A session of its own, in memory, of all up to a moment. It names `parent` as the file it comes from.
    ///
    /// # Errors
    ///
    /// [`TurnError::History`] where there is no such moment.
    pub fn fork<'a>(
        &'a self,
        until: &'a Until,
        parent: &'a Path,
    ) -> BoxFuture<'a, Result<Session, TurnError>> {
        Box::pin(async move {
            let open = self.held.open.lock().await;
            let parent = parent.display().to_string();
            let now_ms = self.shared.clock.now_ms();
            Ok(history::fork(open.conversation.session(), until, &parent, now_ms)?)
        })
    }

    /// The window of a model as this session has learned it, where that is smaller than it was said to be.
    pub async fn learned_window(&self, model: &ModelName) -> Option<LearnedWindow> {
        self.held.open.lock().await.accounting.learned_window(model)
    }

    /// What so many estimated tokens will probably be counted as by the model that the last request was
    /// shaped for, in provider tokens.
    pub async fn expected_tokens(&self, estimated_tokens: u64) -> u64 {
        let open = self.held.open.lock().await;
        open.accounting.expected(Counted::estimated(estimated_tokens))
    }

    /// What so many estimated tokens are not counted above, but for one request in ten, in provider tokens.
    pub async fn upper_tokens(&self, estimated_tokens: u64) -> u64 {
        let open = self.held.open.lock().await;
        open.accounting.upper(Counted::estimated(estimated_tokens))
    }

    /// Looks at the conversation.
    pub async fn look<T>(&self, look: impl FnOnce(&Conversation) -> T) -> T {
        look(&self.held.open.lock().await.conversation)
    }
}

impl std::fmt::Debug for Passage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Passage").field("session", &self.lane.session_id()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RuntimeBuilder;
    use crate::testing::puppet::{heard, puppet};
    use ctxhost_config::Config;
    use ctxhost_session::Header;

    #[tokio::test]
    async fn nobody_waits_for_the_disk_where_all_is_sent_again() {
        let folder = tempfile::tempdir().unwrap();
        let builder = RuntimeBuilder::of(&Config::default()).store_folder(folder.path().join("e"));
        let runtime = builder.build().await.unwrap();
        let path = folder.path().join("s.jsonl");
        let policy = async |id: &SessionId| {
            let passage = runtime.enter(id).await.unwrap();
            passage.look(|it| it.session().sync_policy()).await
        };
        let id = runtime.adopt_guest(Session::in_memory(Header::new(None, "/", 1))).unwrap();
        assert_eq!(policy(&id).await, None);
        runtime.enter(&id).await.unwrap().keep_in(&path).await.unwrap();
        assert_eq!(policy(&id).await, Some(SyncPolicy::Os));
        runtime.close_session(&id).await;
        let id = runtime.adopt_guest(Session::open(&path).unwrap()).unwrap();
        assert_eq!(policy(&id).await, Some(SyncPolicy::Os));
        // Others' words come once, and last.
        runtime.close_session(&id).await;
        let id = runtime.adopt_session(Session::open(&path).unwrap()).unwrap();
        assert_eq!(policy(&id).await, Some(SyncPolicy::Always));
    }

    #[tokio::test]
    async fn the_engine_hears_what_a_turn_was_counted_as() {
        let folder = tempfile::tempdir().unwrap();
        let builder = RuntimeBuilder::of(&Config::default()).store_folder(folder.path());
        let builder = builder.engine_spec(puppet::<0>("counted", ""));
        let runtime = builder.build().await.unwrap();
        let id = runtime.adopt_guest(Session::in_memory(Header::new(None, "/", 1))).unwrap();
        let passage = runtime.enter(&id).await.unwrap();
        let guest = Guest {
            model: ModelName::new("anthropic", "claude"),
            window_tokens: 64_000,
            reserve_tokens: None,
            output_tokens: 0,
            overhead_tokens: 0,
            cap_tokens: None,
            trigger: Trigger::Threshold,
            is_mid_turn: false,
            only_fits: false,
        };
        let person = || RecordBody::message(r#"{"role":"user","content":"word"}"#).unwrap();
        let tool = r#"{"role":"toolResult","toolCallId":"c","toolName":"t","content":"done"}"#;
        let (ids, _) = passage.append([person()]).await.unwrap();
        let mut first = ids[0].clone();
        let mut next_turn = async |rest: &[&str]| {
            let rest = rest.iter().map(|message| RecordBody::message(message).unwrap());
            let (ids, _) = passage.append(rest.chain([person()])).await.unwrap();
            let next = ids.last().unwrap().clone();
            passage.ended(&guest, &first, &next).await.unwrap();
            first = next;
        };
        let usage = |input: u64| Usage { input, cache_read: 7, ..Usage::default() };
        passage.answered(&guest, 10, &usage(100)).await;
        passage.answered(&guest, 10, &usage(250)).await;
        next_turn(&[r#"{"role":"assistant","content":[{"type":"text","text":"yes"}]}"#]).await;
        next_turn(&[]).await;
        passage.answered(&guest, 10, &usage(300)).await;
        next_turn(&[tool]).await;
        let told = heard("counted").into_iter().filter(|line| line.contains(" after "));
        let told: Vec<String> = told.map(|line| line.split(':').next().unwrap().into()).collect();
        // That of the last request, not of another turn, nor of a request before the last one.
        assert_eq!(told, ["first after 0..2 of 257", "first after 2..3", "first after 3..5"]);
    }
}
