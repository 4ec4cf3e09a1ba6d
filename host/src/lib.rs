//! The runtime of ctxhost and its faces, in reading order.
//!
//! Every `use` points up this list, never down; `tests/tests/floors.rs` checks it.

#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

pub mod session;

pub mod law;
pub mod media;
pub mod provider;
pub mod survival;
pub mod tool;

pub mod engine;
pub mod history;

pub mod store;
pub mod trust;

pub mod config;

pub mod runtime;

pub mod chaos;
pub mod check;
pub mod dev;
pub mod gateway;
pub mod scaffold;

pub mod cli;
