//! What a host has done first on the threads that calls of C engines have of their own.

use std::any::Any;
use std::sync::OnceLock;

/// Done first on a new thread; what it gives is kept until the thread ends.
pub type OnThread = Box<dyn FnOnce() -> Box<dyn Any> + Send>;

static MAKE: OnceLock<fn() -> OnThread> = OnceLock::new();

/// Has `make` called by whoever starts a thread for a C function, and what it gives called on that
/// thread before the function. For a host that watches what its threads run. The first one counts.
pub fn on_new_threads(make: fn() -> OnThread) {
    let _ = MAKE.set(make);
}

/// What the thread that is about to be started does first.
pub(super) fn on_thread() -> Option<OnThread> {
    MAKE.get().map(|make| make())
}
