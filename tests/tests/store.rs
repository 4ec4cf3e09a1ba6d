//! Session stores: one contract for files and PostgreSQL, machines that share a session, wires that are cut.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
// The two sides and the cuts tell how much they did.
#![allow(clippy::print_stderr)]

#[path = "store/contract.rs"]
mod contract;
#[path = "store/cuts.rs"]
mod cuts;
#[path = "store/lanes.rs"]
mod lanes;
#[path = "store/migration.rs"]
mod migration;
#[path = "store/two_sides.rs"]
mod two_sides;
