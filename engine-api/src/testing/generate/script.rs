//! Writes generated entries, each as a valid Pi v3 message.

use serde_json::{Value, json};

use super::GeneratedTranscript;
use crate::transcript::links::AnswerLinks;
use crate::transcript::log::NewEntry;
use crate::transcript::{EntryKind, Flags, Message, Role, tokens};

/// Timestamp of the first entry, in milliseconds since 1970; each later one is one second newer.
const FIRST_MS: i64 = 1_765_233_665_000;

/// A PNG image of 1 × 1 pixels, base64.
const PIXEL: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

/// Builds a transcript step by step.
///
/// ```
/// use ctxhost_engine_api::testing::generate::Script;
///
/// let generated = Script::new().user("task").calls("", &["a"]).result("a", "done").finish();
/// assert_eq!(generated.transcript().len(), 3);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Script {
    entries: Vec<NewEntry>,
    has_task: bool,
    rounds: usize,
}

impl Script {
    /// An empty script.
    pub fn new() -> Self {
        Script::default()
    }

    /// Appends a system entry, pinned.
    #[must_use]
    pub fn system(mut self, text: &str) -> Self {
        self.push_system(text);
        self
    }

    /// Appends a user message; the first is the task, pinned.
    #[must_use]
    pub fn user(mut self, text: &str) -> Self {
        self.push_user(text, 0);
        self
    }

    /// Appends a user message with images.
    #[must_use]
    pub fn user_with_images(mut self, text: &str, images: usize) -> Self {
        self.push_user(text, images);
        self
    }

    /// Appends an assistant message without calls.
    #[must_use]
    pub fn assistant(mut self, text: &str) -> Self {
        self.push_turn(&AssistantTurn { text, ..AssistantTurn::default() });
        self
    }

    /// Appends an assistant message that calls the tool `read` once for each id.
    #[must_use]
    pub fn calls(mut self, text: &str, ids: &[&str]) -> Self {
        self.push_turn(&AssistantTurn { text, ids: &owned(ids), ..AssistantTurn::default() });
        self
    }

    /// Appends the same, aborted by the user.
    #[must_use]
    pub fn aborted_calls(mut self, text: &str, ids: &[&str]) -> Self {
        self.push_turn(&AssistantTurn {
            text,
            ids: &owned(ids),
            aborted: true,
            ..AssistantTurn::default()
        });
        self
    }

    /// Appends a call with a text in its arguments, like the `write` of a file.
    #[must_use]
    pub fn call_with_argument(mut self, id: &str, argument: &str) -> Self {
        self.push_turn(&AssistantTurn { ids: &owned(&[id]), argument, ..AssistantTurn::default() });
        self
    }

    /// Appends an assistant message with links.
    #[must_use]
    pub fn linked(mut self, text: &str, ids: &[&str], refers_to: &[&str]) -> Self {
        let links = AnswerLinks { ids: owned(ids), refers_to: owned(refers_to) };
        self.push_turn(&AssistantTurn { text, links, ..AssistantTurn::default() });
        self
    }

    /// Appends the result of a call.
    #[must_use]
    pub fn result(mut self, id: &str, text: &str) -> Self {
        self.push_result(id, text, false);
        self
    }

    /// Appends a result without a call.
    #[must_use]
    pub fn orphan(mut self, text: &str) -> Self {
        let id = format!("orphan_{}", self.entries.len());
        self.push_result(&id, text, false);
        self
    }

    /// Appends the summary of a compaction.
    #[must_use]
    pub fn summary(mut self, text: &str) -> Self {
        self.push_kind(EntryKind::CompactionSummary, "compactionSummary", text);
        self
    }

    /// The generated transcript.
    pub fn finish(self) -> GeneratedTranscript {
        GeneratedTranscript { entries: self.entries }
    }

    /// Counts the tool rounds, for distinct call ids.
    pub(super) fn next_round(&mut self) -> usize {
        self.rounds += 1;
        self.rounds
    }

    pub(super) fn push_system(&mut self, text: &str) {
        self.push(
            EntryDraft::new(Role::System, json!({"role": "system", "content": text})).pinned(),
        );
    }

    pub(super) fn push_user(&mut self, text: &str, images: usize) {
        let mut blocks = vec![json!({"type": "text", "text": text})];
        let image = json!({"type": "image", "data": PIXEL, "mimeType": "image/png"});
        blocks.extend(std::iter::repeat_n(image, images));
        let mut part = EntryDraft::new(Role::User, json!({"role": "user", "content": blocks}));
        if images > 0 {
            part.flags = part.flags.with(Flags::IMAGES);
        }
        let part = if self.has_task { part } else { part.pinned() };
        self.has_task = true;
        self.push(part);
    }

    pub(super) fn push_heartbeat(&mut self, text: &str) {
        let mut part = EntryDraft::new(Role::User, json!({"role": "user", "content": text}));
        part.flags = Flags::HEARTBEAT;
        self.push(part);
    }

    /// Appends an entry of another kind than a message, with the role `User`.
    pub(super) fn push_kind(&mut self, kind: EntryKind, role: &str, text: &str) {
        let mut part = EntryDraft::new(Role::User, json!({"role": role, "content": text}));
        part.kind = kind;
        part.flags = Flags::SYNTHETIC;
        self.push(part);
    }

    pub(super) fn push_turn(&mut self, turn: &AssistantTurn<'_>) {
        let mut blocks = Vec::new();
        let mut flags = Flags::default();
        if turn.thinking {
            blocks.push(json!({"type": "thinking", "thinking": "hm", "thinkingSignature": "c2ln"}));
            flags = flags.with(Flags::THINKING);
        }
        if !turn.text.is_empty() {
            blocks.push(json!({"type": "text", "text": turn.text}));
        }
        blocks.extend(turn.ids.iter().map(|id| call_block(id, turn.argument)));
        let stop_reason = match (turn.aborted, turn.ids.is_empty()) {
            // As clients write it: an aborted message has no other stop reason.
            (true, _) => "aborted",
            (false, true) => "stop",
            (false, false) => "toolUse",
        };
        if turn.aborted {
            flags = flags.with(Flags::ABORTED);
        }
        let mut raw = json!({"role": "assistant", "content": blocks, "api": "anthropic-messages",
            "provider": "anthropic", "model": "test", "stopReason": stop_reason});
        if !turn.links.is_empty() {
            raw = with_member(raw, "links", json!(turn.links));
        }
        let mut part = EntryDraft::new(Role::Assistant, raw);
        part.calls = turn.ids.to_vec();
        part.flags = flags;
        self.push(part);
    }

    pub(super) fn push_result(&mut self, id: &str, text: &str, is_error: bool) {
        let raw = json!({"role": "toolResult", "toolCallId": id, "toolName": "read",
            "content": [{"type": "text", "text": text}], "isError": is_error});
        let mut part = EntryDraft::new(Role::Tool, raw);
        part.answers = Some(id.to_owned());
        if is_error {
            part.flags = Flags::ERROR;
        }
        self.push(part);
    }

    fn push(&mut self, part: EntryDraft) {
        let at = self.entries.len();
        let timestamp_ms = FIRST_MS + 1_000 * at as i64;
        // Text and tokens are read back from the JSON, so that the three cannot disagree.
        let raw = with_member(part.json, "timestamp", timestamp_ms.into()).to_string();
        let message = Message::parse(&raw, "");
        let (text, tokens) = (message.text(), tokens::message(&message));
        self.entries.push(NewEntry {
            id: format!("{at:08x}"),
            parent_id: self.entries.last().map(|entry| entry.id.clone()).unwrap_or_default(),
            timestamp_ms,
            role: part.role,
            kind: part.kind,
            flags: part.flags,
            tokens,
            text,
            raw,
            calls: part.calls,
            answers: part.answers,
        });
    }
}

/// The content of an assistant message.
#[derive(Default)]
pub(super) struct AssistantTurn<'t> {
    pub(super) text: &'t str,
    pub(super) ids: &'t [String],
    /// A text in the arguments of each call, which is a `read` if the text is empty.
    pub(super) argument: &'t str,
    pub(super) thinking: bool,
    pub(super) aborted: bool,
    pub(super) links: AnswerLinks,
}

fn call_block(id: &str, argument: &str) -> Value {
    let (name, arguments) = if argument.is_empty() {
        ("read", json!({"path": "src/lib.rs"}))
    } else {
        ("write", json!({"path": "notes.md", "content": argument}))
    };
    json!({"type": "toolCall", "id": id, "name": name, "arguments": arguments})
}

fn owned(ids: &[&str]) -> Vec<String> {
    ids.iter().map(|id| (*id).to_owned()).collect()
}

/// A valid rewrite of an entry: the same role and calls, other text, no thinking.
pub fn rewrite_raw(raw: &str, text: &str) -> String {
    let json: Value = serde_json::from_str(raw).unwrap_or_default();
    let content = json.get("content").and_then(Value::as_array);
    let mut blocks = content.cloned().unwrap_or_default();
    // Thinking is dropped: it may not be altered, only kept byte for byte.
    blocks.retain(|block| block.get("type").is_some_and(|kind| kind == "toolCall"));
    blocks.insert(0, json!({"type": "text", "text": text}));
    with_member(json, "content", blocks.into()).to_string()
}

fn with_member(mut json: Value, name: &str, value: Value) -> Value {
    if let Some(members) = json.as_object_mut() {
        members.insert(name.to_owned(), value);
    }
    json
}

/// The fields of an entry that depend on its role.
struct EntryDraft {
    role: Role,
    kind: EntryKind,
    flags: Flags,
    json: Value,
    calls: Vec<String>,
    answers: Option<String>,
}

impl EntryDraft {
    fn new(role: Role, json: Value) -> Self {
        let (kind, flags) = (EntryKind::Message, Flags::default());
        EntryDraft { role, kind, flags, json, calls: Vec::new(), answers: None }
    }

    fn pinned(mut self) -> Self {
        self.flags = self.flags.with(Flags::PINNED);
        self
    }
}
