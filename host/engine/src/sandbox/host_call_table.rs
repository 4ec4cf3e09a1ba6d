//! The open host calls of a sandbox: their number, and the memory of their requests and replies.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::AbortHandle;

/// The most open host calls of one sandbox; more is a loop that does not await them.
const MAX_HOST_CALLS: usize = 1024;

/// The host calls of one sandbox, each from the arrival of its request until its reply is next to be sent.
pub(super) struct HostCallTable {
    open: Mutex<OpenHostCalls>,
    requests: ByteRoom,
    replies: ByteRoom,
    /// Held while a store call runs and its reply waits for room, so that one reply at most has none.
    pub(super) store_turn: tokio::sync::Mutex<()>,
}

#[derive(Default)]
struct OpenHostCalls {
    /// The task of each call; `None` before it is started.
    tasks: HashMap<u64, Option<AbortHandle>>,
    is_closed: bool,
}

impl HostCallTable {
    /// A table for requests and for replies of `max_bytes` in all.
    pub(super) fn new(max_bytes: usize) -> HostCallTable {
        HostCallTable {
            open: Mutex::default(),
            requests: ByteRoom::new(max_bytes),
            replies: ByteRoom::new(max_bytes),
            store_turn: tokio::sync::Mutex::default(),
        }
    }

    /// Adds a host call; `None` where the process has ended.
    ///
    /// # Errors
    ///
    /// What the sandbox did wrong.
    pub(super) fn begin(self: &Arc<Self>, id: u64) -> Result<Option<OpenHostCall>, String> {
        let mut open = self.open.lock();
        if open.is_closed {
            return Ok(None);
        }
        if open.tasks.len() >= MAX_HOST_CALLS {
            return Err(format!("more than {MAX_HOST_CALLS} concurrent host calls"));
        }
        // Replaced, the first one could neither be counted nor aborted.
        if open.tasks.contains_key(&id) {
            return Err(format!("a second host call {id} before the reply to the first"));
        }
        open.tasks.insert(id, None);
        Ok(Some(OpenHostCall { id, table: self.clone(), room: None }))
    }

    /// Names the task of a host call, which is aborted where the process has ended meanwhile.
    pub(super) fn set_task(&self, id: u64, task: AbortHandle) {
        let mut open = self.open.lock();
        if let Some(entry) = open.tasks.get_mut(&id) {
            *entry = Some(task.clone());
        }
        if open.is_closed {
            drop(open);
            task.abort();
        }
    }

    /// Aborts the task of a host call. Its entry stays until the task or its reply is gone.
    pub(super) fn cancel(&self, id: u64) {
        let task = self.open.lock().tasks.get(&id).cloned().flatten();
        // Without the lock, which the end of a call takes.
        task.inspect(AbortHandle::abort);
    }

    /// Aborts all host calls, and admits no others: the process has ended.
    pub(super) fn close(&self) {
        let mut open = self.open.lock();
        open.is_closed = true;
        let tasks: Vec<AbortHandle> = open.tasks.values().flatten().cloned().collect();
        drop(open);
        tasks.iter().for_each(AbortHandle::abort);
        self.requests.left.close();
        self.replies.left.close();
    }

    /// Waits until a request of so many bytes has room; `None` where the process has ended.
    pub(super) async fn admit_request(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        self.requests.take(bytes).await
    }
}

/// An open host call. Ended when its reply is next to be sent, dropped where there will be none.
pub(super) struct OpenHostCall {
    id: u64,
    table: Arc<HostCallTable>,
    room: Option<OwnedSemaphorePermit>,
}

impl OpenHostCall {
    /// Waits until a reply of so many bytes has room among those that are not sent yet.
    pub(super) async fn admit_reply(&mut self, bytes: usize) {
        self.room = self.table.replies.take(bytes).await;
    }

    /// Frees the id, and returns the room of the reply, which it takes up until it is sent.
    pub(super) fn end(mut self) -> Option<OwnedSemaphorePermit> {
        self.room.take()
    }
}

impl Drop for OpenHostCall {
    fn drop(&mut self) {
        self.table.open.lock().tasks.remove(&self.id);
    }
}

/// Bytes that may be in memory at a time.
struct ByteRoom {
    left: Arc<Semaphore>,
    max_bytes: u32,
}

impl ByteRoom {
    fn new(max_bytes: usize) -> ByteRoom {
        let max_bytes = u32::try_from(max_bytes).unwrap_or(u32::MAX);
        let permits = usize::try_from(max_bytes).unwrap_or(Semaphore::MAX_PERMITS);
        ByteRoom { left: Arc::new(Semaphore::new(permits.min(Semaphore::MAX_PERMITS))), max_bytes }
    }

    /// More than the whole room is taken alone. `None` where the room is closed.
    async fn take(&self, bytes: usize) -> Option<OwnedSemaphorePermit> {
        let bytes = u32::try_from(bytes).unwrap_or(u32::MAX).min(self.max_bytes);
        self.left.clone().acquire_many_owned(bytes).await.ok()
    }
}
