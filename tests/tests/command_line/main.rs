//! Commands as a person runs them: what they print, what they write, what they leave alone.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod chat;
mod cli;
mod compact;
mod diff;
mod documents;
mod example_config;
mod fsck;
mod help;
mod history;
mod inputs;
