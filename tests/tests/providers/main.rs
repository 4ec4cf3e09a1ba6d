//! Dialects on the wire, and the scripted provider.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod dialects;
mod scripted;
mod wire_rules;
