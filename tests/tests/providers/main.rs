//! What goes over the wire to providers, and the scripted provider that stands for them.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod dialects;
mod scripted;
mod wire_rules;
