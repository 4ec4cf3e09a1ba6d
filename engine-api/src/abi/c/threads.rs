//! What a host has done first on the threads that calls of C engines have of their own.

use std::any::Any;
use std::sync::OnceLock;

/// Done first on a new thread; what it gives is kept until the thread ends.
pub type ThreadInit = Box<dyn FnOnce() -> Box<dyn Any> + Send>;

static MAKE: OnceLock<fn() -> ThreadInit> = OnceLock::new();

/// Has `make` called by whoever starts a thread for a C function, and what it gives called on that
/// thread before the function. For a host that watches what its threads run. The first one counts.
pub fn set_thread_init(make: fn() -> ThreadInit) {
    let _ = MAKE.set(make);
}

/// What the thread that is about to be started does first.
pub(super) fn thread_init() -> Option<ThreadInit> {
    MAKE.get().map(|make| make())
}
