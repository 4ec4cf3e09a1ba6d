//! Peeks at the start of a response: until the first content, an error can still be answered with a retry.

use std::time::Duration;

use axum::body::Bytes;
use hyper::body::{Frame, Incoming};
use tokio::time::{Instant, timeout_at};

use super::limits;
use ctxhost_dialects::failure::{ProviderRefusal, is_refusal, parse_refusal};
use ctxhost_dialects::peek::{Peek, peek, peek_answer};
use ctxhost_dialects::sse::{SseItem, SseReader};

/// The most that is held back, in bytes. OpenAI's first event repeats the instructions and tools of the request.
const HELD_MAX_BYTES: usize = 2 * 1024 * 1024;

/// The most of an error that is read, in bytes.
const REFUSAL_MAX_BYTES: usize = 256 * 1024;

/// The start of a response.
#[derive(Debug, Default)]
pub(super) struct PeekedResponse {
    /// The frames that were read.
    pub(super) frames: Vec<Frame<Bytes>>,
    /// The provider's error; `None` if there is none so far.
    pub(super) refusal: Option<ProviderRefusal>,
    /// Whether the body has ended.
    pub(super) is_complete: bool,
}

/// Reads an event stream until its first content or error, at most for `hold` after the first frame.
///
/// # Errors
///
/// The cause of a broken connection.
pub(super) async fn peek_stream(
    body: &mut Incoming,
    hold: Duration,
    idle: Duration,
) -> Result<PeekedResponse, String> {
    let until = Instant::now() + hold;
    let mut peeked = PeekedResponse::default();
    let mut events = PeekedEvents::default();
    let mut held_bytes = 0;
    // `hold` does not bound the first frame: without it there is nothing to forward.
    let mut next = limits::next_frame(body, idle).await;
    loop {
        let Some(frame) = next? else {
            peeked.is_complete = true;
            peeked.refusal = events.last_refusal();
            return Ok(peeked);
        };
        let peek_result = match frame.data_ref() {
            Some(data) => {
                held_bytes += data.len();
                events.push(data)
            }
            None => Peek::Content,
        };
        peeked.frames.push(frame);
        match peek_result {
            Peek::NoContent if held_bytes < HELD_MAX_BYTES => {}
            Peek::Refused(refusal) => {
                peeked.refusal = Some(refusal);
                return Ok(peeked);
            }
            _ => return Ok(peeked),
        }
        match timeout_at(until, limits::next_frame(body, idle)).await {
            Ok(frame) => next = frame,
            Err(_) => return Ok(peeked),
        }
    }
}

/// Reads a response with an error status.
///
/// # Errors
///
/// The cause of a broken connection.
pub(super) async fn peek_error(
    body: &mut Incoming,
    status: u16,
    idle: Duration,
) -> Result<PeekedResponse, String> {
    let (mut peeked, bytes) = read_document(body, idle).await?;
    peeked.refusal = Some(parse_refusal(Some(status), &String::from_utf8_lossy(&bytes)));
    Ok(peeked)
}

/// Reads the start of a response that is not a stream, also as one run of bytes.
async fn read_document(
    body: &mut Incoming,
    idle: Duration,
) -> Result<(PeekedResponse, Vec<u8>), String> {
    let mut peeked = PeekedResponse::default();
    let mut bytes = Vec::new();
    while bytes.len() < REFUSAL_MAX_BYTES {
        let Some(frame) = limits::next_frame(body, idle).await? else {
            peeked.is_complete = true;
            break;
        };
        bytes.extend_from_slice(frame.data_ref().map(Bytes::as_ref).unwrap_or_default());
        peeked.frames.push(frame);
    }
    Ok((peeked, bytes))
}

/// The largest document that is searched for an error, in bytes: errors are short.
pub(super) const DOCUMENT_MAX_BYTES: u64 = 16 * 1024;

/// Reads a short response that is not a stream. MiniMax sends errors with status 200 (`base_resp`), and an answer without
/// content may be one of a full window.
///
/// # Errors
///
/// The cause of a broken connection.
pub(super) async fn peek_document(
    body: &mut Incoming,
    status: u16,
    idle: Duration,
) -> Result<PeekedResponse, String> {
    let (mut peeked, bytes) = read_document(body, idle).await?;
    // Classifying an error searches its text for many phrases, and nearly all documents are answers.
    if let Ok(document) = serde_json::from_slice(&bytes) {
        let refused = || parse_refusal(Some(status), &String::from_utf8_lossy(&bytes));
        let refusal = is_refusal(&document).then(refused);
        peeked.refusal = refusal.or_else(|| peek_answer(&document));
    }
    Ok(peeked)
}

/// The events of a stream so far.
#[derive(Debug)]
struct PeekedEvents(SseReader);

impl Default for PeekedEvents {
    fn default() -> PeekedEvents {
        PeekedEvents(SseReader::new(HELD_MAX_BYTES))
    }
}

impl PeekedEvents {
    fn push(&mut self, data: &[u8]) -> Peek {
        self.0.push(data);
        loop {
            match self.0.next_item() {
                Ok(Some(SseItem::Event(event))) => match peek(event.data) {
                    Peek::NoContent => {}
                    peek_result => return peek_result,
                },
                Ok(None) => return Peek::NoContent,
                // Not an event stream, or an event above the limit.
                Ok(Some(SseItem::UnknownLine)) | Err(_) => return Peek::Content,
            }
        }
    }

    /// The error in a last event that has no blank line after it.
    fn last_refusal(&self) -> Option<ProviderRefusal> {
        match self.0.last_event().map(|event| peek(event.data)) {
            Some(Peek::Refused(refusal)) => Some(refusal),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const EMPTY_STREAMS: [&str; 4] = [
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

    const CONTENT: [&str; 5] = [
        "data: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"tool_use\"}}\n\n",
        "data: {\"choices\":[{\"delta\":{\"content\":\"a\"},\"finish_reason\":null}]}\n\n",
        "data: {\"candidates\":[]}\n\n",
        "data: [DONE]\n\n",
        "{\"a\": 1}\n",
    ];

    /// The result for a stream that arrives in pieces of this size.
    fn peek_all(stream: &str, piece_bytes: usize) -> Peek {
        let mut events = PeekedEvents::default();
        let pieces = stream.as_bytes().chunks(piece_bytes);
        let result =
            pieces.map(|piece| events.push(piece)).find(|result| *result != Peek::NoContent);
        result.unwrap_or(Peek::NoContent)
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn the_result_does_not_depend_on_the_chunks(
            empty in prop::collection::vec(prop::sample::select(&EMPTY_STREAMS[..]), 0..3),
            error in prop::sample::select(&ERRORS[..]),
            content in prop::sample::select(&CONTENT[..]),
            piece_bytes in 1usize..200,
        ) {
            let empty = empty.concat();
            prop_assert_eq!(peek_all(&empty, piece_bytes), Peek::NoContent);
            prop_assert_eq!(peek_all(&format!("{empty}{content}{error}"), piece_bytes), Peek::Content);
            let refused = peek_all(&format!("{empty}{error}{content}"), piece_bytes);
            let Peek::Refused(refusal) = refused else { panic!("{refused:?}") };
            prop_assert!(!refusal.message.is_empty());
        }
    }
}
