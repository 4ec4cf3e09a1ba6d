//! Writes each log event as one line, so that foreign text cannot forge a log line.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::{self, Stderr, Write};

use crate::render::sanitize::is_unsafe_char;

/// Standard error, one line for each event.
pub(super) fn stderr_lines() -> EventLineWriter<Stderr> {
    EventLineWriter(io::stderr())
}

/// A writer that receives one event at a time, with a line feed at its end.
#[derive(Debug)]
pub(super) struct EventLineWriter<W>(W);

impl<W: Write> Write for EventLineWriter<W> {
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        // Reports the original length: the caller would write the rest again otherwise.
        self.0.write_all(escaped(event).as_bytes())?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

/// Escapes characters that control a terminal, except tabs and the final line feed.
///
/// Events quote model names, engine messages and provider errors.
fn escaped(event: &[u8]) -> Cow<'_, str> {
    let text = String::from_utf8_lossy(event);
    let (line, end) = match text.strip_suffix('\n') {
        Some(line) => (line, "\n"),
        None => (&*text, ""),
    };
    if !line.chars().any(is_escaped) {
        return text;
    }
    let mut written = String::with_capacity(text.len() + 16);
    for char in line.chars() {
        if is_escaped(char) {
            // Writing to a string cannot fail.
            _ = write!(written, "{}", char.escape_default());
        } else {
            written.push(char);
        }
    }
    written.push_str(end);
    Cow::Owned(written)
}

/// Control characters, and line feeds: an event is one line.
fn is_escaped(char: char) -> bool {
    is_unsafe_char(char) || char == '\n'
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_always_one_line() {
        let check = |event: &str, expected: &str| {
            let mut lines = EventLineWriter(Vec::new());
            lines.write_all(event.as_bytes()).unwrap();
            assert_eq!(String::from_utf8(lines.0).unwrap(), expected);
        };
        check("WARN a plain é event\n", "WARN a plain é event\n");
        check("WARN model=m\nERROR forged\n", "WARN model=m\\nERROR forged\n");
        check("a\r\u{1b}[31mred\u{85}\u{2028}\tb", "a\\r\\u{1b}[31mred\\u{85}\\u{2028}\tb");
        check("\u{202e}a\u{2066}\u{200f}\u{feff}", "\\u{202e}a\\u{2066}\\u{200f}\\u{feff}");
        check("two\n\n", "two\\n\n");
    }
}
