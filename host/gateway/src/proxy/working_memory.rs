//! Bounds the memory in which messages are ingested: it takes several times their size, for a moment.

use tokio::sync::{Semaphore, SemaphorePermit};

/// The share of `gateway.max_bodies_bytes` whose messages are ingested at a time, as a divisor: by default, one body of
/// the largest size. Others wait.
const SHARE_DIVISOR: u64 = 4;

const KILOBYTE: u64 = 1_024;

/// Permits for the bytes that are ingested at a time.
#[derive(Debug)]
pub(super) struct WorkingMemory {
    kilobytes: Semaphore,
    all: u32,
}

impl WorkingMemory {
    pub(super) fn new(max_bodies_bytes: u64) -> WorkingMemory {
        let all = (max_bodies_bytes / SHARE_DIVISOR / KILOBYTE).clamp(1, u64::from(u32::MAX >> 3));
        let all = u32::try_from(all).unwrap_or(u32::MAX >> 3);
        WorkingMemory { kilobytes: Semaphore::new(all as usize), all }
    }

    /// Waits until messages of this size may be ingested; the permit must not be held while a model is called.
    pub(super) async fn reserve(&self, bytes: u64) -> Option<SemaphorePermit<'_>> {
        // One that exceeds the share is ingested alone.
        let kilobytes = u32::try_from(bytes / KILOBYTE).unwrap_or(u32::MAX).min(self.all);
        // The semaphore is never closed.
        self.kilobytes.acquire_many(kilobytes).await.ok()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[tokio::test]
    async fn large_messages_wait_for_others_and_small_ones_do_not() {
        let memory = WorkingMemory::new(4_000_000);
        let first = memory.reserve(700_000).await;
        let second = memory.reserve(200_000).now_or_never();
        assert!(second.is_some());
        assert!(memory.reserve(500_000).now_or_never().is_none());
        assert!(memory.reserve(1_000).now_or_never().is_some());
        drop((first, second));
        assert!(memory.reserve(u64::MAX).now_or_never().is_some());
    }
}
