//! Session stores: one contract for files and PostgreSQL, machines that share a session, wires that are cut.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

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
