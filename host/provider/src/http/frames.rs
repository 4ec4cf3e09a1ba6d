//! The bytes of an answer, cut into frames as they come.

use std::time::Duration;

use futures_util::stream::{self, BoxStream, StreamExt};
use reqwest::Response;
use tokio::time::{Instant, timeout_at};

use ctxhost_dialects::dialect::{Framing, StreamFrame};
use ctxhost_dialects::frames::{FrameError, FrameReader};

/// What stands at the beginning of an answer is kept to be shown, in bytes.
const HEAD_MAX_BYTES: usize = 2_048;

/// Why no more bytes come.
#[derive(Debug)]
pub(super) enum StreamReadError {
    /// Nothing came for too long.
    IdleTimeout,
    /// The connection broke.
    ConnectionLost(reqwest::Error),
    /// The bytes are no frames.
    InvalidFrame(FrameError),
}

/// The body of an answer.
pub(super) struct AnswerBody {
    bytes: BoxStream<'static, Result<Vec<u8>, StreamReadError>>,
    /// The first bytes, which nobody has read from `bytes` yet.
    head: Vec<u8>,
}

/// The pieces of a body: the first by a deadline, each further one within `idle` of the last.
fn read_chunks(
    response: Response,
    first: Instant,
    idle: Duration,
) -> BoxStream<'static, Result<Vec<u8>, StreamReadError>> {
    let next = move |state: Option<(Response, Instant)>| async move {
        let (mut response, deadline) = state?;
        match timeout_at(deadline, response.chunk()).await {
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
    /// Waits for the beginning of a body: its first bytes that are more than white space.
    pub(super) async fn open(
        response: Response,
        first: Instant,
        idle: Duration,
    ) -> Result<AnswerBody, StreamReadError> {
        let mut bytes = read_chunks(response, first, idle);
        let mut head = Vec::new();
        while head.trim_ascii().is_empty() {
            match bytes.next().await {
                Some(piece) => head.extend(piece?),
                None => break,
            }
        }
        Ok(AnswerBody { bytes, head })
    }

    /// Whether nothing came at all.
    pub(super) fn is_empty(&self) -> bool {
        self.head.trim_ascii().is_empty()
    }

    /// The beginning, to be shown.
    pub(super) fn head(&self) -> String {
        let shown = self.head.get(..HEAD_MAX_BYTES).unwrap_or(&self.head);
        String::from_utf8_lossy(shown).into_owned()
    }

    /// Whether this is one document (JSON of a server that does not stream, or a page of some proxy)
    /// and no stream of events. The header that should tell is often wrong.
    pub(super) fn is_document(&self) -> bool {
        matches!(self.head.trim_ascii_start().first(), Some(b'{' | b'[' | b'<' | b'"'))
    }

    /// The whole body, at most so many bytes of it.
    pub(super) async fn read_text(self, max_bytes: usize) -> Result<String, StreamReadError> {
        let AnswerBody { mut bytes, mut head } = self;
        while head.len() < max_bytes {
            match bytes.next().await {
                Some(piece) => head.extend(piece?),
                None => break,
            }
        }
        Ok(String::from_utf8_lossy(&head).into_owned())
    }

    /// The frames, each of at most so many bytes.
    pub(super) fn into_frames(self, framing: Framing, max_bytes: usize) -> FrameStream {
        let mut reader = FrameReader::new(framing, max_bytes);
        reader.push(&self.head);
        FrameStream { bytes: self.bytes, reader }
    }
}

/// The frames of a body.
pub(super) struct FrameStream {
    bytes: BoxStream<'static, Result<Vec<u8>, StreamReadError>>,
    reader: FrameReader,
}

impl FrameStream {
    /// The next frame of what has come.
    pub(super) fn next_frame(&mut self) -> Result<Option<StreamFrame<'_>>, StreamReadError> {
        self.reader.next_frame().map_err(StreamReadError::InvalidFrame)
    }

    /// Waits for more of the body; `false` where no more frames come.
    pub(super) async fn read_more(&mut self) -> Result<bool, StreamReadError> {
        match self.bytes.next().await.transpose()? {
            Some(piece) => {
                self.reader.push(&piece);
                Ok(true)
            }
            None => Ok(self.reader.finish()),
        }
    }
}
