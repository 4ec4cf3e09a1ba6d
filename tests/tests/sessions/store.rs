//! Session stores: one contract for files and PostgreSQL, machines that share a session, wires that are cut.

// The two sides and the cuts tell how much they did.
#![allow(clippy::print_stderr)]

mod contract;
mod cuts;
mod lanes;
mod migration;
mod two_sides;
