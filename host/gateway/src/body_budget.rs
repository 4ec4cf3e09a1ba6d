//! The memory budget for all request bodies, compressed or not.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::body::Bytes;
use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::Semaphore;

/// Bodies that are decompressed in parallel. Each needs up to its decompressed size again for the zstd window.
const MAX_DECOMPRESSIONS: usize = 2;

/// The budget. Clones share it.
#[derive(Clone, Debug)]
pub(super) struct BodyBudget(Arc<SharedBudget>);

#[derive(Debug)]
struct SharedBudget {
    limit_bytes: u64,
    held_bytes: AtomicU64,
    held: Gauge,
    decompressions: Semaphore,
}

impl BodyBudget {
    /// A budget of `limit_bytes`; the gauge shows how much is used.
    pub(super) fn new(limit_bytes: u64, held: Gauge) -> BodyBudget {
        let (held_bytes, decompressions) =
            (AtomicU64::default(), Semaphore::new(MAX_DECOMPRESSIONS));
        BodyBudget(Arc::new(SharedBudget { limit_bytes, held_bytes, held, decompressions }))
    }

    /// The size of the budget.
    pub(super) fn limit_bytes(&self) -> u64 {
        self.0.limit_bytes
    }

    /// The used part.
    pub(super) fn held_bytes(&self) -> u64 {
        self.0.held_bytes.load(Ordering::Relaxed)
    }

    /// Permits for decompression.
    pub(super) fn decompression_permits(&self) -> &Semaphore {
        &self.0.decompressions
    }

    /// A reservation for one body, empty at first.
    pub(super) fn reservation(&self) -> BodyReservation {
        BodyReservation { budget: self.clone(), bytes: 0 }
    }

    fn release_bytes(&self, bytes: u64) {
        let before = self.0.held_bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.update_gauge(before.saturating_sub(bytes));
    }

    fn update_gauge(&self, held_bytes: u64) {
        self.0.held.set(i64::try_from(held_bytes).unwrap_or(i64::MAX));
    }
}

/// The reserved memory of one body; released when dropped.
#[derive(Debug)]
pub(super) struct BodyReservation {
    budget: BodyBudget,
    bytes: u64,
}

impl BodyReservation {
    /// Reserves more; `false` if the budget is exhausted.
    #[must_use]
    pub(super) fn try_reserve(&mut self, bytes: usize) -> bool {
        let BodyBudget(shared) = &self.budget;
        let bytes = bytes as u64;
        let with = |held: u64| held.checked_add(bytes).filter(|all| *all <= shared.limit_bytes);
        let is_reserved =
            // Relaxed is enough: the counter guards no other memory.
            shared.held_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, with).is_ok();
        if is_reserved {
            self.bytes += bytes;
            self.budget.update_gauge(self.budget.held_bytes());
        }
        is_reserved
    }

    /// Releases a part.
    pub(super) fn release(&mut self, bytes: usize) {
        let bytes = (bytes as u64).min(self.bytes);
        self.bytes -= bytes;
        self.budget.release_bytes(bytes);
    }

    /// A body that keeps its reservation until its last clone is dropped.
    pub(super) fn attach(self, bytes: impl AsRef<[u8]> + Send + 'static) -> Bytes {
        // Does not copy. The reservation is dropped together with the last clone.
        Bytes::from_owner(ReservedBytes { bytes, _reservation: self })
    }
}

impl Drop for BodyReservation {
    fn drop(&mut self) {
        self.budget.release_bytes(self.bytes);
    }
}

struct ReservedBytes<B> {
    bytes: B,
    _reservation: BodyReservation,
}

impl<B: AsRef<[u8]>> AsRef<[u8]> for ReservedBytes<B> {
    fn as_ref(&self) -> &[u8] {
        self.bytes.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reservation_lasts_until_the_last_clone_is_dropped() {
        let budget = BodyBudget::new(10, Gauge::default());
        let mut first = budget.reservation();
        assert!(first.try_reserve(4) && first.try_reserve(2) && !first.try_reserve(5));
        let sent = Bytes::from_static(b"abcdef");
        let held = first.attach(sent.clone());
        assert_eq!((held.as_ptr(), held.len()), (sent.as_ptr(), 6), "nothing is copied");
        let clone = held.slice(1..3);
        drop(held);
        assert_eq!(budget.held_bytes(), 6);
        let mut other = budget.reservation();
        assert!(!other.try_reserve(5) && other.try_reserve(4));
        other.release(3);
        assert_eq!((budget.held_bytes(), budget.0.held.get()), (7, 7));
        drop((clone, other));
        assert_eq!((budget.held_bytes(), budget.0.held.get()), (0, 0));
        assert!(
            !budget.reservation().try_reserve(11) && !budget.reservation().try_reserve(usize::MAX)
        );
    }
}
