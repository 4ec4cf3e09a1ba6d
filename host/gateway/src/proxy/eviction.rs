//! Conversations leave memory: each is put into a file and closed first.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use tokio::task::yield_now;

use super::blocking_pool::run_blocking;
use super::core::Proxy;
use crate::conversations::{Conversation, EvictedConversation};
use ctxhost_agent::SessionGuard;
use ctxhost_session::SessionFolder;

/// How often the gateway looks for idle conversations, in milliseconds.
const SCAN_INTERVAL_MS: i64 = 1_000;

/// How long a disk is left alone that has taken no conversation, in milliseconds.
const BACKOFF_MS: i64 = 5_000;

/// Whether somebody puts conversations away, and when they are looked for again.
#[derive(Debug, Default)]
pub(super) struct EvictionState {
    is_running: AtomicBool,
    next_scan_ms: AtomicI64,
    /// Before this nothing is tried.
    backoff_until_ms: AtomicI64,
}

/// Its end.
struct EvictionRun<'a>(&'a EvictionState);

impl Drop for EvictionRun<'_> {
    fn drop(&mut self) {
        self.0.is_running.store(false, Ordering::Release);
    }
}

impl Proxy {
    /// Has conversations put away that nobody goes on with, and the oldest where there are too many. Nobody waits for
    /// it.
    pub(super) fn start_eviction(self: &Arc<Self>) {
        let (now_ms, tidying) = (self.runtime.now_ms(), &self.eviction);
        let is_due = now_ms >= tidying.next_scan_ms.load(Ordering::Relaxed);
        let rests = now_ms < tidying.backoff_until_ms.load(Ordering::Relaxed);
        if rests || !is_due && !self.conversations.is_crowded() {
            return;
        }
        if tidying.is_running.swap(true, Ordering::Acquire) {
            return;
        }
        tidying.next_scan_ms.store(now_ms.saturating_add(SCAN_INTERVAL_MS), Ordering::Relaxed);
        let desk = self.clone();
        // One of them may have tens of thousands of messages to write, and the disk may be slow.
        self.runtime.spawn_background(run_blocking(async move {
            let _run = EvictionRun(&desk.eviction);
            desk.evict_idle(now_ms).await;
        }));
    }

    async fn evict_idle(&self, now_ms: i64) {
        let idle_ms = i64::try_from(self.settings.conversation_idle_ms).unwrap_or(i64::MAX);
        for (thread, is_one_too_many) in
            self.conversations.eviction_candidates(now_ms.saturating_sub(idle_ms))
        {
            if !self.evict(&thread, is_one_too_many).await && !self.conversations.is_overcrowded() {
                let until_ms = self.runtime.now_ms().saturating_add(BACKOFF_MS);
                self.eviction.backoff_until_ms.store(until_ms, Ordering::Relaxed);
                return;
            }
            drop(thread);
            yield_now().await;
        }
    }

    /// Puts a conversation into its file, closes that, and forgets the rest of it. `false` where the disk does not take
    /// it.
    async fn evict(&self, thread: &Arc<Conversation>, is_one_too_many: bool) -> bool {
        // Whoever asks for it meanwhile waits, and opens the file again.
        let _closing = thread.lock_opening().await;
        let Some(session) = thread.open_session_id() else {
            self.conversations.evict(thread, None);
            return true;
        };
        let Ok(mut guard) = self.runtime.lock_session(&session).await else {
            self.conversations.invalidate(thread);
            return true;
        };
        if !self.persist_session(thread, &mut guard).await {
            if self.conversations.is_overcrowded() {
                self.conversations.forget(thread);
                drop(guard);
                self.runtime.close_session(&session).await;
            }
            return false;
        }
        let is_written = guard.write_out().is_ok();
        let learned = guard.context().accounting().clone();
        if !self.conversations.close_if_idle(thread) {
            return true;
        }
        drop(guard);
        self.runtime.close_session(&session).await;
        let left = EvictedConversation {
            last_request: thread.state().last_request,
            learned,
            is_over_limit: is_one_too_many,
        };
        self.conversations.evict(thread, is_written.then_some(left));
        true
    }

    /// Closes the session of a conversation whose request is on its way, where more sessions are open than conversations
    /// stay in memory. It is opened again when the request is answered.
    pub(super) async fn close_in_flight(
        &self,
        thread: &Arc<Conversation>,
        mut guard: SessionGuard,
    ) {
        if self.runtime.open_sessions() <= self.settings.conversations {
            return;
        }
        // Whoever opens or closes it now goes first.
        let Some(_closing) = thread.try_lock_opening() else { return };
        if !self.persist_session(thread, &mut guard).await || guard.write_out().is_err() {
            return;
        }
        let learned = guard.context().accounting().clone();
        self.conversations.close_session(thread, learned);
        guard.close();
    }

    /// Puts a conversation into a file, where it is in none; whether it is in one. It goes on in memory where that fails.
    pub(super) async fn persist_session(
        &self,
        thread: &Arc<Conversation>,
        guard: &mut SessionGuard,
    ) -> bool {
        let key = thread.key();
        if !thread.state().is_persisted {
            let made = SessionFolder::from_path(&self.conversations.folder(key)).create();
            let kept = match made {
                Ok(()) => guard.move_to_file(&self.conversations.path(key, thread.id())),
                Err(error) => Err(error),
            };
            if let Err(error) = kept {
                let session = thread.id();
                tracing::warn!(session, %error, "a conversation is in memory only");
                return false;
            }
            thread.state().is_persisted = true;
        }
        if thread.state().is_unindexed() {
            self.conversations.index(key, thread);
        }
        true
    }

    /// Puts all conversations into files that are in none.
    pub(super) async fn persist_all(&self) {
        for thread in self.conversations.unpersisted() {
            if let Some(session) = thread.open_session_id()
                && let Ok(mut guard) = self.runtime.lock_session(&session).await
                && !self.persist_session(&thread, &mut guard).await
            {
                return;
            }
        }
    }

    /// A conversation cannot be gone on with as it is in memory.
    pub(super) fn invalidate(&self, thread: &Arc<Conversation>) {
        let open = thread.open_session_id();
        self.conversations.invalidate(thread);
        self.close_sessions(open.into_iter().collect());
    }
}
