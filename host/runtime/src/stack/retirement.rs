//! The engines of a stack are let go, whether calls are under way in them or not.

use std::future::Future;
use std::sync::Arc;

use super::Stack;

impl Stack {
    /// Lets the configured engines go while somebody may still hold the stack: their calls are cut off and
    /// answered by the bundled engine.
    pub(crate) async fn retire(&self) {
        if self.stages.is_empty() {
            return self.slot.retire().await;
        }
        self.retired.cancel();
        for engine in self.stages.iter().filter_map(|stage| stage.engine.as_ref()) {
            // The bundled engine as a stage is the one that stands in.
            if !Arc::ptr_eq(engine, self.slot.bundled()) {
                engine.dispose().await;
            }
        }
    }

    /// Whether the configured engines were let go; another stack serves meanwhile.
    pub(crate) fn is_retired(&self) -> bool {
        self.slot.is_retired() || self.retired.is_cancelled()
    }

    /// Lets all engines go. For a stack that nobody else holds.
    pub(crate) async fn dispose(&self) {
        self.retire().await;
        self.slot.dispose().await;
    }

    /// `None` where the stages are let go meanwhile. A slot by itself looks after that itself.
    pub(super) async fn unless_retired<T>(&self, call: impl Future<Output = T>) -> Option<T> {
        self.retired.run_until_cancelled(call).await
    }
}
