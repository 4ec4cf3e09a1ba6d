//! Who hears what happens in a runtime: some while it happens, others when they get to it.

use std::sync::{Arc, PoisonError, RwLock};

use tokio::sync::broadcast;

use super::event::{EventKind, RuntimeEvent};

/// Events that wait for one who gets to them later, before the oldest is lost.
const CHANNEL_CAPACITY: usize = 1_024;

/// Hears an event while it happens: whatever happened waits for it, so it has to be quick.
pub type EventListener = Arc<dyn Fn(&RuntimeEvent) + Send + Sync>;

/// All who hear. Cheap to clone; all clones are the same.
#[derive(Clone)]
pub(super) struct EventBus {
    channel: broadcast::Sender<RuntimeEvent>,
    listeners: Arc<RwLock<Vec<EventListener>>>,
}

impl EventBus {
    /// Nobody yet.
    pub(super) fn new() -> EventBus {
        EventBus { channel: broadcast::Sender::new(CHANNEL_CAPACITY), listeners: Arc::default() }
    }

    /// Hears all that happens from now on, when it gets to it.
    pub(super) fn subscribe(&self) -> broadcast::Receiver<RuntimeEvent> {
        self.channel.subscribe()
    }

    /// Hears all that happens from now on, while it happens.
    pub(super) fn add_listener(&self, listener: EventListener) {
        self.listeners.write().unwrap_or_else(PoisonError::into_inner).push(listener);
    }

    /// Tells everybody. Nobody need be there.
    pub(super) fn emit(&self, session: impl Into<Arc<str>>, what: EventKind) {
        let event = RuntimeEvent { session: session.into(), kind: what };
        for listener in self.listeners.read().unwrap_or_else(PoisonError::into_inner).iter() {
            listener(&event);
        }
        // Waking somebody costs more than most that is told of.
        if self.channel.receiver_count() > 0 {
            let _ = self.channel.send(event);
        }
    }
}

impl std::fmt::Debug for EventBus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Listeners")
            .field("later", &self.channel.receiver_count())
            .finish_non_exhaustive()
    }
}
