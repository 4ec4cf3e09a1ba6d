//! Reads session files on blocking threads, a few at a time.

use std::sync::Arc;

use tokio::sync::Semaphore;
use tokio::task::{JoinError, spawn_blocking};

/// Files read in parallel. When a thousand clients return at once, more threads do not read faster, and each keeps
/// its stack and a share of the heap.
const MAX_READS: usize = 4;

/// The pool that reads session files.
#[derive(Debug)]
pub struct ReadPool(Arc<Semaphore>);

impl Default for ReadPool {
    fn default() -> ReadPool {
        ReadPool(Arc::new(Semaphore::new(MAX_READS)))
    }
}

impl ReadPool {
    /// Runs a read on a blocking thread. A started read runs to its end, even if the caller is dropped.
    ///
    /// # Errors
    ///
    /// If the read panics.
    pub(crate) async fn read<T: Send + 'static>(
        &self,
        reading: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, JoinError> {
        // The semaphore is never closed, so this always succeeds.
        let location = self.0.clone().acquire_owned().await;
        let done = spawn_blocking(move || {
            let _place = location;
            reading()
        });
        done.await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use futures_util::future::join_all;

    use super::*;

    #[tokio::test]
    async fn dropped_reads_count_against_the_limit() {
        static NOW: AtomicUsize = AtomicUsize::new(0);
        static MOST: AtomicUsize = AtomicUsize::new(0);
        let read = || {
            let now = NOW.fetch_add(1, Ordering::SeqCst) + 1;
            MOST.fetch_max(now, Ordering::SeqCst);
            std::thread::sleep(Duration::from_millis(5));
            NOW.fetch_sub(1, Ordering::SeqCst);
        };
        let readings = ReadPool::default();
        for _ in 0..8 {
            // Dropped right after its start, unless a busy machine has completed it by then.
            let _ = tokio::time::timeout(Duration::ZERO, readings.read(read)).await;
        }
        for done in join_all((0..32).map(|_| readings.read(read))).await {
            done.unwrap();
        }
        assert_eq!(MOST.load(Ordering::SeqCst), MAX_READS);
    }

    #[tokio::test]
    async fn a_panic_releases_its_permit() {
        let readings = ReadPool::default();
        for _ in 0..2 * MAX_READS {
            assert!(readings.read(|| panic!("expected")).await.is_err());
        }
        assert_eq!(readings.read(|| 1).await.unwrap(), 1);
    }
}
