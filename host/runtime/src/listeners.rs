//! Who hears what happens in a runtime: some while it happens, others when they get to it.

use std::sync::{Arc, PoisonError, RwLock};

use tokio::sync::broadcast;

use super::event::{Event, What};

/// Events that wait for one who gets to them later, before the oldest is lost.
const MOST_WAITING: usize = 1_024;

/// Hears an event while it happens: whatever happened waits for it, so it has to be quick.
pub type Listener = Arc<dyn Fn(&Event) + Send + Sync>;

/// All who hear. Cheap to clone; all clones are the same.
#[derive(Clone)]
pub(super) struct Listeners {
    later: broadcast::Sender<Event>,
    at_once: Arc<RwLock<Vec<Listener>>>,
}

impl Listeners {
    /// Nobody yet.
    pub(super) fn new() -> Listeners {
        Listeners { later: broadcast::Sender::new(MOST_WAITING), at_once: Arc::default() }
    }

    /// Hears all that happens from now on, when it gets to it.
    pub(super) fn subscribe(&self) -> broadcast::Receiver<Event> {
        self.later.subscribe()
    }

    /// Hears all that happens from now on, while it happens.
    pub(super) fn listen(&self, listener: Listener) {
        self.at_once.write().unwrap_or_else(PoisonError::into_inner).push(listener);
    }

    /// Tells everybody. Nobody need be there.
    pub(super) fn tell(&self, session: impl Into<Arc<str>>, what: What) {
        let event = Event { session: session.into(), what };
        for listener in self.at_once.read().unwrap_or_else(PoisonError::into_inner).iter() {
            listener(&event);
        }
        // Waking somebody costs more than most that is told of.
        if self.later.receiver_count() > 0 {
            let _ = self.later.send(event);
        }
    }
}

impl std::fmt::Debug for Listeners {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Listeners")
            .field("later", &self.later.receiver_count())
            .finish_non_exhaustive()
    }
}
