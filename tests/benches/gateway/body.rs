//! A conversation in Anthropic's dialect that grows by one exchange a request.

use bytes::Bytes;
use serde_json::{Value, json};

/// What one message of the bulk holds, in bytes.
const MESSAGE_BYTES: usize = 1_700;

/// A conversation, as a client keeps it.
pub(crate) struct Talk {
    name: String,
    messages: Vec<Value>,
    begin: usize,
    number: usize,
}

impl Talk {
    /// One of that name whose requests have about so many bytes.
    pub(crate) fn new(name: &str, bytes: usize) -> Talk {
        let text = "lorem ipsum ".repeat(MESSAGE_BYTES / 12);
        let mut messages = Vec::new();
        for at in 0..(bytes / MESSAGE_BYTES).max(1) {
            let role = if at % 2 == 0 { "user" } else { "assistant" };
            messages.push(json!({ "role": role, "content": format!("{at} {text}") }));
        }
        if messages.len() % 2 == 0 {
            messages.pop();
        }
        let name = format!("{name} {bytes}");
        Talk { name, begin: messages.len(), messages, number: 0 }
    }

    /// Back to the beginning, as another conversation.
    pub(crate) fn restart(&mut self) {
        self.number += 1;
        self.messages.truncate(self.begin);
        let first = format!("conversation {} of {}", self.number, self.name);
        self.messages[0] = json!({ "role": "user", "content": first });
    }

    /// The model has answered, and the person goes on.
    pub(crate) fn go_on(&mut self) {
        let at = self.messages.len();
        self.messages.push(json!({ "role": "assistant", "content": format!("answer {at}") }));
        self.messages.push(json!({ "role": "user", "content": format!("and {at}?") }));
    }

    /// The next request.
    pub(crate) fn body(&self) -> Bytes {
        self.with(json!({ "stream": false }))
    }

    /// The same, answered as a stream of so many chunks.
    pub(crate) fn stream_body(&self, chunks: usize) -> Bytes {
        self.with(json!({ "stream": true, "metadata": { "chunks": chunks } }))
    }

    fn with(&self, more: Value) -> Bytes {
        let mut body = json!({ "model": "bench", "max_tokens": 1_000, "messages": self.messages });
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        body.to_string().into()
    }
}
