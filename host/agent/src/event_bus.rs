//! Delivers events to synchronous listeners and to subscribers of a channel.

use std::sync::Arc;

use parking_lot::RwLock;
use tokio::sync::broadcast;

use super::event::{EventKind, RuntimeEvent};

/// Events that the channel keeps for a slow subscriber.
const CHANNEL_CAPACITY: usize = 1_024;

/// Called for every event, on the emitter's thread and without a lock of the event bus. The emitter waits for it, so it
/// must return quickly.
pub type EventListener = Arc<dyn Fn(&RuntimeEvent) + Send + Sync>;

/// Delivers events. Clones share their listeners.
#[derive(Clone)]
pub(super) struct EventBus {
    channel: broadcast::Sender<RuntimeEvent>,
    listeners: Arc<RwLock<Arc<[EventListener]>>>,
}

impl EventBus {
    pub(super) fn new() -> EventBus {
        let listeners = Arc::new(RwLock::new(Arc::from([])));
        EventBus { channel: broadcast::Sender::new(CHANNEL_CAPACITY), listeners }
    }

    /// A receiver of all events from now on.
    pub(super) fn subscribe(&self) -> broadcast::Receiver<RuntimeEvent> {
        self.channel.subscribe()
    }

    /// Adds a listener for all events from now on.
    pub(super) fn add_listener(&self, listener: EventListener) {
        let mut listeners = self.listeners.write();
        *listeners = listeners.iter().cloned().chain([listener]).collect();
    }

    /// Delivers an event.
    pub(super) fn emit(&self, session: impl Into<Arc<str>>, kind: EventKind) {
        let event = RuntimeEvent { session: session.into(), kind };
        // Copied: a listener may add another one.
        let listeners = self.listeners.read().clone();
        for listener in &*listeners {
            listener(&event);
        }
        // Checked first: a send locks the channel, and every part of a streamed answer is an event.
        if self.channel.receiver_count() > 0 {
            let _ = self.channel.send(event);
        }
    }
}

impl std::fmt::Debug for EventBus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EventBus")
            .field("subscribers", &self.channel.receiver_count())
            .finish_non_exhaustive()
    }
}
