//! The runtime of ctxhost and its faces, in reading order.
//!
//! Each is a crate of its own in the folder beside this one; `tests/tests/architecture.rs` says which may know which.

#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

pub use ctxhost_dialects as dialects;

pub use ctxhost_session as session;

pub use ctxhost_law as law;
pub use ctxhost_media as media;
pub use ctxhost_provider as provider;
pub use ctxhost_survival as survival;
pub use ctxhost_tool as tool;

pub use ctxhost_engine as engine;
pub use ctxhost_history as history;

pub use ctxhost_store as store;
pub use ctxhost_trust as trust;

pub use ctxhost_config as config;

pub use ctxhost_context as context;

pub use ctxhost_runtime as runtime;

pub use ctxhost_check as check;
pub use ctxhost_dev as dev;
pub use ctxhost_gateway as gateway;
pub use ctxhost_scaffold as scaffold;

pub use ctxhost_cli as cli;
