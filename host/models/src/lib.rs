//! Models: names, windows and failover.

#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

pub mod failover;

mod learned_windows;
mod name;
mod registry;

pub use name::ModelName;
pub use registry::{ContextWindow, ModelRegistry};
