//! A hook that the host runs first on every thread of a C engine's call.

use std::any::Any;
use std::sync::OnceLock;

/// Runs first on a new thread; its result is dropped when the thread ends.
pub type ThreadInit = Box<dyn FnOnce() -> Box<dyn Any> + Send>;

static MAKE: OnceLock<fn() -> ThreadInit> = OnceLock::new();

/// Sets the function that creates the hook of each new thread. It is called on the starting thread, so
/// that a host can pass on what its current thread runs. The first call wins.
pub fn set_thread_init(make: fn() -> ThreadInit) {
    // Only the first call counts, so that a running host keeps its hook.
    let _ = MAKE.set(make);
}

/// The hook for a thread that is about to start.
pub(super) fn thread_init() -> Option<ThreadInit> {
    MAKE.get().map(|make| make())
}
