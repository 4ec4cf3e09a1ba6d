//! Bodies of requests, and conversations that grow.

use serde_json::{Value, json};

use crate::http::{self, Answer};

/// The door that most attacks knock at.
pub(crate) const CHAT: &str = "/v1/chat/completions";

/// A request for an answer.
pub(crate) fn chat(messages: &[Value], streams: bool) -> Vec<u8> {
    let body = json!({
        "model": "some-model", "messages": messages, "stream": streams, "max_tokens": 100,
    });
    body.to_string().into_bytes()
}

pub(crate) fn user(text: &str) -> Value {
    json!({ "role": "user", "content": text })
}

/// A conversation that a client sends whole with every request.
#[derive(Clone, Debug)]
pub(crate) struct Talk {
    pub(crate) messages: Vec<Value>,
    pub(crate) session: Option<String>,
    /// What was said in requests that were answered.
    pub(crate) acknowledged: Vec<String>,
    said: Vec<String>,
    pub(crate) sessions_named: Vec<String>,
}

impl Talk {
    pub(crate) fn new(session: Option<&str>) -> Talk {
        Talk {
            messages: Vec::new(),
            session: session.map(str::to_owned),
            acknowledged: Vec::new(),
            said: Vec::new(),
            sessions_named: Vec::new(),
        }
    }

    /// The person says this, and the model is asked. An answer goes into the conversation.
    pub(crate) fn ask(&mut self, address: &str, words: &str) -> Answer {
        self.say(words);
        self.ask_again(address)
    }

    pub(crate) fn say(&mut self, words: &str) {
        self.messages.push(user(words));
        self.said.push(words.to_owned());
    }

    /// The model calls a tool, which answers.
    pub(crate) fn use_tool(&mut self, id: &str, result: &str) {
        let call = json!({
            "id": id, "type": "function",
            "function": { "name": "look", "arguments": "{\"at\":\"it\"}" },
        });
        self.messages.push(json!({ "role": "assistant", "content": null, "tool_calls": [call] }));
        self.messages.push(json!({ "role": "tool", "tool_call_id": id, "content": result }));
    }

    /// Sends what stands there.
    pub(crate) fn ask_again(&mut self, address: &str) -> Answer {
        let mut headers = vec![("authorization", "Bearer key-of-the-client")];
        if let Some(session) = &self.session {
            headers.push(("x-ctxhost-session", session.as_str()));
        }
        let body = chat(&self.messages, false);
        let answer = http::ask(address, "POST", CHAT, &headers, &body);
        if answer.status == 200 && answer.is_whole {
            let said: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
            let text = said["choices"][0]["message"]["content"].as_str().unwrap_or("…").to_owned();
            self.messages.push(json!({ "role": "assistant", "content": text }));
            self.acknowledged.append(&mut self.said);
            self.sessions_named.extend(answer.header("x-ctxhost-session"));
        }
        answer
    }
}

/// A zstd frame of runs: each of `parts` is a byte string, or one byte and how often it comes.
pub(crate) fn zstd(parts: &[(&[u8], usize)]) -> Vec<u8> {
    const BLOCK: usize = 128 << 10;
    // No content size and no checksum, a window of 128 MiB less nothing: 2^27 bytes would be refused by some.
    let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x38];
    let header = |size: usize, kind: u32, is_last: bool| {
        let value = ((size as u32) << 3) | (kind << 1) | u32::from(is_last);
        value.to_le_bytes()[..3].to_vec()
    };
    for (bytes, times) in parts {
        if *times == 1 {
            for piece in bytes.chunks(BLOCK) {
                frame.extend(header(piece.len(), 0, false));
                frame.extend_from_slice(piece);
            }
            continue;
        }
        let mut left = *times;
        while left > 0 {
            let now = left.min(BLOCK);
            frame.extend(header(now, 1, false));
            frame.push(bytes[0]);
            left -= now;
        }
    }
    frame.extend(header(0, 0, true));
    frame
}

/// A gzip member of one stored block after another would not be small: this one is deflate's longest matches of one byte,
/// about a thousandth of what it becomes.
pub(crate) fn gzip_of_zeros(bytes: usize) -> Vec<u8> {
    let mut out = vec![0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3];
    let mut bits = Bits { out: Vec::new(), now: 0, used: 0 };
    // One block with fixed codes: a literal zero, and then matches of length 258 at distance 1.
    bits.put(1, 1);
    bits.put(1, 2);
    bits.put_code(0x30, 8);
    for _ in 0..bytes / 258 {
        bits.put_code(0b1100_0101, 8);
        bits.put_code(0, 5);
    }
    bits.put_code(0, 7);
    out.extend(bits.finish());
    out.extend([0; 4]);
    out.extend(((bytes / 258 * 258 + 1) as u32).to_le_bytes());
    out
}

struct Bits {
    out: Vec<u8>,
    now: u32,
    used: u32,
}

impl Bits {
    /// The lowest bits first, as deflate wants numbers.
    fn put(&mut self, value: u32, count: u32) {
        for bit in 0..count {
            self.now |= ((value >> bit) & 1) << self.used;
            self.used += 1;
            if self.used == 8 {
                self.out.push(self.now as u8);
                (self.now, self.used) = (0, 0);
            }
        }
    }

    /// The highest bits first, as deflate wants codes.
    fn put_code(&mut self, code: u32, count: u32) {
        for bit in (0..count).rev() {
            self.put((code >> bit) & 1, 1);
        }
    }

    fn finish(mut self) -> Vec<u8> {
        if self.used > 0 {
            self.out.push(self.now as u8);
        }
        self.out
    }
}
