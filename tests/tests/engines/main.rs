//! Engines and the host: loaded, isolated, checked, of other versions, failing.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod check;
mod check_sandbox;
mod contract;
mod embedding;
mod growth;
mod isolation;
mod live_round;
mod loading;
mod misbehaving;
mod short_requests;
mod slot;
mod versions;
