//! Stacks at work: what each stage reads, who is left out, who compacts, and that the law holds.

mod failing;
mod lawful;
mod stage;
mod telling;
mod turn;
