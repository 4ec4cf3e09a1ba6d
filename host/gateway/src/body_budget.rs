//! How much the bodies of all requests take together, compressed or not.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use axum::body::Bytes;
use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::Semaphore;

/// Compressed bodies that are opened at the same time: beside what comes out, each needs as much again to look back at.
const MAX_DECOMPRESSIONS: usize = 2;

/// The room for all bodies. Clones are the same room.
#[derive(Clone, Debug)]
pub(super) struct BodyBudget(Arc<SharedBudget>);

#[derive(Debug)]
struct SharedBudget {
    limit_bytes: u64,
    held_bytes: AtomicU64,
    held: Gauge,
    openings: Semaphore,
}

impl BodyBudget {
    /// Room for so many bytes; `held` tells how many of them are taken.
    pub(super) fn new(limit_bytes: u64, held: Gauge) -> BodyBudget {
        let (held_bytes, openings) = (AtomicU64::default(), Semaphore::new(MAX_DECOMPRESSIONS));
        BodyBudget(Arc::new(SharedBudget { limit_bytes, held_bytes, held, openings }))
    }

    /// How much all of them may take.
    pub(super) fn limit_bytes(&self) -> u64 {
        self.0.limit_bytes
    }

    /// How much they take now.
    pub(super) fn held_bytes(&self) -> u64 {
        self.0.held_bytes.load(Ordering::Relaxed)
    }

    /// Who may open a compressed body.
    pub(super) fn decompression_permits(&self) -> &Semaphore {
        &self.0.openings
    }

    /// The room of one body, which takes nothing yet.
    pub(super) fn reservation(&self) -> BodyReservation {
        BodyReservation { bodies: self.clone(), bytes: 0 }
    }

    fn release_bytes(&self, bytes: u64) {
        let before = self.0.held_bytes.fetch_sub(bytes, Ordering::Relaxed);
        self.update_gauge(before.saturating_sub(bytes));
    }

    fn update_gauge(&self, held_bytes: u64) {
        self.0.held.set(i64::try_from(held_bytes).unwrap_or(i64::MAX));
    }
}

/// What one body takes. It is given back when this is dropped.
#[derive(Debug)]
pub(super) struct BodyReservation {
    bodies: BodyBudget,
    bytes: u64,
}

impl BodyReservation {
    /// Takes more of it; `false` where there is not so much left.
    #[must_use]
    pub(super) fn try_reserve(&mut self, bytes: usize) -> bool {
        let BodyBudget(shared) = &self.bodies;
        let bytes = bytes as u64;
        let with = |held: u64| held.checked_add(bytes).filter(|all| *all <= shared.limit_bytes);
        let taken =
            shared.held_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, with).is_ok();
        if taken {
            self.bytes += bytes;
            self.bodies.update_gauge(self.bodies.held_bytes());
        }
        taken
    }

    /// Gives some of it back.
    pub(super) fn release(&mut self, bytes: usize) {
        let bytes = (bytes as u64).min(self.bytes);
        self.bytes -= bytes;
        self.bodies.release_bytes(bytes);
    }

    /// A body that keeps its room until the last of its clones is gone.
    pub(super) fn attach(self, bytes: impl AsRef<[u8]> + Send + 'static) -> Bytes {
        Bytes::from_owner(ReservedBytes { bytes, _room: self })
    }
}

impl Drop for BodyReservation {
    fn drop(&mut self) {
        self.bodies.release_bytes(self.bytes);
    }
}

struct ReservedBytes<B> {
    bytes: B,
    _room: BodyReservation,
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
    fn room_is_taken_until_the_last_clone_is_gone() {
        let bodies = BodyBudget::new(10, Gauge::default());
        let mut room = bodies.reservation();
        assert!(room.try_reserve(4) && room.try_reserve(2) && !room.try_reserve(5));
        let sent = Bytes::from_static(b"abcdef");
        let held = room.attach(sent.clone());
        assert_eq!((held.as_ptr(), held.len()), (sent.as_ptr(), 6), "nothing is copied");
        let clone = held.slice(1..3);
        drop(held);
        assert_eq!(bodies.held_bytes(), 6);
        let mut other = bodies.reservation();
        assert!(!other.try_reserve(5) && other.try_reserve(4));
        other.release(3);
        assert_eq!((bodies.held_bytes(), bodies.0.held.get()), (7, 7));
        drop((clone, other));
        assert_eq!((bodies.held_bytes(), bodies.0.held.get()), (0, 0));
        assert!(
            !bodies.reservation().try_reserve(11) && !bodies.reservation().try_reserve(usize::MAX)
        );
    }
}
