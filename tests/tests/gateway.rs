//! The gateway over real sockets: what passes, what is refused, and what happens when others fail.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
#![allow(clippy::print_stderr)]

#[path = "gateway/access.rs"]
mod access;
#[path = "gateway/binary.rs"]
mod binary;
#[path = "gateway/dashboard.rs"]
mod dashboard;
#[path = "gateway/identity.rs"]
mod identity;
#[path = "gateway/limits.rs"]
mod limits;
#[path = "gateway/models.rs"]
mod models;
#[path = "gateway/overflow.rs"]
mod overflow;
#[path = "gateway/run.rs"]
mod run;
#[path = "gateway/stage.rs"]
mod stage;
#[path = "gateway/streams.rs"]
mod streams;
#[path = "gateway/trouble.rs"]
mod trouble;
