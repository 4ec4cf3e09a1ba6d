//! What an answer says of tokens, noted while its bytes pass.

use axum::body::Bytes;
use memchr::memmem::Finder;
use memchr::{memchr, memrchr};
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::bodies::Room;
use ctxhost_dialects::message::Usage;
use ctxhost_dialects::{DialectName, take_usage};

/// The most of one event or document that is looked at, in bytes.
const LOOKED_AT_MAX_BYTES: usize = 64 * 1024 * 1024;

/// How deep a usage may stand: in a message, of an event, of a list. What an upstream sends may be nothing
/// but depth, and a stack has an end.
const DEPTH_MAX: u32 = 3;

/// What every usage begins with: `"usage"`, `"usageMetadata"`.
const SIGN: &[u8] = b"\"usage";

/// Reads along. Nothing is parsed before the end: of a stream the first and the last event with a
/// usage are kept, of a document its pieces.
#[derive(Debug)]
pub(crate) struct Counting {
    dialect: DialectName,
    read: Read,
    /// What is kept takes room among the bodies of requests; where there is none, nothing is counted.
    room: Room,
}

#[derive(Debug)]
enum Read {
    Events(Box<Lines>),
    Document { pieces: Vec<Bytes>, bytes: usize },
}

#[derive(Debug)]
struct Lines {
    sign: Finder<'static>,
    /// The beginning of a line whose end has not come.
    open: Vec<u8>,
    first: Option<Vec<u8>>,
    last: Vec<u8>,
}

impl Counting {
    /// Of a stream of events, or else of one document.
    pub(crate) fn of(dialect: DialectName, is_stream: bool, room: Room) -> Counting {
        let read = match is_stream {
            true => Read::Events(Box::new(Lines {
                sign: Finder::new(SIGN),
                open: Vec::new(),
                first: None,
                last: Vec::new(),
            })),
            false => Read::Document { pieces: Vec::new(), bytes: 0 },
        };
        Counting { dialect, read, room }
    }

    /// The next bytes.
    pub(crate) fn see(&mut self, data: &Bytes) {
        match &mut self.read {
            Read::Events(lines) => lines.see(data, &mut self.room),
            Read::Document { pieces, bytes } => {
                *bytes = bytes.saturating_add(data.len());
                if *bytes <= LOOKED_AT_MAX_BYTES && self.room.take(data.len()) {
                    pieces.push(data.clone());
                } else {
                    // A part of it says nothing.
                    (*pieces, *bytes) = (Vec::new(), usize::MAX);
                }
            }
        }
    }

    /// What was counted; `None` where the answer says nothing of it.
    pub(crate) fn counted(self) -> Option<Usage> {
        let mut usage = Usage::default();
        let mut is_said = false;
        let mut take = |text: &[u8]| {
            for said in usages(text, DEPTH_MAX) {
                take_usage(self.dialect, &said, &mut usage);
                is_said = true;
            }
        };
        match self.read {
            Read::Events(lines) => {
                lines.first.iter().for_each(|line| take(line));
                take(&lines.last);
            }
            Read::Document { pieces, bytes } if bytes <= LOOKED_AT_MAX_BYTES => {
                match pieces.as_slice() {
                    [one] => take(one),
                    many => take(&many.concat()),
                }
            }
            Read::Document { .. } => {}
        }
        is_said.then_some(usage)
    }
}

impl Lines {
    fn see(&mut self, mut data: &[u8], room: &mut Room) {
        if !self.open.is_empty() {
            let end = memchr(b'\n', data).map_or(data.len(), |at| at + 1);
            let (rest, after) = data.split_at(end);
            if self.open.len() + rest.len() <= LOOKED_AT_MAX_BYTES && room.take(rest.len()) {
                self.open.extend_from_slice(rest);
            }
            if !rest.ends_with(b"\n") {
                return;
            }
            let line = std::mem::take(&mut self.open);
            room.give_back(line.len());
            self.look(&line);
            data = after;
        }
        let whole = memrchr(b'\n', data).map_or(0, |at| at + 1);
        let (lines, open) = data.split_at(whole);
        self.look(lines);
        if room.take(open.len()) {
            self.open.extend_from_slice(open);
        }
    }

    /// Notes the lines that hold a usage. The sign is looked for in all of them at once.
    fn look(&mut self, mut lines: &[u8]) {
        while let Some(at) = self.sign.find(lines) {
            let (before, after) = lines.split_at(at);
            let begin = memrchr(b'\n', before).map_or(0, |at| at + 1);
            let end = at + memchr(b'\n', after).unwrap_or(after.len());
            let Some(line) = lines.get(begin..end) else { return };
            if says_more_than_null(after) {
                self.note(line);
                lines = lines.get(end..).unwrap_or_default();
            } else {
                lines = after.get(SIGN.len()..).unwrap_or_default();
            }
        }
    }

    fn note(&mut self, line: &[u8]) {
        if self.first.is_none() {
            self.first = Some(line.to_owned());
        } else {
            self.last.clear();
            self.last.extend_from_slice(line);
        }
    }
}

/// OpenAI's chunks say `"usage":null` until the last one.
fn says_more_than_null(sign: &[u8]) -> bool {
    let rest = sign.get(SIGN.len()..).unwrap_or_default();
    let value = rest.strip_prefix(b"\":").map(<[u8]>::trim_ascii_start);
    !value.is_some_and(|value| value.starts_with(b"null"))
}

/// Where a usage may stand, in any dialect.
#[derive(Deserialize)]
struct Told<'a> {
    #[serde(borrow, default)]
    usage: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "usageMetadata")]
    usage_metadata: Option<&'a RawValue>,
    #[serde(borrow, default)]
    message: Option<&'a RawValue>,
    #[serde(borrow, default)]
    response: Option<&'a RawValue>,
}

/// The usage objects of an event, of a document, or of a list of documents.
fn usages(text: &[u8], depth: u32) -> Vec<Value> {
    let Some(depth) = depth.checked_sub(1) else { return Vec::new() };
    let text = text.trim_ascii();
    let text = text.strip_prefix(b"data:").unwrap_or(text).trim_ascii();
    if let Ok(list) = serde_json::from_slice::<Vec<&RawValue>>(text) {
        return list.iter().flat_map(|one| usages(one.get().as_bytes(), depth)).collect();
    }
    let Ok(told) = serde_json::from_slice::<Told<'_>>(text) else { return Vec::new() };
    let is_object = |value: &Value| value.is_object();
    let own = [told.usage, told.usage_metadata].into_iter().flatten();
    let own = own.filter_map(|usage| serde_json::from_str(usage.get()).ok()).filter(is_object);
    let inner = [told.message, told.response].into_iter().flatten();
    let inner = inner.flat_map(|inner| usages(inner.get().as_bytes(), depth));
    own.chain(inner).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What is counted of an answer that comes in pieces of so many bytes.
    fn counted(dialect: DialectName, is_stream: bool, text: &str, piece: usize) -> Option<Usage> {
        let room = crate::bodies::Bodies::new(u64::MAX, Default::default()).room();
        let mut counting = Counting::of(dialect, is_stream, room);
        for piece in text.as_bytes().chunks(piece) {
            counting.see(&Bytes::copy_from_slice(piece));
        }
        counting.counted()
    }

    fn usage(input: u64, cache_read: u64, output: u64) -> Option<Usage> {
        Some(Usage { input, cache_read, output, ..Usage::default() }.summed())
    }

    const ANTHROPIC: &str = "event: message_start\n\
        data: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":7,\"cache_read_input_tokens\":3,\"output_tokens\":1}}}\n\n\
        data: {\"type\":\"content_block_delta\",\"delta\":{\"text\":\"\\\"usage\\\": {\\\"output_tokens\\\": 900}\"}}\n\n\
        data: {\"type\":\"message_delta\",\"delta\":{},\"usage\":{\"output_tokens\":40}}\n\n\
        data: {\"type\":\"message_stop\"}\n\n";
    const CHAT: &str = "data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}],\"usage\":null}\n\n\
        data: {\"choices\":[],\"usage\": null}\n\n\
        data: {\"choices\":[],\"usage\":{\"prompt_tokens\":10,\"completion_tokens\":40,\"prompt_tokens_details\":{\"cached_tokens\":3}}}\n\n\
        data: [DONE]\n\n";
    const RESPONSES: &str = "data: {\"type\":\"response.created\",\"response\":{\"usage\":null}}\n\n\
        data: {\"type\":\"response.completed\",\"response\":{\"usage\":{\"input_tokens\":10,\"input_tokens_details\":{\"cached_tokens\":3},\"output_tokens\":40}}}\n\n";
    const GEMINI: &str = "data: {\"candidates\":[],\"usageMetadata\":{\"promptTokenCount\":10}}\r\n\r\n\
        data: {\"usageMetadata\":{\"promptTokenCount\":10,\"candidatesTokenCount\":30,\"thoughtsTokenCount\":10,\"cachedContentTokenCount\":3}}\r\n\r\n";

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn what_is_counted_does_not_depend_on_how_the_bytes_come(piece in 1usize..300) {
            let streams = [
                (DialectName::AnthropicMessages, ANTHROPIC),
                (DialectName::OpenAiCompletions, CHAT),
                (DialectName::OpenAiResponses, RESPONSES),
                (DialectName::GoogleGenerativeAi, GEMINI),
            ];
            for (dialect, stream) in streams {
                prop_assert_eq!(counted(dialect, true, stream, piece), usage(7, 3, 40), "{:?}", dialect);
            }
        }
    }

    #[test]
    fn documents_are_counted_too_and_lists_of_them() {
        let whole = "{\"content\":[],\"usage\":{\"input_tokens\":7,\"cache_read_input_tokens\":3,\"output_tokens\":40}}";
        assert_eq!(counted(DialectName::AnthropicMessages, false, whole, 9), usage(7, 3, 40));
        let list = "[{\"usageMetadata\":{\"promptTokenCount\":10}},\n{\"usageMetadata\":{\"promptTokenCount\":10,\"cachedContentTokenCount\":3,\"candidatesTokenCount\":40}}]";
        assert_eq!(counted(DialectName::GoogleGenerativeAi, false, list, 9), usage(7, 3, 40));
    }

    #[test]
    fn an_answer_that_is_nothing_but_depth_is_read_as_far_as_any_usage_stands() {
        let lists = format!("{}{}", "[".repeat(20_000), "]".repeat(20_000));
        assert_eq!(counted(DialectName::OpenAiCompletions, false, &lists, 9_000), None);
        let inner = "{\"usage\":{\"output_tokens\":4}}";
        let opened = "{\"message\":".repeat(20_000);
        let deep = format!("data: {opened}{inner}{}\n\n", "}".repeat(20_000));
        assert_eq!(counted(DialectName::AnthropicMessages, true, &deep, 9_000), None);
    }

    #[test]
    fn an_answer_that_says_nothing_of_tokens_has_no_usage() {
        for text in ["", "data: {}\n\n", "<html>\"usage\"</html>\n", "data: {\"usage\":7}\n\n"] {
            assert_eq!(counted(DialectName::OpenAiCompletions, true, text, 5), None, "{text}");
            assert_eq!(counted(DialectName::OpenAiCompletions, false, text, 5), None, "{text}");
        }
    }
}
