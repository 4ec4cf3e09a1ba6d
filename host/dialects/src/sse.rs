//! Parses server-sent events.

use std::ops::Range;
use std::str::Utf8Error;

use memchr::memchr2;

use crate::dialect::StreamFrame;

/// A stream may begin with it; it is not part of the first line.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// Parses one stream. Lines end in CRLF, LF or CR.
#[derive(Debug)]
pub struct SseReader {
    /// Bytes that are not parsed yet: lines, the last of which may be incomplete.
    bytes: Vec<u8>,
    /// The start of the first line not parsed yet.
    line_start: usize,
    /// The end of that line was searched up to here.
    searched: usize,
    /// Whether the last line ended in a carriage return, so that a line feed belongs to it.
    skips_line_feed: bool,
    has_first_line: bool,
    name: Vec<u8>,
    data: Vec<u8>,
    has_data: bool,
    /// Whether the event was returned, so that the next line starts another.
    is_event_whole: bool,
    max_bytes: usize,
}

/// One event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SseEvent<'a> {
    /// Its name; empty without one.
    pub name: &'a [u8],
    /// Its data lines, joined by line feeds.
    pub data: &'a [u8],
}

/// An item of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SseItem<'a> {
    /// An event.
    Event(SseEvent<'a>),
    /// A line without a known field. The standard ignores it; a body of such lines is not an event
    /// stream.
    UnknownLine,
}

/// A line or an event exceeds the limit of the reader. Nothing may be read after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an event of the stream exceeds {max_bytes} bytes")]
pub struct SseTooLarge {
    /// The limit.
    pub max_bytes: usize,
}

/// What the next lines add up to.
enum SseStep {
    Event,
    UnknownLine,
    /// Nothing yet: the next line is incomplete.
    Open,
}

impl SseReader {
    /// A reader that buffers at most `max_bytes` of a line and of an event's data.
    pub fn new(max_bytes: usize) -> SseReader {
        SseReader {
            bytes: Vec::new(),
            line_start: 0,
            searched: 0,
            skips_line_feed: false,
            has_first_line: false,
            name: Vec::new(),
            data: Vec::new(),
            has_data: false,
            is_event_whole: false,
            max_bytes,
        }
    }

    /// Appends the next bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        // Once per push and not per line, so that the cost stays linear.
        self.bytes.drain(..self.line_start);
        self.searched -= self.line_start;
        self.line_start = 0;
        self.bytes.extend_from_slice(bytes);
    }

    /// The next event; `None` until more bytes arrive.
    ///
    /// # Errors
    ///
    /// [`SseTooLarge`].
    pub fn next_event(&mut self) -> Result<Option<SseEvent<'_>>, SseTooLarge> {
        loop {
            match self.step()? {
                SseStep::Event => return Ok(Some(self.event())),
                SseStep::UnknownLine => {}
                SseStep::Open => return Ok(None),
            }
        }
    }

    /// The next event or line without a known field; `None` until more bytes arrive.
    ///
    /// # Errors
    ///
    /// [`SseTooLarge`].
    pub fn next_item(&mut self) -> Result<Option<SseItem<'_>>, SseTooLarge> {
        Ok(match self.step()? {
            SseStep::Event => Some(SseItem::Event(self.event())),
            SseStep::UnknownLine => Some(SseItem::UnknownLine),
            SseStep::Open => None,
        })
    }

    /// The event before the end of the stream whose blank line is missing.
    pub fn last_event(&self) -> Option<SseEvent<'_>> {
        // The standard drops such an event, but some servers never send the last blank line.
        (self.has_data && !self.is_event_whole).then(|| self.event())
    }

    /// Number of buffered bytes of incomplete lines and events.
    pub fn buffered_bytes(&self) -> usize {
        let open = self.bytes.len() - self.line_start;
        open + if self.is_event_whole { 0 } else { self.data.len() }
    }

    fn event(&self) -> SseEvent<'_> {
        SseEvent { name: &self.name, data: &self.data }
    }

    fn step(&mut self) -> Result<SseStep, SseTooLarge> {
        if self.is_event_whole {
            self.begin_event();
        }
        while let Some(line) = self.next_line()? {
            if line.is_empty() {
                // The standard ignores events without data.
                if self.has_data {
                    self.is_event_whole = true;
                    return Ok(SseStep::Event);
                }
                self.begin_event();
            } else if !self.read_field(line)? {
                return Ok(SseStep::UnknownLine);
            }
        }
        Ok(SseStep::Open)
    }

    fn begin_event(&mut self) {
        self.name.clear();
        self.data.clear();
        self.has_data = false;
        self.is_event_whole = false;
    }

    /// The next complete line, without its end.
    fn next_line(&mut self) -> Result<Option<Range<usize>>, SseTooLarge> {
        let is_line_feed = self.bytes.get(self.line_start).map(|byte| *byte == b'\n');
        if let Some(is_line_feed) = is_line_feed.filter(|_| self.skips_line_feed) {
            self.skips_line_feed = false;
            self.line_start += usize::from(is_line_feed);
            self.searched = self.line_start;
        }
        let open = self.bytes.get(self.searched..).unwrap_or_default();
        let length = memchr2(b'\n', b'\r', open);
        let end = length.map_or(self.bytes.len(), |length| self.searched + length);
        let mut line = self.line_start..end;
        if line.len() > self.max_bytes {
            return Err(SseTooLarge { max_bytes: self.max_bytes });
        }
        if length.is_none() {
            self.searched = end;
            return Ok(None);
        }
        self.skips_line_feed = self.bytes.get(end) == Some(&b'\r');
        self.line_start = end + 1;
        self.searched = self.line_start;
        if !std::mem::replace(&mut self.has_first_line, true)
            && self.bytes.starts_with(BYTE_ORDER_MARK)
        {
            line.start = BYTE_ORDER_MARK.len().min(end);
        }
        Ok(Some(line))
    }

    /// Parses one line; `false` if it is neither a known field nor a comment.
    fn read_field(&mut self, line: Range<usize>) -> Result<bool, SseTooLarge> {
        let line = self.bytes.get(line).unwrap_or_default();
        let (field, value) = match memchr::memchr(b':', line) {
            Some(colon) => {
                let (field, value) = line.split_at(colon);
                let value = value.get(1..).unwrap_or_default();
                (field, value.strip_prefix(b" ").unwrap_or(value))
            }
            None => (line, &b""[..]),
        };
        match field {
            b"data" => {
                if self.has_data {
                    self.data.push(b'\n');
                }
                if self.data.len() + value.len() > self.max_bytes {
                    return Err(SseTooLarge { max_bytes: self.max_bytes });
                }
                self.data.extend_from_slice(value);
                self.has_data = true;
            }
            b"event" => {
                self.name.clear();
                self.name.extend_from_slice(value);
            }
            // Streams are never resumed here, so ids are ignored. A line that starts with a colon
            // is a comment.
            b"id" | b"retry" | b"" => {}
            _ => return Ok(false),
        }
        Ok(true)
    }
}

impl<'a> SseEvent<'a> {
    /// The event as a frame.
    ///
    /// # Errors
    ///
    /// [`Utf8Error`] if it is not UTF-8.
    pub fn frame(self) -> Result<StreamFrame<'a>, Utf8Error> {
        let name = std::str::from_utf8(self.name)?;
        // The standard names events without a name `message`; dialects treat both alike.
        let event = if name == "message" { "" } else { name };
        Ok(StreamFrame { event, data: std::str::from_utf8(self.data)? })
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::option;
    use proptest::prelude::*;
    use proptest::sample::select;

    use super::*;

    const MAX_BYTES: usize = 128;

    /// Names and data of the events of a stream that arrives in pieces of these sizes, repeated.
    fn read(stream: &[u8], piece_bytes: &[usize]) -> Result<Vec<(String, String)>, SseTooLarge> {
        let mut reader = SseReader::new(MAX_BYTES);
        let mut events = Vec::new();
        let (mut rest, mut pieces) = (stream, piece_bytes.iter().cycle());
        while !rest.is_empty() {
            let (piece, behind) = rest.split_at(rest.len().min(*pieces.next().unwrap()));
            reader.push(piece);
            while let Some(event) = reader.next_event()? {
                let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
                events.push((text(event.name), text(event.data)));
            }
            rest = behind;
        }
        Ok(events)
    }

    fn whole(stream: &str) -> Vec<(String, String)> {
        read(stream.as_bytes(), &[usize::MAX]).unwrap()
    }

    fn named(name: &str, data: &str) -> (String, String) {
        (name.to_owned(), data.to_owned())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(256))]

        #[test]
        fn events_are_the_same_however_the_bytes_are_cut(
            events in vec((option::of("[a-z_.]{1,9}"), vec("[a-z:ä漢🦀 ]{0,7}", 1..4)), 0..5),
            noise in select(&["", ": ping\n", "id: 7\nretry: 30\n", ":\n\n", "event\n\n", "nonsense\n"][..]),
            line_end in select(&["\n", "\r", "\r\n"][..]),
            has_mark in any::<bool>(),
            piece_bytes in vec(1usize..9, 1..5),
        ) {
            let mut stream = String::new();
            let mut expected = Vec::new();
            for (name, lines) in &events {
                stream.push_str(noise);
                if let Some(name) = name {
                    stream.push_str(&format!("event: {name}\n"));
                }
                for (nth, line) in lines.iter().enumerate() {
                    let space = if nth == 0 || line.starts_with(' ') { " " } else { "" };
                    stream.push_str(&format!("data:{space}{line}\n"));
                }
                stream.push('\n');
                expected.push(named(name.as_deref().unwrap_or_default(), &lines.join("\n")));
            }
            let mark = if has_mark { "\u{feff}" } else { "" };
            let stream = format!("{mark}{}", stream.replace('\n', line_end));
            prop_assert_eq!(read(stream.as_bytes(), &piece_bytes), Ok(expected));
        }

        #[test]
        fn any_bytes_at_all_are_read_alike_in_any_pieces(
            bytes in vec(select(&b"data:event\r\n\n: \xef\xbb\xbf\xff"[..]), 0..200),
            piece_bytes in vec(1usize..9, 1..5),
        ) {
            let mut lines = SseReader::new(MAX_BYTES);
            lines.push(&bytes);
            let mut at_once = Vec::new();
            let items = |reader: &mut SseReader, found: &mut Vec<String>| loop {
                match reader.next_item() {
                    Ok(Some(item)) => found.push(format!("{item:?}")),
                    Ok(None) => return true,
                    Err(error) => {
                        found.push(format!("{error:?}"));
                        return false;
                    }
                }
            };
            items(&mut lines, &mut at_once);
            let mut reader = SseReader::new(MAX_BYTES);
            let mut in_pieces = Vec::new();
            let (mut rest, mut pieces) = (&bytes[..], piece_bytes.iter().cycle());
            while !rest.is_empty() {
                let (piece, behind) = rest.split_at(rest.len().min(*pieces.next().unwrap()));
                reader.push(piece);
                if !items(&mut reader, &mut in_pieces) {
                    break;
                }
                rest = behind;
            }
            prop_assert_eq!(in_pieces, at_once);
        }
    }

    #[test]
    fn an_event_without_data_is_none() {
        assert_eq!(whole("event: a\n\ndata: 1\n\n"), [named("", "1")]);
        assert_eq!(whole("data\n\ndata:\n\n"), [named("", ""), named("", "")]);
        assert_eq!(whole("\n\n: comment\n\n"), []);
        assert_eq!(whole("data: 1"), []);
    }

    #[test]
    fn only_one_space_is_taken_from_a_value() {
        assert_eq!(whole("event:e\ndata:  x \n\n"), [named("e", " x ")]);
    }

    #[test]
    fn what_is_too_large_is_an_error() {
        let line = |bytes: usize| format!("data: {}\n\n", "x".repeat(bytes - "data: ".len()));
        assert_eq!(read(line(MAX_BYTES).as_bytes(), &[7]).unwrap().len(), 1);
        let error = Err(SseTooLarge { max_bytes: MAX_BYTES });
        assert_eq!(read(line(MAX_BYTES + 1).as_bytes(), &[7]), error);
        let lines = "data: 12345678\n".repeat(MAX_BYTES / 8);
        assert_eq!(read(lines.as_bytes(), &[7]), error);
        // A line without an end is not buffered beyond the limit.
        let mut reader = SseReader::new(MAX_BYTES);
        reader.push(&[b'x'; MAX_BYTES + 1]);
        assert!(reader.next_event().is_err() && reader.next_event().is_err());
    }

    #[test]
    fn the_last_event_may_lack_its_blank_line() {
        let mut reader = SseReader::new(MAX_BYTES);
        reader.push(b"data: 1\n\nevent: e\ndata: 2\ndata: 3");
        assert_eq!(reader.next_event().unwrap().unwrap().data, b"1");
        assert_eq!(reader.last_event(), None);
        assert_eq!(reader.next_event(), Ok(None));
        assert_eq!(reader.last_event(), Some(SseEvent { name: b"e", data: b"2" }));
        assert_eq!(reader.buffered_bytes(), "2data: 3".len());
    }

    #[test]
    fn an_unknown_line_differs_from_comments() {
        let mut reader = SseReader::new(MAX_BYTES);
        reader.push(b": ping\nid: 1\n{\"a\": 1}\ndata: 1\n\n");
        assert_eq!(reader.next_item(), Ok(Some(SseItem::UnknownLine)));
        assert!(matches!(reader.next_item(), Ok(Some(SseItem::Event(_)))));
        assert_eq!(reader.next_item(), Ok(None));
    }

    #[test]
    fn a_message_is_an_event_without_a_name() {
        let frame = |name| SseEvent { name, data: b"x" }.frame().map(|frame| frame.event);
        assert_eq!((frame(b"message"), frame(b"e"), frame(b"")), (Ok(""), Ok("e"), Ok("")));
        assert!(frame(b"\xff").is_err());
    }
}
