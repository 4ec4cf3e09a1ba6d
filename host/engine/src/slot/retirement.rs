//! The configured engine of a slot is let go, whether calls are under way in it or not.

use std::future::Future;

use super::Slot;

impl Slot {
    /// Lets the configured engine go while somebody may still hold the slot: its calls are cut off and
    /// answered by the bundled engine.
    pub async fn retire(&self) {
        self.retired.cancel();
        if let Some(chosen) = &self.chosen {
            chosen.dispose().await;
        }
    }

    /// Whether the configured engine was let go; another slot serves meanwhile.
    pub fn is_retired(&self) -> bool {
        self.retired.is_cancelled()
    }

    /// Lets all engines go. For a slot that nobody else holds.
    pub async fn dispose(&self) {
        self.retire().await;
        self.legacy.dispose().await;
    }

    /// `None` where the configured engine is let go meanwhile.
    pub(super) async fn unless_retired<T>(&self, call: impl Future<Output = T>) -> Option<T> {
        self.retired.run_until_cancelled(call).await
    }
}
