//! A conversation in Anthropic's dialect that grows by one exchange a request.

use bytes::Bytes;
use serde_json::json;

/// What one message of the bulk holds, in bytes.
const MESSAGE_BYTES: usize = 1_700;

/// A conversation, as a client keeps it. Its messages are kept as JSON: writing them anew for each request would take the
/// client longer than a proxy.
pub(crate) struct Talk {
    name: String,
    /// The first messages but one, which are the same after each restart.
    bulk: String,
    messages: String,
    begin: usize,
    count: usize,
    number: usize,
}

impl Talk {
    /// One of that name whose requests have about so many bytes.
    pub(crate) fn new(name: &str, bytes: usize) -> Talk {
        let text = "lorem ipsum ".repeat(MESSAGE_BYTES / 12);
        // An odd number: the user's turn is the last.
        let begin = (bytes / MESSAGE_BYTES).max(1).next_multiple_of(2) - 1;
        let mut bulk = String::new();
        for at in 1..begin {
            push_message(&mut bulk, at, &format!("{at} {text}"));
        }
        let name = format!("{name} {bytes}");
        let mut talk = Talk { name, bulk, messages: String::new(), begin, count: 0, number: 0 };
        talk.restart();
        talk
    }

    /// Back to the beginning, as another conversation.
    pub(crate) fn restart(&mut self) {
        self.number += 1;
        self.count = self.begin;
        self.messages.clear();
        push_message(
            &mut self.messages,
            0,
            &format!("conversation {} of {}", self.number, self.name),
        );
        self.messages.push_str(&self.bulk);
    }

    /// The model has answered, and the person goes on.
    pub(crate) fn go_on(&mut self) {
        for text in [format!("answer {}", self.count), format!("and {}?", self.count)] {
            push_message(&mut self.messages, self.count, &text);
            self.count += 1;
        }
    }

    /// The next request.
    pub(crate) fn body(&self) -> Bytes {
        self.with("\"stream\":false")
    }

    /// The same, answered as a stream of so many chunks.
    pub(crate) fn stream_body(&self, chunks: usize) -> Bytes {
        self.with(&format!("\"stream\":true,\"metadata\":{{\"chunks\":{chunks}}}"))
    }

    fn with(&self, more: &str) -> Bytes {
        let messages = &self.messages;
        format!("{{\"model\":\"bench\",\"max_tokens\":1000,\"messages\":[{messages}],{more}}}")
            .into()
    }
}

fn push_message(list: &mut String, at: usize, text: &str) {
    let role = if at.is_multiple_of(2) { "user" } else { "assistant" };
    if at > 0 {
        list.push(',');
    }
    list.push_str(&json!({ "role": role, "content": text }).to_string());
}
