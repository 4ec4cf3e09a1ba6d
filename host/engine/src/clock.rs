//! The clock of a host: the system's, or one that a replay sets to recorded time.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// The host's clock.
#[derive(Clone, Debug, Default)]
pub struct HostClock {
    recorded_ms: Option<Arc<AtomicI64>>,
}

impl HostClock {
    /// A clock that shows the time it was last set to.
    pub fn recorded() -> Self {
        HostClock { recorded_ms: Some(Arc::default()) }
    }

    /// Sets a recorded clock. Has no effect on the system's clock.
    pub fn set(&self, now_ms: i64) {
        if let Some(recorded) = &self.recorded_ms {
            recorded.store(now_ms, Ordering::Relaxed);
        }
    }

    /// Whether this is a recorded clock.
    pub(super) fn is_recorded(&self) -> bool {
        self.recorded_ms.is_some()
    }

    /// Milliseconds since 1970.
    pub fn now_ms(&self) -> i64 {
        match &self.recorded_ms {
            Some(recorded) => recorded.load(Ordering::Relaxed),
            None => {
                let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
                i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
            }
        }
    }
}
