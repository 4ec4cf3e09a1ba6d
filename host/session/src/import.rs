//! Import of sessions of other agents: format detection and conversion to Pi v3 messages.
//!
//! An import reproduces what happened, not what the other agent later sent: its compactions are skipped if the
//! messages they replaced are in the file, and prompts that the user reverted are skipped with everything that
//! followed from them. Recordings are never written.

mod anthropic;
mod block;
mod chat;
mod claude_code;
mod codex;
mod demo;
mod detect;
mod draft;
mod json_lines;
mod open;
mod openai;
#[cfg(test)]
mod tests;
mod transcript;

pub use demo::{DEMO_PREFIX, DEMOS, DemoSession};
pub use detect::detect;
pub use draft::UNKNOWN_MODEL;
pub use open::{ImportOpenError, ImportedSession, import_messages, open_bytes, open_file};
pub use transcript::{
    ImportError, ImportFormat, ImportProblem, ImportedMessage, ImportedTranscript,
};
