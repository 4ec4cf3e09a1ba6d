//! Small transcripts for tests.

use ctxhost_engine_api::transcript::log::{NewEntry, TranscriptLog};
use ctxhost_engine_api::transcript::tokens;
use ctxhost_engine_api::{Flags, Kind, Message, Role};
use serde_json::{Value, json};

#[derive(Default)]
pub(crate) struct Sample(pub(crate) TranscriptLog);

impl Sample {
    pub(crate) fn user(&mut self, text: &str) -> &mut Self {
        let raw = json!({"role": "user", "content": [{"type": "text", "text": text}]});
        self.push(Role::User, Kind::Message, Flags::default(), text, raw, vec![], None)
    }

    pub(crate) fn assistant(&mut self, text: &str) -> &mut Self {
        let raw = json!({"role": "assistant", "content": [{"type": "text", "text": text}]});
        self.push(Role::Assistant, Kind::Message, Flags::default(), text, raw, vec![], None)
    }

    pub(crate) fn call(&mut self, id: &str, name: &str, arguments: Value) -> &mut Self {
        let call = json!({"type": "toolCall", "id": id, "name": name, "arguments": arguments});
        let raw = json!({"role": "assistant", "content": [call]});
        self.push(Role::Assistant, Kind::Message, Flags::default(), "", raw, vec![id.into()], None)
    }

    pub(crate) fn result(&mut self, id: &str, name: &str, text: &str, error: bool) -> &mut Self {
        let content = json!([{"type": "text", "text": text}]);
        let raw = json!({
            "role": "toolResult", "toolCallId": id, "toolName": name, "isError": error,
            "content": content,
        });
        let flags = if error { Flags::ERROR } else { Flags::default() };
        self.push(Role::Tool, Kind::Message, flags, text, raw, vec![], Some(id.into()))
    }

    pub(crate) fn summary(&mut self, text: &str) -> &mut Self {
        let raw = json!({"type": "compaction", "summary": text});
        let kind = Kind::CompactionSummary;
        self.push(Role::User, kind, Flags::SYNTHETIC, text, raw, vec![], None)
    }

    #[expect(clippy::too_many_arguments, reason = "one place where every field is filled in")]
    fn push(
        &mut self,
        role: Role,
        kind: Kind,
        flags: Flags,
        text: &str,
        raw: Value,
        calls: Vec<String>,
        answers: Option<String>,
    ) -> &mut Self {
        let raw = raw.to_string();
        let id = format!("{:04x}", self.0.len());
        let tokens = tokens::message(&Message::parse(&raw, text));
        let flags = if self.0.is_empty() { flags.with(Flags::PINNED) } else { flags };
        self.0.append(NewEntry {
            id,
            parent_id: String::new(),
            timestamp_ms: 0,
            role,
            kind,
            flags,
            tokens,
            text: text.into(),
            raw,
            calls,
            answers,
        });
        self
    }
}
