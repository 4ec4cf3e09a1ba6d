//! Engine chains: what each engine reads, failures, compactions, and the invariants.

mod failures;
mod fixture;
mod invariants;
mod turn;
mod views;
