//! Evicts conversations from memory: each is persisted and its session closed first.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use tokio::task::yield_now;

use super::blocking_pool::run_blocking;
use super::core::Proxy;
use ctxhost_agent::SessionGuard;
use ctxhost_conversations::{Conversation, EvictedConversation};
use ctxhost_session::SessionFolder;

/// The interval between scans for idle conversations, in milliseconds.
const SCAN_INTERVAL_MS: i64 = 1_000;

/// The pause after a failed write, in milliseconds.
const BACKOFF_MS: i64 = 5_000;

/// Whether an eviction runs, and when the next may start.
#[derive(Debug, Default)]
pub(super) struct EvictionState {
    is_running: AtomicBool,
    next_scan_ms: AtomicI64,
    backoff_until_ms: AtomicI64,
}

/// Marks an eviction as finished when dropped.
struct EvictionRun<'a>(&'a EvictionState);

impl Drop for EvictionRun<'_> {
    fn drop(&mut self) {
        self.0.is_running.store(false, Ordering::Release);
    }
}

impl Proxy {
    /// Starts a background eviction of idle conversations, and of the oldest if there are too many.
    pub(super) fn start_eviction(self: &Arc<Self>) {
        let (now_ms, eviction) = (self.runtime.now_ms(), &self.eviction);
        let is_due = now_ms >= eviction.next_scan_ms.load(Ordering::Relaxed);
        let is_backing_off = now_ms < eviction.backoff_until_ms.load(Ordering::Relaxed);
        if is_backing_off || !is_due && !self.conversations.is_crowded() {
            return;
        }
        if eviction.is_running.swap(true, Ordering::Acquire) {
            return;
        }
        eviction.next_scan_ms.store(now_ms.saturating_add(SCAN_INTERVAL_MS), Ordering::Relaxed);
        let proxy = self.clone();
        // A conversation may have tens of thousands of messages to write.
        self.runtime.spawn_background(run_blocking(async move {
            let _run = EvictionRun(&proxy.eviction);
            proxy.evict_idle(now_ms).await;
        }));
    }

    async fn evict_idle(&self, now_ms: i64) {
        let idle_ms = i64::try_from(self.settings.conversation_idle_ms).unwrap_or(i64::MAX);
        let candidates = self.conversations.eviction_candidates(now_ms.saturating_sub(idle_ms));
        let is_empty = candidates.is_empty();
        for (conversation, is_over_limit) in candidates {
            if !self.evict(&conversation, is_over_limit).await
                && !self.conversations.is_overcrowded()
            {
                let until_ms = self.runtime.now_ms().saturating_add(BACKOFF_MS);
                self.eviction.backoff_until_ms.store(until_ms, Ordering::Relaxed);
                return;
            }
            drop(conversation);
            yield_now().await;
        }
        if is_empty && self.conversations.is_crowded() {
            // All are in use. Without a pause each request would scan them.
            let until_ms = self.runtime.now_ms().saturating_add(SCAN_INTERVAL_MS);
            self.eviction.backoff_until_ms.store(until_ms, Ordering::Relaxed);
        }
    }

    /// Persists a conversation, closes its session and removes it from memory. `false` if it cannot be written.
    async fn evict(&self, conversation: &Arc<Conversation>, is_over_limit: bool) -> bool {
        // A request that arrives meanwhile waits for this lock, and reopens the session.
        let _opening = conversation.lock_opening().await;
        let Some(session) = conversation.open_session_id() else {
            // It was closed with a request in flight.
            let evicted = {
                let state = conversation.state();
                let learned = state.learned.clone();
                let last_request = state.last_request;
                learned.map(|learned| EvictedConversation { last_request, learned, is_over_limit })
            };
            self.conversations.evict(conversation, evicted);
            return true;
        };
        let Ok(mut guard) = self.runtime.lock_session(&session).await else {
            self.conversations.invalidate(conversation);
            return true;
        };
        if !self.persist_session(conversation, &mut guard).await {
            if self.conversations.is_overcrowded() {
                self.conversations.forget(conversation);
                drop(guard);
                self.runtime.close_session(&session).await;
            }
            return false;
        }
        let is_written = guard.write_out().is_ok();
        let learned = guard.context().accounting().clone();
        // A request may have found the conversation while it was written.
        if !self.conversations.close_if_idle(conversation) {
            return true;
        }
        drop(guard);
        self.runtime.close_session(&session).await;
        let evicted = EvictedConversation {
            last_request: conversation.state().last_request,
            learned,
            is_over_limit,
        };
        self.conversations.evict(conversation, is_written.then_some(evicted));
        true
    }

    /// Closes the session of a conversation with a request in flight, if more sessions are open than
    /// `gateway.conversations`. It is reopened when the response arrives.
    pub(super) async fn close_in_flight(
        &self,
        conversation: &Arc<Conversation>,
        mut guard: SessionGuard,
    ) {
        if self.runtime.open_sessions() <= self.settings.conversations {
            return;
        }
        // Another task opens or closes it already.
        let Some(_opening) = conversation.try_lock_opening() else { return };
        if !self.persist_session(conversation, &mut guard).await || guard.write_out().is_err() {
            return;
        }
        let learned = guard.context().accounting().clone();
        self.conversations.close_session(conversation, learned);
        guard.close();
    }

    /// Writes a conversation to a file, unless it has one. `false` if that fails; it stays in memory then.
    pub(super) async fn persist_session(
        &self,
        conversation: &Arc<Conversation>,
        guard: &mut SessionGuard,
    ) -> bool {
        let key = conversation.key();
        if !conversation.state().is_persisted {
            let created = SessionFolder::from_path(&self.conversations.folder(key)).create();
            let moved = match created {
                Ok(()) => guard.move_to_file(&self.conversations.path(key, conversation.id())),
                Err(error) => Err(error),
            };
            if let Err(error) = moved {
                self.report_unwritten(conversation, &error);
                return false;
            }
            let mut state = conversation.state();
            (state.is_persisted, state.is_unwritten) = (true, false);
            drop(state);
        }
        if conversation.state().is_unindexed() {
            self.conversations.index(key, conversation);
        }
        true
    }

    /// Writes all conversations that have no file yet, before the process ends. No request may be in flight.
    pub async fn persist_all(&self) {
        for conversation in self.conversations.unpersisted() {
            if let Some(session) = conversation.open_session_id()
                && let Ok(mut guard) = self.runtime.lock_session(&session).await
                && !self.persist_session(&conversation, &mut guard).await
            {
                return;
            }
        }
    }

    /// Discards the in-memory state of a conversation, after an error; it is reloaded from its file.
    pub(super) fn invalidate(&self, conversation: &Arc<Conversation>) {
        let open = conversation.open_session_id();
        self.conversations.invalidate(conversation);
        self.close_sessions(open.into_iter().collect());
    }
}
