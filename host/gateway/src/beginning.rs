//! The beginning of an answer: as long as nothing is said in it, a refusal can still be answered by a
//! smaller request, because the client has not got a byte.

use std::time::Duration;

use axum::body::Bytes;
use hyper::body::{Frame, Incoming};
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::time::{Instant, timeout_at};

use super::limits;
use ctxhost_dialects::failure::{Refusal, is_refusal, refusal_of};

/// The most that is held back, in bytes: OpenAI's first event repeats instructions and tools.
const HELD_MAX_BYTES: usize = 2 * 1024 * 1024;

/// The most of a refusal that is read, in bytes.
const REFUSAL_MAX_BYTES: usize = 256 * 1024;

/// What has been read of a body, and what came of it.
#[derive(Debug)]
pub(super) struct Beginning {
    /// The frames so far, as they came.
    pub(super) head: Vec<Frame<Bytes>>,
    /// What the provider refused; `None` where it answers, or where that is not known yet.
    pub(super) refusal: Option<Refusal>,
    /// Whether the body has ended.
    pub(super) is_whole: bool,
}

/// Reads a stream of events until something is said in it, at most for `hold`.
///
/// # Errors
///
/// What went wrong with the connection before anything was said.
pub(super) async fn of_stream(
    body: &mut Incoming,
    hold: Duration,
    idle: Duration,
) -> Result<Beginning, String> {
    let until = Instant::now() + hold;
    let mut beginning = Beginning { head: Vec::new(), refusal: None, is_whole: false };
    let mut events = Events::default();
    // The first bytes are waited for as long as any others: without them there is no answer.
    let mut next = limits::frame(body, idle).await;
    loop {
        let Some(frame) = next? else {
            beginning.is_whole = true;
            return Ok(beginning);
        };
        let told = match frame.data_ref() {
            Some(data) => events.take(data),
            None => Told::Something,
        };
        beginning.head.push(frame);
        match told {
            Told::Nothing if events.bytes.len() < HELD_MAX_BYTES => {}
            Told::Refused(refusal) => {
                beginning.refusal = Some(refusal);
                return Ok(beginning);
            }
            _ => return Ok(beginning),
        }
        match timeout_at(until, limits::frame(body, idle)).await {
            Ok(frame) => next = frame,
            Err(_) => return Ok(beginning),
        }
    }
}

/// Reads an answer with a status of failure.
///
/// # Errors
///
/// What went wrong with the connection.
pub(super) async fn of_failure(
    body: &mut Incoming,
    status: u16,
    idle: Duration,
) -> Result<Beginning, String> {
    let mut beginning = Beginning { head: Vec::new(), refusal: None, is_whole: false };
    let mut bytes = Vec::new();
    while bytes.len() < REFUSAL_MAX_BYTES {
        let Some(frame) = limits::frame(body, idle).await? else {
            beginning.is_whole = true;
            break;
        };
        bytes.extend_from_slice(frame.data_ref().map(Bytes::as_ref).unwrap_or_default());
        beginning.head.push(frame);
    }
    beginning.refusal = Some(refusal_of(Some(status), &String::from_utf8_lossy(&bytes)));
    Ok(beginning)
}

/// The most of a whole answer that is looked into for a refusal, in bytes: refusals are short.
pub(super) const DOCUMENT_MAX_BYTES: u64 = 16 * 1024;

/// Reads a short answer that is no stream, whole: some providers refuse with the status of success.
///
/// # Errors
///
/// What went wrong with the connection.
pub(super) async fn of_document(
    body: &mut Incoming,
    status: u16,
    idle: Duration,
) -> Result<Beginning, String> {
    let mut beginning = of_failure(body, status, idle).await?;
    let frames = beginning.head.iter().filter_map(Frame::data_ref);
    let bytes: Vec<u8> = frames.flat_map(|data| data.iter().copied()).collect();
    let document = serde_json::from_slice(&bytes);
    beginning.refusal = beginning.refusal.filter(|_| document.is_ok_and(|it| is_refusal(&it)));
    Ok(beginning)
}

/// What events tell.
#[derive(Debug, PartialEq)]
enum Told {
    /// That an answer begins.
    Nothing,
    /// A part of the answer, or anything else that we do not know.
    Something,
    /// That there is none.
    Refused(Refusal),
}

/// The events of a stream, as far as it was read.
#[derive(Debug, Default)]
struct Events {
    bytes: Vec<u8>,
    /// Where the first line stands that was not looked at.
    at: usize,
}

/// What matters of an event's data, in any dialect.
#[derive(Deserialize)]
struct Event<'a> {
    #[serde(rename = "type", default)]
    kind: Option<String>,
    #[serde(borrow, default)]
    error: Option<&'a RawValue>,
    /// MiniMax's, with a code of 0 where all is well.
    #[serde(default)]
    base_resp: Option<BaseResp>,
    #[serde(default)]
    choices: Option<Vec<Choice>>,
    #[serde(default)]
    content_block: Option<Block>,
    #[serde(default)]
    delta: Option<serde_json::Value>,
}

#[derive(Deserialize)]
struct BaseResp {
    #[serde(default)]
    status_code: i64,
}

/// A block of Anthropic's, as it begins: without the words that will stand in it.
#[derive(Deserialize)]
struct Block {
    #[serde(rename = "type")]
    kind: String,
}

#[derive(Deserialize)]
struct Choice {
    #[serde(default)]
    delta: serde_json::Map<String, serde_json::Value>,
    #[serde(default)]
    finish_reason: Option<String>,
}

/// Events that say no more than that an answer begins.
const QUIET: [&str; 8] = [
    "message_start",
    "content_block_stop",
    "ping",
    "response.created",
    "response.queued",
    "response.in_progress",
    "response.output_item.added",
    "response.content_part.added",
];

/// What a model stops for before it has said anything, where the window is full.
const FULL: [&str; 2] = ["model_context_window_exceeded", "model_length"];

/// Events that say that there will be none.
const REFUSING: [&str; 3] = ["error", "response.failed", "response.error"];

impl Events {
    /// Every event is one line of data in all dialects that come through here.
    fn take(&mut self, data: &[u8]) -> Told {
        self.bytes.extend_from_slice(data);
        while let Some(length) = self.bytes.get(self.at..).and_then(line_end) {
            let line = self.bytes.get(self.at..self.at + length).unwrap_or_default();
            let told = told_by(line.trim_ascii());
            self.at += length;
            if told != Told::Nothing {
                return told;
            }
        }
        Told::Nothing
    }
}

fn line_end(bytes: &[u8]) -> Option<usize> {
    memchr::memchr2(b'\n', b'\r', bytes).map(|at| at + 1)
}

fn told_by(line: &[u8]) -> Told {
    let Some(data) = line.strip_prefix(b"data:").map(<[u8]>::trim_ascii) else {
        // Comments, names of events, blank lines; a document begins otherwise.
        let is_event = [&b":"[..], b"event:", b"id:", b"retry:"];
        let is_quiet = line.is_empty() || is_event.iter().any(|name| line.starts_with(name));
        return if is_quiet { Told::Nothing } else { Told::Something };
    };
    let Ok(event) = serde_json::from_slice::<Event<'_>>(data) else { return Told::Something };
    let kind = event.kind.as_deref().unwrap_or_default();
    let has_error = event.error.is_some_and(|error| error.get() != "null");
    let is_failed = event.base_resp.as_ref().is_some_and(|base| base.status_code != 0);
    if REFUSING.contains(&kind) || has_error || is_failed {
        return Told::Refused(refusal_of(None, &String::from_utf8_lossy(data)));
    }
    if let Some(reason) = event.stop_reason().filter(|reason| FULL.contains(reason)) {
        let message = "the model stopped because its context window was full".to_owned();
        return Told::Refused(Refusal { status: None, code: reason.to_owned(), message });
    }
    let is_quiet = match (&event.choices, &event.content_block) {
        (Some(choices), _) => choices.iter().all(Choice::is_quiet),
        (None, Some(block)) => matches!(block.kind.as_str(), "text" | "thinking"),
        (None, None) => QUIET.contains(&kind),
    };
    if is_quiet { Told::Nothing } else { Told::Something }
}

impl Event<'_> {
    fn stop_reason(&self) -> Option<&str> {
        let of_delta = || self.delta.as_ref()?.get("stop_reason")?.as_str();
        let mut choices = self.choices.iter().flatten();
        of_delta().or_else(|| choices.find_map(|choice| choice.finish_reason.as_deref()))
    }
}

impl Choice {
    /// Whether it only tells whose answer begins.
    fn is_quiet(&self) -> bool {
        let says_nothing = |value: &serde_json::Value| match value {
            serde_json::Value::Null => true,
            serde_json::Value::String(text) => text.is_empty(),
            serde_json::Value::Array(items) => items.is_empty(),
            _ => false,
        };
        let rest = self.delta.iter().filter(|(name, _)| *name != "role");
        self.finish_reason.is_none() && rest.into_iter().all(|(_, value)| says_nothing(value))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const QUIET_STREAMS: [&str; 4] = [
        "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{}}\n\nevent: ping\ndata: {\"type\": \"ping\"}\n\n",
        "event: response.created\r\ndata: {\"type\":\"response.created\",\"response\":{\"error\":null}}\r\n\r\n",
        "data: {\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"\",\"refusal\":null},\"finish_reason\":null}]}\n\n",
        "data: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n: a comment\n\nid: 7\nretry: 3\n\n",
    ];

    const ERRORS: [&str; 6] = [
        "data: {\"choices\":null,\"base_resp\":{\"status_code\":2013,\"status_msg\":\"invalid params, context window exceeds limit\"}}\n\n",
        "data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"model_context_window_exceeded\"},\"usage\":{}}\n\n",
        "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\",\"message\":\"prompt is too long\"}}\n\n",
        "data: {\"type\":\"response.failed\",\"response\":{\"error\":{\"code\":\"context_length_exceeded\",\"message\":\"too long\"}}}\n\n",
        "data: {\"error\":{\"message\":\"maximum context length\",\"code\":\"context_length_exceeded\"}}\n\n",
        "data: {\"error\": {\"code\": 400, \"message\": \"The input token count exceeds the maximum\", \"status\": \"INVALID_ARGUMENT\"}}\n\n",
    ];

    const SAYING: [&str; 5] = [
        "data: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"tool_use\"}}\n\n",
        "data: {\"choices\":[{\"delta\":{\"content\":\"a\"},\"finish_reason\":null}]}\n\n",
        "data: {\"candidates\":[]}\n\n",
        "data: [DONE]\n\n",
        "{\"a\": 1}\n",
    ];

    /// What a stream tells that comes in pieces of so many bytes.
    fn told(stream: &str, piece_bytes: usize) -> Told {
        let mut events = Events::default();
        let pieces = stream.as_bytes().chunks(piece_bytes);
        let told = pieces.map(|piece| events.take(piece)).find(|told| *told != Told::Nothing);
        told.unwrap_or(Told::Nothing)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn what_is_told_does_not_depend_on_how_the_bytes_come(
            quiet in prop::collection::vec(prop::sample::select(&QUIET_STREAMS[..]), 0..3),
            error in prop::sample::select(&ERRORS[..]),
            saying in prop::sample::select(&SAYING[..]),
            piece_bytes in 1usize..200,
        ) {
            let quiet = quiet.concat();
            prop_assert_eq!(told(&quiet, piece_bytes), Told::Nothing);
            prop_assert_eq!(told(&format!("{quiet}{saying}{error}"), piece_bytes), Told::Something);
            let refused = told(&format!("{quiet}{error}{saying}"), piece_bytes);
            let Told::Refused(refusal) = refused else { panic!("{refused:?}") };
            prop_assert!(!refusal.message.is_empty());
        }
    }
}
