//! Conversations leave memory: each is put into a file and closed first.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

use tokio::task::yield_now;

use super::apart::apart;
use super::desk::Desk;
use crate::thread::{Left, Thread};
use ctxhost_runtime::SessionGuard;
use ctxhost_session::SessionFolder;

/// How often the gateway looks for idle conversations, in milliseconds.
const LOOK_MS: i64 = 1_000;

/// How long a disk is left alone that has taken no conversation, in milliseconds.
const REST_MS: i64 = 5_000;

/// Whether somebody puts conversations away, and when they are looked for again.
#[derive(Debug, Default)]
pub(super) struct Tidying {
    is_running: AtomicBool,
    next_look_ms: AtomicI64,
    /// Before this nothing is tried.
    rests_until_ms: AtomicI64,
}

/// Its end.
struct Run<'a>(&'a Tidying);

impl Drop for Run<'_> {
    fn drop(&mut self) {
        self.0.is_running.store(false, Ordering::Release);
    }
}

impl Desk {
    /// Has conversations put away that nobody goes on with, and the oldest where there are too many. Nobody waits for
    /// it.
    pub(super) fn tidy(self: &Arc<Self>) {
        let (now_ms, tidying) = (self.runtime.now_ms(), &self.tidying);
        let is_due = now_ms >= tidying.next_look_ms.load(Ordering::Relaxed);
        let rests = now_ms < tidying.rests_until_ms.load(Ordering::Relaxed);
        if rests || !is_due && !self.threads.is_crowded() {
            return;
        }
        if tidying.is_running.swap(true, Ordering::Acquire) {
            return;
        }
        tidying.next_look_ms.store(now_ms.saturating_add(LOOK_MS), Ordering::Relaxed);
        let desk = self.clone();
        // One of them may have tens of thousands of messages to write, and the disk may be slow.
        self.runtime.in_background(apart(async move {
            let _run = Run(&desk.tidying);
            desk.put_away_all(now_ms).await;
        }));
    }

    async fn put_away_all(&self, now_ms: i64) {
        let idle_ms = i64::try_from(self.settings.conversation_idle_ms).unwrap_or(i64::MAX);
        for (thread, is_one_too_many) in self.threads.leaving(now_ms.saturating_sub(idle_ms)) {
            if !self.put_away(&thread, is_one_too_many).await && !self.threads.is_overcrowded() {
                let until_ms = self.runtime.now_ms().saturating_add(REST_MS);
                self.tidying.rests_until_ms.store(until_ms, Ordering::Relaxed);
                return;
            }
            drop(thread);
            yield_now().await;
        }
    }

    /// Puts a conversation into its file, closes that, and forgets the rest of it. `false` where the disk does not take
    /// it.
    async fn put_away(&self, thread: &Arc<Thread>, is_one_too_many: bool) -> bool {
        // Whoever asks for it meanwhile waits, and opens the file again.
        let _closing = thread.closing().await;
        let Some(session) = thread.open_session() else {
            self.threads.leave(thread, None);
            return true;
        };
        let Ok(mut guard) = self.runtime.lock_session(&session).await else {
            self.threads.lost(thread);
            return true;
        };
        if !self.keep_session(thread, &mut guard).await {
            if self.threads.is_overcrowded() {
                self.threads.forget(thread);
                drop(guard);
                self.runtime.close_session(&session).await;
            }
            return false;
        }
        let is_written = guard.write_out().is_ok();
        let learned = guard.context().accounting().clone();
        if !self.threads.close(thread) {
            return true;
        }
        drop(guard);
        self.runtime.close_session(&session).await;
        let left = Left { last: thread.state().last, learned, is_one_too_many };
        self.threads.leave(thread, is_written.then_some(left));
        true
    }

    /// Closes the session of a conversation whose request is on its way, where more sessions are open than conversations
    /// stay in memory. It is opened again when the request is answered.
    pub(super) async fn close_waiting(&self, thread: &Arc<Thread>, mut guard: SessionGuard) {
        if self.runtime.open_sessions() <= self.settings.conversations {
            return;
        }
        // Whoever opens or closes it now goes first.
        let Some(_closing) = thread.try_closing() else { return };
        if !self.keep_session(thread, &mut guard).await || guard.write_out().is_err() {
            return;
        }
        let learned = guard.context().accounting().clone();
        self.threads.close_waiting(thread, learned);
        guard.close();
    }

    /// Puts a conversation into a file, where it is in none; whether it is in one. It goes on in memory where that fails.
    pub(super) async fn keep_session(
        &self,
        thread: &Arc<Thread>,
        guard: &mut SessionGuard,
    ) -> bool {
        let key = thread.key();
        if !thread.state().is_kept {
            let made = SessionFolder::at(&self.threads.folder(key)).make();
            let kept = match made {
                Ok(()) => guard.keep_in(&self.threads.path(key, thread.id())),
                Err(error) => Err(error),
            };
            if let Err(error) = kept {
                let session = thread.id();
                tracing::warn!(session, %error, "a conversation is in memory only");
                return false;
            }
            thread.state().is_kept = true;
        }
        if thread.state().is_unregistered() {
            self.threads.register(key, thread);
        }
        true
    }

    /// Puts all conversations into files that are in none.
    pub(super) async fn keep_all(&self) {
        for thread in self.threads.unkept() {
            if let Some(session) = thread.open_session()
                && let Ok(mut guard) = self.runtime.lock_session(&session).await
                && !self.keep_session(&thread, &mut guard).await
            {
                return;
            }
        }
    }

    /// A conversation cannot be gone on with as it is in memory.
    pub(super) fn lost(&self, thread: &Arc<Thread>) {
        let open = thread.open_session();
        self.threads.lost(thread);
        self.close(open.into_iter().collect());
    }
}
