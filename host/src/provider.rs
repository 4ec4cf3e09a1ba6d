//! Models behind a wire.
