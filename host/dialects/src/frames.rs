//! Splits the bytes of an answer into frames.

use super::dialect::{FrameFormat, StreamFrame};
use super::sse::{SseReader, SseTooLarge};

/// Splits one answer.
#[derive(Debug)]
pub struct FrameReader(FrameSplitter);

#[derive(Debug)]
enum FrameSplitter {
    Sse(SseReader),
    JsonLines(JsonLineReader),
}

/// Why bytes cannot be split into frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// They are not UTF-8.
    #[error("the answer is not valid UTF-8")]
    NotUtf8,
    /// A frame is larger than any model's output.
    #[error(transparent)]
    TooLarge(#[from] SseTooLarge),
}

impl FrameReader {
    /// A reader that buffers at most `max_bytes` of a frame.
    pub fn new(framing: FrameFormat, max_bytes: usize) -> FrameReader {
        FrameReader(match framing {
            FrameFormat::Sse => FrameSplitter::Sse(SseReader::new(max_bytes)),
            FrameFormat::JsonLines => {
                FrameSplitter::JsonLines(JsonLineReader { max_bytes, ..JsonLineReader::default() })
            }
        })
    }

    /// Appends the next bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        match &mut self.0 {
            FrameSplitter::Sse(reader) => reader.push(bytes),
            FrameSplitter::JsonLines(lines) => lines.push(bytes),
        }
    }

    /// The next frame; `None` until more bytes arrive.
    ///
    /// # Errors
    ///
    /// [`FrameError`]; nothing may be read after it.
    pub fn next_frame(&mut self) -> Result<Option<StreamFrame<'_>>, FrameError> {
        match &mut self.0 {
            FrameSplitter::Sse(reader) => {
                let event = reader.next_event()?;
                event.map(|event| event.frame().map_err(|_| FrameError::NotUtf8)).transpose()
            }
            FrameSplitter::JsonLines(lines) => lines.next_frame(),
        }
    }

    /// The bytes of the frame that has begun.
    pub fn buffered_bytes(&self) -> usize {
        match &self.0 {
            FrameSplitter::Sse(reader) => reader.buffered_bytes(),
            FrameSplitter::JsonLines(lines) => lines.bytes.len() - lines.line_start,
        }
    }

    /// Ends the bytes. Returns whether that completes another frame: a last line of whole JSON
    /// needs no newline.
    pub fn finish(&mut self) -> bool {
        match &mut self.0 {
            FrameSplitter::Sse(_) => false,
            FrameSplitter::JsonLines(lines) => lines.finish(),
        }
    }
}

/// Lines that are not blank.
#[derive(Debug, Default)]
struct JsonLineReader {
    bytes: Vec<u8>,
    line_start: usize,
    /// The end of that line was searched up to here.
    searched: usize,
    max_bytes: usize,
}

impl JsonLineReader {
    fn push(&mut self, bytes: &[u8]) {
        // Once per push and not per line, so that the cost stays linear.
        self.bytes.drain(..self.line_start);
        self.searched -= self.line_start;
        self.line_start = 0;
        self.bytes.extend_from_slice(bytes);
    }

    fn next_frame(&mut self) -> Result<Option<StreamFrame<'_>>, FrameError> {
        loop {
            let open = self.bytes.get(self.searched..).unwrap_or_default();
            let length = memchr::memchr(b'\n', open);
            let end = length.map_or(self.bytes.len(), |length| self.searched + length);
            let line = self.line_start..end;
            if line.len() > self.max_bytes {
                return Err(SseTooLarge { max_bytes: self.max_bytes }.into());
            }
            if length.is_none() {
                self.searched = end;
                return Ok(None);
            }
            self.line_start = end + 1;
            self.searched = self.line_start;
            let is_blank = self.bytes.get(line.clone()).unwrap_or_default().trim_ascii().is_empty();
            if !is_blank {
                let line = self.bytes.get(line).unwrap_or_default();
                let data = std::str::from_utf8(line).map_err(|_| FrameError::NotUtf8)?;
                return Ok(Some(StreamFrame { event: "", data }));
            }
        }
    }

    fn finish(&mut self) -> bool {
        let open = self.bytes.get(self.line_start..).unwrap_or_default();
        // A cut connection also leaves a partial line, but that is not whole JSON.
        let is_whole = serde_json::from_slice::<serde::de::IgnoredAny>(open).is_ok();
        if is_whole {
            self.push(b"\n");
        }
        is_whole
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The frames of a text that arrives in pieces of this many bytes.
    fn frames(text: &str, piece_bytes: usize, framing: FrameFormat) -> Vec<(String, String)> {
        let mut reader = FrameReader::new(framing, 1_024);
        let mut frames = Vec::new();
        let owned = |frame: StreamFrame<'_>| (frame.event.to_owned(), frame.data.to_owned());
        let mut pieces = text.as_bytes().chunks(piece_bytes);
        loop {
            while let Some(frame) = reader.next_frame().unwrap() {
                frames.push(owned(frame));
            }
            match pieces.next() {
                Some(piece) => reader.push(piece),
                None if reader.finish() => {}
                None => return frames,
            }
        }
    }

    #[test]
    fn the_last_line_needs_no_newline_if_it_is_whole() {
        let data = |text: &str| frames(text, 3, FrameFormat::JsonLines).len();
        assert_eq!(data("{\"a\":1}\n\n{\"b\":2}"), 2);
        assert_eq!(data("{\"a\":1}\r\n{\"b\":"), 1);
        assert_eq!(data(""), 0);
    }

    #[test]
    fn a_long_line_is_searched_once() {
        let mut lines = JsonLineReader { max_bytes: 100, ..JsonLineReader::default() };
        lines.push(b"1\n");
        for pushed in 1..9 {
            lines.push(b"[2, ");
            while lines.next_frame().unwrap().is_some() {}
            assert_eq!(lines.searched, lines.bytes.len(), "{pushed}");
        }
        // A line end at the start of new bytes ends the line before it.
        lines.push(b"3]\n");
        assert_eq!(lines.next_frame().unwrap().unwrap().data.len(), 8 * 4 + 2);
    }

    #[test]
    fn a_frame_has_a_limit_and_is_text() {
        for (framing, text) in
            [(FrameFormat::Sse, "data: 1234\n\n"), (FrameFormat::JsonLines, "1234567890\n")]
        {
            let mut reader = FrameReader::new(framing, 9);
            reader.push(text.as_bytes());
            assert!(matches!(reader.next_frame(), Err(FrameError::TooLarge(_))), "{framing:?}");
            let mut reader = FrameReader::new(framing, 20);
            reader.push(b"data: \xff\n\n");
            assert_eq!(reader.next_frame().unwrap_err(), FrameError::NotUtf8, "{framing:?}");
        }
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
            let plain: Vec<_> = frames(&lines, piece_bytes, FrameFormat::JsonLines)
                .into_iter()
                .map(|(_, data)| data.trim_end().to_owned())
                .collect();
            prop_assert_eq!(&plain, &data);
            let events: String =
                data.iter().map(|data| format!(": ping\n\nevent: e\r\ndata: {data}\r\n\r\n")).collect();
            let named: Vec<_> = data.iter().map(|data| ("e".to_owned(), data.clone())).collect();
            prop_assert_eq!(frames(&events, piece_bytes, FrameFormat::Sse), named);
        }
    }
}
