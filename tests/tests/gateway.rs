//! The gateway from outside: over real sockets, with agents that know nothing of it.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
#![allow(clippy::print_stderr)]

#[path = "gateway/dashboard.rs"]
mod dashboard;
#[path = "gateway/run.rs"]
mod run;
