//! Recordings: sessions of other agents, recognised by their content and turned into Pi v3 messages.
//!
//! It reads the bytes it is given and nothing else; a recording is never written back. What is
//! imported is what happened, not what the other agent later sent: its own compactions are passed
//! over where the messages they replaced are in the file, and prompts that the person took back are
//! left out with everything that followed from them.

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

use std::fmt;

use serde_json::Value;

pub use demo::{DEMO_PREFIX, DEMOS, DemoSession};
pub use detect::detect;
pub use draft::UNKNOWN_MODEL;
pub use open::{ImportOpenError, ImportedSession, open_bytes, open_file};

/// A format that a recording may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ImportFormat {
    /// A session of Pi, of any version. It needs no import.
    Pi,
    /// A session of Claude Code: JSON lines linked by `parentUuid`.
    ClaudeCode,
    /// A rollout of OpenAI Codex: JSON lines with a `payload`.
    Codex,
    /// Messages of the OpenAI chat completions API.
    OpenAi,
    /// Messages of the Anthropic API.
    Anthropic,
}

impl ImportFormat {
    /// Every format, in the order in which errors name them.
    pub const ALL: [ImportFormat; 5] = [
        ImportFormat::Pi,
        ImportFormat::ClaudeCode,
        ImportFormat::Codex,
        ImportFormat::OpenAi,
        ImportFormat::Anthropic,
    ];

    /// The name used on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            ImportFormat::Pi => "pi",
            ImportFormat::ClaudeCode => "claude-code",
            ImportFormat::Codex => "codex",
            ImportFormat::OpenAi => "openai",
            ImportFormat::Anthropic => "anthropic",
        }
    }
}

impl fmt::Display for ImportFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Reads a recording of the given format, as [`detect`] found it.
///
/// A line that cannot be read is a [`ImportProblem`] of the import; only a recording without any message
/// of a person, a model or a tool is an error.
pub fn import_messages(
    format: ImportFormat,
    bytes: &[u8],
) -> Result<ImportedTranscript, ImportError> {
    match format {
        ImportFormat::Pi => Err(ImportError::Pi),
        ImportFormat::ClaudeCode => claude_code::import(bytes),
        ImportFormat::Codex => codex::import(bytes),
        ImportFormat::OpenAi => openai::import(bytes),
        ImportFormat::Anthropic => anthropic::import(bytes),
    }
}

/// A recording as Pi v3 messages.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ImportedTranscript {
    /// The messages, oldest first.
    pub messages: Vec<ImportedMessage>,
    /// Provider and model of the newest reply; `None` where the recording names no model.
    pub model: Option<(String, String)>,
    /// The folder the agent worked in; empty where the recording does not say.
    pub cwd: String,
    /// The id the other agent gave the session; empty where the recording does not say.
    pub id: String,
    /// The window that the recording names for its model, in provider tokens; the newest one.
    pub window_tokens: Option<u64>,
    /// What could not be read, in the order of the lines.
    pub problems: Vec<ImportProblem>,
}

/// One message of an import.
#[derive(Clone, Debug, PartialEq)]
pub struct ImportedMessage {
    /// The `message` object of a Pi v3 entry.
    pub message: Value,
    /// Milliseconds since 1970. Where the recording has no time, one second after the message
    /// before it, from 0.
    pub timestamp_ms: i64,
}

/// Something in a recording that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportProblem {
    /// The line it stands in, from 1.
    pub line: u64,
    /// What is wrong with it.
    pub message: String,
}

impl fmt::Display for ImportProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.message)
    }
}

/// Why a recording could not be imported.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ImportError {
    /// There is nothing in it.
    #[error("the recording is empty; give a file in one of the formats {}", names())]
    Empty,
    /// It is in no format that is known here.
    #[error("unknown recording format: it holds {seen}; the known formats are {}", names())]
    Unknown {
        /// What was found instead, in words.
        seen: String,
    },
    /// The format is known, but no message came out of it.
    #[error("no usable message in this {format} recording{}", first(problems))]
    NoMessage {
        /// The format it was read as.
        format: ImportFormat,
        /// What could not be read.
        problems: Vec<ImportProblem>,
    },
    /// A Pi session was given to the import of foreign ones.
    #[error("a pi session needs no import; open it as a session")]
    Pi,
}

fn names() -> String {
    ImportFormat::ALL.map(ImportFormat::name).join(", ")
}

fn first(problems: &[ImportProblem]) -> String {
    match problems {
        [] => String::new(),
        [only] => format!("; {only}"),
        [first, rest @ ..] => format!("; {first} (and {} more)", rest.len()),
    }
}
