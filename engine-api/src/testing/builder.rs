//! Builds small transcripts in the format of Pi session v3, deterministically.

use serde_json::{Value, json};

use crate::transcript::log::{NewEntry, TranscriptLog};
use crate::transcript::{EntryKind, Flags, Message, Role, Transcript, tokens};

/// Timestamp of the first entry, in milliseconds since 1970; each later one is one second newer.
const FIRST_MS: i64 = 1_767_225_600_000;

/// One transparent pixel, base64.
const PIXEL: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNkYPhfDwAChwGA60e6kgAAAABJRU5ErkJggg==";

/// A transcript log with a method for each usual kind of entry.
///
/// ```
/// use ctxhost_engine_api::testing::TranscriptBuilder;
///
/// let mut builder = TranscriptBuilder::new();
/// builder.user("list the files").calls(&[("c1", "ls", r#"{"path":"."}"#)]);
/// builder.result("c1", "ls", "a.rs").assistant("There is one file: a.rs");
/// assert_eq!(builder.transcript().len(), 4);
/// ```
#[derive(Debug, Default)]
pub struct TranscriptBuilder {
    log: TranscriptLog,
    last_id: String,
    has_task: bool,
}

impl TranscriptBuilder {
    /// An empty transcript of epoch 0.
    pub fn new() -> Self {
        TranscriptBuilder::default()
    }

    /// An empty transcript of an epoch, as after `epoch` compactions.
    pub fn with_epoch(epoch: u64) -> Self {
        TranscriptBuilder { log: TranscriptLog::new(epoch), ..TranscriptBuilder::default() }
    }

    /// A snapshot of the entries so far.
    pub fn transcript(&self) -> Transcript {
        self.log.snapshot()
    }

    /// Number of entries so far.
    pub fn len(&self) -> u64 {
        self.log.len() as u64
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.log.is_empty()
    }

    /// Appends instructions, pinned as by a host.
    pub fn system(&mut self, text: &str) -> &mut Self {
        let message = json!({ "role": "system", "content": text });
        self.message(Role::System, Flags::PINNED, text, &message)
    }

    /// Appends a user message. The first is the task, pinned as by a host.
    pub fn user(&mut self, text: &str) -> &mut Self {
        let pin = if self.has_task { Flags::default() } else { Flags::PINNED };
        self.has_task = true;
        let message = json!({ "role": "user", "content": [text_block(text)] });
        self.message(Role::User, pin, text, &message)
    }

    /// Appends a user message with an image.
    pub fn image(&mut self, text: &str) -> &mut Self {
        let image = json!({ "type": "image", "data": PIXEL, "mimeType": "image/png" });
        let message = json!({ "role": "user", "content": [text_block(text), image] });
        self.message(Role::User, Flags::IMAGES, text, &message)
    }

    /// Appends an assistant message with text.
    pub fn assistant(&mut self, text: &str) -> &mut Self {
        let message = assistant_message(json!([text_block(text)]), "stop");
        self.message(Role::Assistant, Flags::default(), text, &message)
    }

    /// Appends an assistant message with thinking and text.
    pub fn thinking(&mut self, thought: &str, text: &str) -> &mut Self {
        let thought = json!({ "type": "thinking", "thinking": thought, "thinkingSignature": "s" });
        let message = assistant_message(json!([thought, text_block(text)]), "stop");
        self.message(Role::Assistant, Flags::THINKING, text, &message)
    }

    /// Appends an assistant message with tool calls: `(call id, tool, arguments as JSON)` for each.
    pub fn calls(&mut self, calls: &[(&str, &str, &str)]) -> &mut Self {
        let block = |&(id, name, arguments): &(&str, &str, &str)| {
            // Callers may pass an empty text for a call without arguments.
            let arguments: Value = serde_json::from_str(arguments).unwrap_or_else(|_| json!({}));
            json!({ "type": "toolCall", "id": id, "name": name, "arguments": arguments })
        };
        let blocks: Vec<Value> = calls.iter().map(block).collect();
        let message = assistant_message(blocks.into(), "toolUse");
        let mut entry = self.next(Role::Assistant, Flags::default(), "", &message);
        entry.calls = calls.iter().map(|(id, ..)| (*id).to_owned()).collect();
        self.push(entry)
    }

    /// Appends a tool result.
    pub fn result(&mut self, call_id: &str, tool: &str, text: &str) -> &mut Self {
        self.tool_result(call_id, tool, text, Flags::default())
    }

    /// Appends a tool result that is an error.
    pub fn failure(&mut self, call_id: &str, tool: &str, text: &str) -> &mut Self {
        self.tool_result(call_id, tool, text, Flags::ERROR)
    }

    /// Appends the summary of a compaction.
    pub fn summary(&mut self, text: &str) -> &mut Self {
        let raw = json!({ "type": "compaction", "summary": text, "firstKeptEntryId": "" });
        let mut entry = self.next(Role::User, Flags::SYNTHETIC, text, &raw);
        entry.kind = EntryKind::CompactionSummary;
        self.push(entry)
    }

    /// Appends an entry.
    pub fn push(&mut self, entry: NewEntry) -> &mut Self {
        self.last_id.clone_from(&entry.id);
        self.log.append(entry);
        self
    }

    fn tool_result(&mut self, call_id: &str, tool: &str, text: &str, flags: Flags) -> &mut Self {
        let message = json!({
            "role": "toolResult",
            "toolCallId": call_id,
            "toolName": tool,
            "content": [text_block(text)],
            "isError": flags.contains(Flags::ERROR),
        });
        let mut entry = self.next(Role::Tool, flags, text, &message);
        entry.answers = Some(call_id.to_owned());
        self.push(entry)
    }

    fn message(&mut self, role: Role, flags: Flags, text: &str, message: &Value) -> &mut Self {
        let entry = self.next(role, flags, text, message);
        self.push(entry)
    }

    /// The next entry, with its id, time and tokens.
    fn next(&self, role: Role, flags: Flags, text: &str, json: &Value) -> NewEntry {
        let at = self.log.len();
        let raw = json.to_string();
        NewEntry {
            // Ids of different epochs differ, as in a real session.
            id: format!("{:02x}{at:06x}", self.log.epoch() & 0xff),
            parent_id: self.last_id.clone(),
            timestamp_ms: FIRST_MS + at as i64 * 1_000,
            role,
            kind: EntryKind::Message,
            flags,
            // Counted from the JSON like in a host, so that budgets in tests are realistic.
            tokens: tokens::message(&Message::parse(&raw, text)),
            text: text.to_owned(),
            raw,
            calls: Vec::new(),
            answers: None,
        }
    }
}

fn text_block(text: &str) -> Value {
    json!({ "type": "text", "text": text })
}

fn assistant_message(content: Value, stop_reason: &str) -> Value {
    json!({
        "role": "assistant",
        "content": content,
        "provider": "scripted",
        "model": "scripted-1",
        "stopReason": stop_reason,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_read_back_as_appended() {
        let mut builder = TranscriptBuilder::new();
        builder.system("be brief").user("look").image("at this");
        builder.calls(&[("c1", "read", r#"{"path":"a"}"#), ("c2", "ls", "{}")]);
        builder.result("c1", "read", "text").failure("c2", "ls", "no such folder");
        builder.thinking("hm", "done").summary("so far");
        let transcript = builder.transcript();

        let calls = transcript.get(3).unwrap().tool_calls();
        let ids: Vec<_> = calls.iter().map(|call| (call.id.as_ref(), call.name.as_ref())).collect();
        assert_eq!(ids, [("c1", "read"), ("c2", "ls")]);
        assert_eq!(calls[0].string_argument(&["path"]).as_deref(), Some("a"));
        let result = transcript.get(5).unwrap().tool_result().unwrap();
        assert_eq!((result.call_id.as_ref(), result.is_error), ("c2", true));
        assert!(transcript.get(1).unwrap().has(Flags::PINNED));
        assert!(!transcript.get(2).unwrap().has(Flags::PINNED));
        assert!(transcript.get(2).unwrap().tokens() >= tokens::IMAGE_TOKENS);
        let frames: Vec<u64> = transcript.iter().map(|entry| entry.frame()).collect();
        assert_eq!(frames, [0, 1, 2, 3, 3, 3, 6, 7]);
        assert_eq!(transcript.last().unwrap().kind(), EntryKind::CompactionSummary);
        assert!(!transcript.get(3).unwrap().has(Flags::UNANSWERED));
    }
}
