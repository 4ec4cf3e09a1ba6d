//! The result of an import: formats, messages, problems and errors.

use std::fmt;
use std::ops::Range;

use serde_json::Value;

/// A format of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ImportFormat {
    /// A session of Pi of any version, which needs no import.
    Pi,
    /// A session of Claude Code: JSON lines linked by `parentUuid`.
    ClaudeCode,
    /// A rollout of OpenAI Codex: JSON lines with a `payload`.
    Codex,
    /// A chat of Gemini CLI: JSON lines, or one JSON document of older versions.
    GeminiCli,
    /// A session of opencode: the session file of its storage, or an export.
    OpenCode,
    /// Messages of the OpenAI chat completions API, or items of the Responses API.
    OpenAi,
    /// Messages of the Anthropic API.
    Anthropic,
}

impl ImportFormat {
    /// Every format, in the order of error messages.
    pub const ALL: [ImportFormat; 7] = [
        ImportFormat::Pi,
        ImportFormat::ClaudeCode,
        ImportFormat::Codex,
        ImportFormat::GeminiCli,
        ImportFormat::OpenCode,
        ImportFormat::OpenAi,
        ImportFormat::Anthropic,
    ];

    /// The name on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            ImportFormat::Pi => "pi",
            ImportFormat::ClaudeCode => "claude-code",
            ImportFormat::Codex => "codex",
            ImportFormat::GeminiCli => "gemini-cli",
            ImportFormat::OpenCode => "opencode",
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

/// A recording as Pi v3 messages.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ImportedTranscript {
    /// The messages, oldest first.
    pub messages: Vec<ImportedMessage>,
    /// The compactions of the agent, oldest first.
    pub compactions: Vec<ImportedCompaction>,
    /// The version of the agent; empty if unknown.
    pub agent_version: String,
    /// Provider and model of the newest reply, if the recording names a model.
    pub model: Option<(String, String)>,
    /// The working folder of the agent; empty if unknown.
    pub cwd: String,
    /// The session id of the other agent; empty if unknown.
    pub id: String,
    /// The newest context window that the recording names, in provider tokens.
    pub window_tokens: Option<u64>,
    /// What could not be read, by line.
    pub problems: Vec<ImportProblem>,
}

/// One message of an import.
#[derive(Clone, Debug, PartialEq)]
pub struct ImportedMessage {
    /// The `message` object of a Pi v3 entry.
    pub message: Value,
    /// Milliseconds since 1970. Without a recorded time, one second after the preceding message,
    /// starting at 0.
    pub timestamp_ms: i64,
}

/// A compaction in a recording: what the agent's context held afterwards.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ImportedCompaction {
    /// The number of messages before it.
    pub at: usize,
    /// The context afterwards, in order; of an edit, the changed messages only.
    pub items: Vec<ImportedItem>,
    /// Whether all other messages of the context stay as they are. An agent may clear results one by one, so a
    /// whole context for each would grow with the square of the recording.
    pub is_edit: bool,
    /// `auto` or `manual`; `prune` if it cleared tool results only, `rollback` if a cancelled request was
    /// taken back; empty if unknown.
    pub trigger: String,
    /// The size of the context before, as the agent counted it; 0 if unknown.
    pub tokens_before: u64,
    /// The size afterwards; 0 if unknown.
    pub tokens_after: u64,
    /// Milliseconds since 1970.
    pub timestamp_ms: i64,
}

/// One message of the context after a compaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImportedItem {
    /// Messages of the history, by their indexes.
    Keep(Range<usize>),
    /// A message of the history with another text.
    ReplaceText {
        /// Its index.
        message: usize,
        /// The text.
        text: String,
    },
    /// A message that is not in the history, such as the summary.
    Insert {
        /// Whether the model sees it as its own, and not as one of the user.
        is_reply: bool,
        /// The text.
        text: String,
    },
}

impl ImportedItem {
    /// The message that gets another text.
    pub(super) fn replaced_message(&self) -> Option<usize> {
        match self {
            ImportedItem::ReplaceText { message, .. } => Some(*message),
            ImportedItem::Keep(_) | ImportedItem::Insert { .. } => None,
        }
    }

    /// Adds messages that stay, joined with those before them.
    pub(super) fn keep(items: &mut Vec<ImportedItem>, messages: Range<usize>) {
        match items.last_mut() {
            _ if messages.is_empty() => {}
            Some(ImportedItem::Keep(kept)) if kept.end == messages.start => kept.end = messages.end,
            _ => items.push(ImportedItem::Keep(messages)),
        }
    }
}

/// Something in a recording that could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImportProblem {
    /// The line, from 1.
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
    /// It has no content.
    #[error("the recording is empty; expected a file in one of the formats {}", format_names())]
    Empty,
    /// Its format is unknown.
    #[error("unknown recording format: found {seen}; known formats are {}", format_names())]
    Unknown {
        /// What was found instead.
        seen: String,
    },
    /// The format is known, but there is no usable message.
    #[error("no usable message in this {format} recording{}", describe_first(problems))]
    NoMessage {
        /// The format.
        format: ImportFormat,
        /// What could not be read.
        problems: Vec<ImportProblem>,
    },
    /// It is a Pi session.
    #[error("a pi session needs no import; open it as a session")]
    Pi,
}

fn format_names() -> String {
    ImportFormat::ALL.map(ImportFormat::name).join(", ")
}

fn describe_first(problems: &[ImportProblem]) -> String {
    match problems {
        [] => String::new(),
        [only] => format!("; {only}"),
        [first, rest @ ..] => format!("; {first} (and {} more)", rest.len()),
    }
}
