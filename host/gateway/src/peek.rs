//! The beginning of an answer: as long as nothing is said in it, a refusal can still be answered by a
//! smaller request, because the client has not got a byte.

use std::time::Duration;

use axum::body::Bytes;
use hyper::body::{Frame, Incoming};
use tokio::time::{Instant, timeout_at};

use super::limits;
use ctxhost_dialects::failure::{ProviderRefusal, is_refusal, parse_refusal};
use ctxhost_dialects::peek::{Peek, peek};
use ctxhost_dialects::sse::{SseItem, SseReader};

/// The most that is held back, in bytes: OpenAI's first event repeats instructions and tools.
const HELD_MAX_BYTES: usize = 2 * 1024 * 1024;

/// The most of a refusal that is read, in bytes.
const REFUSAL_MAX_BYTES: usize = 256 * 1024;

/// What has been read of a body, and what came of it.
#[derive(Debug)]
pub(super) struct PeekedResponse {
    /// The frames so far, as they came.
    pub(super) frames: Vec<Frame<Bytes>>,
    /// What the provider refused; `None` where it answers, or where that is not known yet.
    pub(super) refusal: Option<ProviderRefusal>,
    /// Whether the body has ended.
    pub(super) is_complete: bool,
}

/// Reads a stream of events until something is said in it, at most for `hold`.
///
/// # Errors
///
/// What went wrong with the connection before anything was said.
pub(super) async fn peek_stream(
    body: &mut Incoming,
    hold: Duration,
    idle: Duration,
) -> Result<PeekedResponse, String> {
    let until = Instant::now() + hold;
    let mut beginning = PeekedResponse { frames: Vec::new(), refusal: None, is_complete: false };
    let mut events = PeekedEvents::default();
    let mut held_bytes = 0;
    // The first bytes are waited for as long as any others: without them there is no answer.
    let mut next = limits::next_frame(body, idle).await;
    loop {
        let Some(frame) = next? else {
            beginning.is_complete = true;
            beginning.refusal = events.last_refusal();
            return Ok(beginning);
        };
        let told = match frame.data_ref() {
            Some(data) => {
                held_bytes += data.len();
                events.push(data)
            }
            None => Peek::Content,
        };
        beginning.frames.push(frame);
        match told {
            Peek::NoContent if held_bytes < HELD_MAX_BYTES => {}
            Peek::Refused(refusal) => {
                beginning.refusal = Some(refusal);
                return Ok(beginning);
            }
            _ => return Ok(beginning),
        }
        match timeout_at(until, limits::next_frame(body, idle)).await {
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
pub(super) async fn peek_error(
    body: &mut Incoming,
    status: u16,
    idle: Duration,
) -> Result<PeekedResponse, String> {
    let mut beginning = PeekedResponse { frames: Vec::new(), refusal: None, is_complete: false };
    let mut bytes = Vec::new();
    while bytes.len() < REFUSAL_MAX_BYTES {
        let Some(frame) = limits::next_frame(body, idle).await? else {
            beginning.is_complete = true;
            break;
        };
        bytes.extend_from_slice(frame.data_ref().map(Bytes::as_ref).unwrap_or_default());
        beginning.frames.push(frame);
    }
    beginning.refusal = Some(parse_refusal(Some(status), &String::from_utf8_lossy(&bytes)));
    Ok(beginning)
}

/// The most of a whole answer that is looked into for a refusal, in bytes: refusals are short.
pub(super) const DOCUMENT_MAX_BYTES: u64 = 16 * 1024;

/// Reads a short answer that is no stream, whole: some providers refuse with the status of success.
///
/// # Errors
///
/// What went wrong with the connection.
pub(super) async fn peek_document(
    body: &mut Incoming,
    status: u16,
    idle: Duration,
) -> Result<PeekedResponse, String> {
    let mut beginning = peek_error(body, status, idle).await?;
    let frames = beginning.frames.iter().filter_map(Frame::data_ref);
    let bytes: Vec<u8> = frames.flat_map(|data| data.iter().copied()).collect();
    let document = serde_json::from_slice(&bytes);
    beginning.refusal = beginning.refusal.filter(|_| document.is_ok_and(|it| is_refusal(&it)));
    Ok(beginning)
}

/// The events of a stream, as far as it was read.
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
                    told => return told,
                },
                Ok(None) => return Peek::NoContent,
                // A document, or an event that is held back no longer.
                Ok(Some(SseItem::UnknownLine)) | Err(_) => return Peek::Content,
            }
        }
    }

    /// What the provider refused in an event that has no blank line behind it.
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
    fn told(stream: &str, piece_bytes: usize) -> Peek {
        let mut events = PeekedEvents::default();
        let pieces = stream.as_bytes().chunks(piece_bytes);
        let told = pieces.map(|piece| events.push(piece)).find(|told| *told != Peek::NoContent);
        told.unwrap_or(Peek::NoContent)
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
            prop_assert_eq!(told(&quiet, piece_bytes), Peek::NoContent);
            prop_assert_eq!(told(&format!("{quiet}{saying}{error}"), piece_bytes), Peek::Content);
            let refused = told(&format!("{quiet}{error}{saying}"), piece_bytes);
            let Peek::Refused(refusal) = refused else { panic!("{refused:?}") };
            prop_assert!(!refusal.message.is_empty());
        }
    }
}
