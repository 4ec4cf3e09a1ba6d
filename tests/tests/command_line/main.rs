//! Commands: what they print and write.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

mod chat;
mod chat_endings;
mod cli;
mod compact;
mod diff;
mod doctor;
mod documents;
mod example_config;
mod failed_engine;
mod fsck;
mod help;
mod history;
mod inputs;
mod recordings;
mod terminal;
