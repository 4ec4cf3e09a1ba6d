//! Writes frames to the host, one at a time.

use std::os::unix::net::UnixStream;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::sandbox::wire::{self, FromSandbox};

/// Writes frames to the host. Clones share the socket.
#[derive(Clone)]
pub(super) struct FrameWriter {
    wire: Arc<Mutex<UnixStream>>,
}

impl FrameWriter {
    pub(super) fn new(wire: UnixStream) -> Self {
        FrameWriter { wire: Arc::new(Mutex::new(wire)) }
    }

    /// Writes a frame.
    pub(super) fn write(&self, message: &FromSandbox) {
        // Encoded before the lock: other threads may be waiting for it.
        let Ok(frame) = wire::frame(message) else { return };
        let wire = self.wire.lock();
        // Fails where the host is gone, and then this process is about to be killed.
        let _ = std::io::Write::write_all(&mut &*wire, &frame);
    }
}
