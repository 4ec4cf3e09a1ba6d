//! Import of sessions of other agents: format detection and conversion to Pi v3 messages.
//!
//! An import keeps every message, and records each compaction of the agent with what its context held
//! afterwards. Prompts that the user reverted are skipped with everything that followed from them. A summary is
//! a message only if the file starts with it. Recordings are never written.

#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

mod anthropic;
mod block;
mod chat;
mod claude_code;
mod codex;
mod compaction;
mod demo;
mod detect;
mod draft;
mod gemini_cli;
mod injected;
mod json_lines;
mod open;
mod openai;
mod opencode;
mod response_item;
mod surrogates;
#[cfg(test)]
mod tests;
mod transcript;

pub use demo::{DEMO_PREFIX, DEMOS, DemoSession};
pub use detect::detect;
pub use draft::UNKNOWN_MODEL;
pub use open::{
    ImportOpenError, ImportedSession, import_messages, open_bytes, open_file, recorded_window,
};
pub use opencode::{DatabaseSession, list_database};
pub use transcript::{
    ImportError, ImportFormat, ImportProblem, ImportedCompaction, ImportedItem, ImportedMessage,
    ImportedTranscript,
};
