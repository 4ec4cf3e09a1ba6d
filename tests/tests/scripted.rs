//! The scripted provider itself, asked by a plain client: dialects, faults, overflow, memory.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

#[path = "scripted/binary.rs"]
mod binary;
#[path = "scripted/client.rs"]
mod client;
#[path = "scripted/dialects.rs"]
mod dialects;
#[path = "scripted/faults.rs"]
mod faults;
#[path = "scripted/overflow.rs"]
mod overflow;
#[path = "scripted/wandering.rs"]
mod wandering;
