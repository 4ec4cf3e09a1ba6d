//! Turns of an agent: tools, hooks, recovery, long conversations.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]
#![allow(clippy::print_stdout, clippy::print_stderr)]

mod embed;
mod gate;
mod hooks;
mod live_prefix;
mod mcp;
mod recovery;
mod soak;
mod walk;
