//! The bytes of an answer, cut into frames as they come.

use std::time::Duration;

use eventsource_stream::{EventStream, EventStreamError};
use futures_util::stream::{self, BoxStream, StreamExt};
use reqwest::Response;
use tokio::time::{Instant, timeout_at};

use ctxhost_dialects::dialect::{Frame, Framing};

/// What stands at the beginning of an answer is kept to be shown, in bytes.
const HEAD_MAX_BYTES: usize = 2_048;

/// Why no more bytes come.
#[derive(Debug)]
pub(super) enum Trouble {
    /// Nothing came for too long.
    Silent,
    /// The connection broke.
    Broken(reqwest::Error),
    /// The bytes are no text.
    NoText,
}

/// A frame of its own.
#[derive(Debug, Default)]
pub(super) struct OwnedFrame {
    event: String,
    data: String,
}

impl OwnedFrame {
    pub(super) fn of_data(data: String) -> OwnedFrame {
        OwnedFrame { event: String::new(), data }
    }

    pub(super) fn borrow(&self) -> Frame<'_> {
        Frame { event: &self.event, data: &self.data }
    }
}

/// The body of an answer.
pub(super) struct Body {
    bytes: BoxStream<'static, Result<Vec<u8>, Trouble>>,
    /// The first bytes, which nobody has read from `bytes` yet.
    head: Vec<u8>,
}

/// The pieces of a body: the first by a deadline, each further one within `idle` of the last.
fn pieces(
    response: Response,
    first: Instant,
    idle: Duration,
) -> BoxStream<'static, Result<Vec<u8>, Trouble>> {
    let next = move |state: Option<(Response, Instant)>| async move {
        let (mut response, deadline) = state?;
        match timeout_at(deadline, response.chunk()).await {
            Err(_) => Some((Err(Trouble::Silent), None)),
            Ok(Err(error)) => Some((Err(Trouble::Broken(error)), None)),
            Ok(Ok(None)) => None,
            Ok(Ok(Some(bytes))) => {
                let rest = Some((response, Instant::now() + idle));
                Some((Ok(bytes.to_vec()), rest))
            }
        }
    };
    stream::unfold(Some((response, first)), next).fuse().boxed()
}

impl Body {
    /// Waits for the beginning of a body: its first bytes that are more than white space.
    pub(super) async fn open(
        response: Response,
        first: Instant,
        idle: Duration,
    ) -> Result<Body, Trouble> {
        let mut bytes = pieces(response, first, idle);
        let mut head = Vec::new();
        while head.trim_ascii().is_empty() {
            match bytes.next().await {
                Some(piece) => head.extend(piece?),
                None => break,
            }
        }
        Ok(Body { bytes, head })
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
    pub(super) async fn text(self, max_bytes: usize) -> Result<String, Trouble> {
        let Body { mut bytes, mut head } = self;
        while head.len() < max_bytes {
            match bytes.next().await {
                Some(piece) => head.extend(piece?),
                None => break,
            }
        }
        Ok(String::from_utf8_lossy(&head).into_owned())
    }

    /// The frames.
    pub(super) fn frames(
        self,
        framing: Framing,
    ) -> BoxStream<'static, Result<OwnedFrame, Trouble>> {
        let head = self.head;
        let bytes = stream::once(async move { Ok(head) }).chain(self.bytes);
        match framing {
            Framing::Sse => events(bytes.boxed()),
            Framing::JsonLines => lines(bytes.boxed()),
        }
    }
}

fn events(
    bytes: BoxStream<'static, Result<Vec<u8>, Trouble>>,
) -> BoxStream<'static, Result<OwnedFrame, Trouble>> {
    let frame = |event| match event {
        // The standard calls events without a name `message`; dialects speak of none.
        Ok(eventsource_stream::Event { event, data, .. }) if event == "message" => {
            Ok(OwnedFrame::of_data(data))
        }
        Ok(event) => Ok(OwnedFrame { event: event.event, data: event.data }),
        Err(EventStreamError::Transport(trouble)) => Err(trouble),
        Err(EventStreamError::Utf8(_) | EventStreamError::Parser(_)) => Err(Trouble::NoText),
    };
    EventStream::new(bytes).map(frame).boxed()
}

/// Lines that are not blank. The last one counts without its newline if it is whole JSON.
fn lines(
    bytes: BoxStream<'static, Result<Vec<u8>, Trouble>>,
) -> BoxStream<'static, Result<OwnedFrame, Trouble>> {
    let next = |(mut bytes, mut buffer): (
        BoxStream<'static, Result<Vec<u8>, Trouble>>,
        Vec<u8>,
    )| async move {
        loop {
            if let Some(end) = buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = buffer.drain(..=end).collect();
                if !line.trim_ascii().is_empty() {
                    let line = String::from_utf8(line).map_err(|_| Trouble::NoText);
                    return Some((line.map(OwnedFrame::of_data), (bytes, buffer)));
                }
                continue;
            }
            match bytes.next().await {
                Some(Ok(piece)) => buffer.extend(piece),
                Some(Err(trouble)) => return Some((Err(trouble), (bytes, buffer))),
                None => {
                    let rest = String::from_utf8(std::mem::take(&mut buffer)).ok()?;
                    let is_whole = serde_json::from_str::<serde::de::IgnoredAny>(&rest).is_ok();
                    return is_whole.then(|| (Ok(OwnedFrame::of_data(rest)), (bytes, buffer)));
                }
            }
        }
    };
    stream::unfold((bytes, Vec::new()), next).fuse().boxed()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The frames of a text that comes in pieces of so many bytes.
    fn frames(text: &str, piece_bytes: usize, framing: Framing) -> Vec<(String, String)> {
        let pieces: Vec<_> =
            text.as_bytes().chunks(piece_bytes).map(|it| Ok(it.to_vec())).collect();
        let body = Body { bytes: stream::iter(pieces).boxed(), head: Vec::new() };
        let frames = body.frames(framing).map(|frame| {
            let frame = frame.unwrap();
            (frame.event, frame.data)
        });
        futures_util::FutureExt::now_or_never(frames.collect()).unwrap()
    }

    #[test]
    fn the_last_line_needs_no_newline_if_it_is_whole() {
        let data = |text: &str| frames(text, 3, Framing::JsonLines).len();
        assert_eq!(data("{\"a\":1}\n\n{\"b\":2}"), 2);
        assert_eq!(data("{\"a\":1}\r\n{\"b\":"), 1);
        assert_eq!(data(""), 0);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn frames_do_not_depend_on_how_the_bytes_come(
            texts in prop::collection::vec("[a-zäß漢🦀 ]{1,12}", 1..6),
            piece_bytes in 1usize..9,
        ) {
            let json = |text: &String| serde_json::json!({ "t": text }).to_string();
            let data: Vec<_> = texts.iter().map(json).collect();
            let lines: String = data.iter().map(|data| format!("{data}\n")).collect();
            let plain: Vec<_> = frames(&lines, piece_bytes, Framing::JsonLines)
                .into_iter()
                .map(|(_, data)| data.trim_end().to_owned())
                .collect();
            prop_assert_eq!(&plain, &data);
            let events: String =
                data.iter().map(|data| format!(": ping\n\nevent: e\r\ndata: {data}\r\n\r\n")).collect();
            let named: Vec<_> = data.iter().map(|data| ("e".to_owned(), data.clone())).collect();
            prop_assert_eq!(frames(&events, piece_bytes, Framing::Sse), named);
        }
    }
}
