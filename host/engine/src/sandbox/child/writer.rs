//! The worker's half of the wire that speaks: whoever has something to say says it here, one at a time.

use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};

use crate::sandbox::wire::{self, FromSandbox};

/// Clones speak on the same wire.
#[derive(Clone)]
pub(super) struct FrameWriter {
    wire: Arc<Mutex<UnixStream>>,
}

impl FrameWriter {
    pub(super) fn new(wire: UnixStream) -> Self {
        FrameWriter { wire: Arc::new(Mutex::new(wire)) }
    }

    /// Says it. A host that does not listen is gone, and this process with it.
    pub(super) fn write(&self, message: &FromSandbox) {
        // Put into bytes before the wire is taken: others may be waiting.
        let Ok(frame) = wire::frame(message) else { return };
        let wire = self.wire.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let _ = std::io::Write::write_all(&mut &*wire, &frame);
    }
}
