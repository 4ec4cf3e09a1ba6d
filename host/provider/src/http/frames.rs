//! Reads the body of an answer as text or frames.

use std::time::Duration;

use futures_util::stream::{self, BoxStream, StreamExt};
use reqwest::Response;
use tokio::time::{Instant, timeout_at};

use ctxhost_dialects::dialect::{FrameFormat, StreamFrame};
use ctxhost_dialects::frames::{FrameError, FrameReader};

/// The most of an answer that error messages quote, in bytes.
const HEAD_MAX_BYTES: usize = 2_048;

/// Why a body stopped.
#[derive(Debug)]
pub(super) enum StreamReadError {
    /// No data within the timeout.
    IdleTimeout,
    /// The connection failed.
    ConnectionLost(reqwest::Error),
    /// The bytes are not frames.
    InvalidFrame(FrameError),
    /// The frames have more bytes than this together.
    TooLarge(usize),
}

/// The body of an answer.
pub(super) struct AnswerBody {
    bytes: BoxStream<'static, Result<Vec<u8>, StreamReadError>>,
    /// The first bytes, already taken from `bytes`.
    head: Vec<u8>,
}

/// The chunks of a body: the first by a deadline, each further one within `idle`.
fn read_chunks(
    response: Response,
    first: Instant,
    idle: Duration,
) -> BoxStream<'static, Result<Vec<u8>, StreamReadError>> {
    let next = move |state: Option<(Response, Instant)>| async move {
        let (mut response, deadline) = state?;
        match timeout_at(deadline, response.chunk()).await {
            // `None` ends the stream after an error.
            Err(_) => Some((Err(StreamReadError::IdleTimeout), None)),
            Ok(Err(error)) => Some((Err(StreamReadError::ConnectionLost(error)), None)),
            Ok(Ok(None)) => None,
            Ok(Ok(Some(bytes))) => {
                let rest = Some((response, Instant::now() + idle));
                Some((Ok(bytes.to_vec()), rest))
            }
        }
    };
    stream::unfold(Some((response, first)), next).fuse().boxed()
}

impl AnswerBody {
    /// Waits for the first bytes that are not white space.
    pub(super) async fn open(
        response: Response,
        first: Instant,
        idle: Duration,
    ) -> Result<AnswerBody, StreamReadError> {
        let mut bytes = read_chunks(response, first, idle);
        let mut head = Vec::new();
        // Servers send white space to keep the connection open while the model computes. It is not kept, since it
        // may have no end.
        while head.is_empty() {
            let Some(chunk) = bytes.next().await else { break };
            head.extend_from_slice(chunk?.trim_ascii_start());
        }
        Ok(AnswerBody { bytes, head })
    }

    /// Whether the body is empty.
    pub(super) fn is_empty(&self) -> bool {
        self.head.is_empty()
    }

    /// The start of the body, for messages.
    pub(super) fn head(&self) -> String {
        let shown = self.head.get(..HEAD_MAX_BYTES).unwrap_or(&self.head);
        String::from_utf8_lossy(shown).into_owned()
    }

    /// Whether the body is one document and not a stream: JSON of a server that does not stream, or
    /// a proxy's HTML page.
    pub(super) fn is_document(&self) -> bool {
        // The content type is often wrong.
        matches!(self.head.first(), Some(b'{' | b'[' | b'<' | b'"'))
    }

    /// The whole body, up to a limit.
    pub(super) async fn read_text(self, max_bytes: usize) -> Result<String, StreamReadError> {
        let AnswerBody { mut bytes, mut head } = self;
        while head.len() < max_bytes {
            match bytes.next().await {
                Some(chunk) => head.extend(chunk?),
                None => break,
            }
        }
        Ok(String::from_utf8_lossy(&head).into_owned())
    }

    /// The frames: each up to a limit, and all of them together.
    pub(super) fn into_frames(
        self,
        framing: FrameFormat,
        frame_max_bytes: usize,
        max_bytes: usize,
    ) -> FrameStream {
        let mut reader = FrameReader::new(framing, frame_max_bytes);
        reader.push(&self.head);
        FrameStream { bytes: self.bytes, reader, read_bytes: self.head.len(), max_bytes }
    }
}

/// The frames of a body.
pub(super) struct FrameStream {
    bytes: BoxStream<'static, Result<Vec<u8>, StreamReadError>>,
    reader: FrameReader,
    read_bytes: usize,
    max_bytes: usize,
}

impl FrameStream {
    /// The next frame of the bytes read so far.
    pub(super) fn next_frame(&mut self) -> Result<Option<StreamFrame<'_>>, StreamReadError> {
        self.reader.next_frame().map_err(StreamReadError::InvalidFrame)
    }

    /// Reads more of the body; `false` at its end.
    pub(super) async fn read_more(&mut self) -> Result<bool, StreamReadError> {
        match self.bytes.next().await.transpose()? {
            Some(chunk) => {
                self.read_bytes = self.read_bytes.saturating_add(chunk.len());
                if self.read_bytes > self.max_bytes {
                    return Err(StreamReadError::TooLarge(self.max_bytes));
                }
                self.reader.push(&chunk);
                Ok(true)
            }
            None => Ok(self.reader.finish()),
        }
    }
}
