//! Reads the lines of a file except those above the length limit.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use super::{SESSION_FILE_BYTES, check_length, open};

/// Limit for a line: 256 MiB. A client request has at most 64 MiB by default (`gateway.max_body_bytes`), and
/// JSON escaping can make it four times as long.
pub const MAX_LINE_BYTES: usize = 256 << 20;

/// Limit for the number of lines: more than a year of a thousand turns a day.
pub const MAX_LINES: usize = 2_000_000;

/// Bytes per read.
const CHUNK_BYTES: usize = 256 << 10;

/// The lines of a file. A line above the limit is empty, so that the others keep their numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileLines {
    /// All lines, with their line breaks.
    pub bytes: Vec<u8>,
    /// The lines above the limit, in order.
    pub long: Vec<LongLine>,
}

/// A line above the length limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LongLine {
    /// Its number, from 1.
    pub line: usize,
    /// Its length without the line feed.
    pub length_bytes: u64,
}

impl LongLine {
    /// A description, as a fragment.
    #[must_use]
    pub fn message(&self) -> String {
        format!("the line has {} bytes, the limit is {MAX_LINE_BYTES} bytes", self.length_bytes)
    }
}

/// Reads the lines of a regular file except those of more than [`MAX_LINE_BYTES`] bytes.
///
/// # Errors
///
/// As [`open`], and [`io::ErrorKind::FileTooLarge`] for a file of more than [`SESSION_FILE_BYTES`] bytes or
/// [`MAX_LINES`] lines.
pub fn read_lines(path: &Path) -> io::Result<FileLines> {
    let file = open(path)?;
    check_length(file.metadata()?.len(), SESSION_FILE_BYTES)?;
    read_open_lines(&file, SESSION_FILE_BYTES)
}

/// [`read_lines`] for the next `length_bytes` bytes of an open file.
///
/// # Errors
///
/// As [`read_lines`].
pub fn read_open_lines(file: &File, length_bytes: u64) -> io::Result<FileLines> {
    check_length(length_bytes, SESSION_FILE_BYTES)?;
    let present_bytes = length_bytes.min(file.metadata()?.len());
    let mut reader = LineReader::new(MAX_LINE_BYTES, MAX_LINES);
    // A growing buffer needs up to twice the memory. A longer file may consist of lines that are
    // not kept, so nothing is reserved for it.
    if present_bytes <= MAX_LINE_BYTES as u64 {
        reader.lines.bytes.reserve_exact(usize::try_from(present_bytes).unwrap_or(0));
    }
    reader.read(&mut file.take(length_bytes))?;
    Ok(reader.lines)
}

/// [`read_lines`] for a source of at most `max_bytes` bytes, such as a decompressed file.
///
/// # Errors
///
/// As [`read_lines`], with `max_bytes` as the limit.
pub fn read_source_lines(source: impl Read, max_bytes: u64) -> io::Result<FileLines> {
    let mut reader = LineReader::new(MAX_LINE_BYTES, MAX_LINES);
    // One byte more shows that there are too many.
    let mut source = source.take(max_bytes.saturating_add(1));
    reader.read(&mut source)?;
    if source.limit() > 0 {
        return Ok(reader.lines);
    }
    // Reading ended at the limit, so the length is unknown.
    let message = format!(
        "it has more than {} bytes when decompressed, the limit for compressed files; decompress it first: the limit for plain files is {} bytes",
        group_digits(max_bytes),
        group_digits(SESSION_FILE_BYTES)
    );
    Err(io::Error::new(io::ErrorKind::FileTooLarge, message))
}

/// A number with its thousands apart.
fn group_digits(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

struct LineReader {
    max_line_bytes: usize,
    max_lines: usize,
    lines: FileLines,
    /// Number of complete lines.
    ended: usize,
    /// Offset of the current line in `lines.bytes`.
    line_from: usize,
    /// Length of the current line, once it exceeds the limit.
    long_line_bytes: u64,
}

impl LineReader {
    fn new(max_line_bytes: usize, max_lines: usize) -> LineReader {
        let lines = FileLines::default();
        LineReader { max_line_bytes, max_lines, lines, ended: 0, line_from: 0, long_line_bytes: 0 }
    }

    fn read(&mut self, source: &mut impl Read) -> io::Result<()> {
        let mut chunk = vec![0; CHUNK_BYTES];
        loop {
            let read = match source.read(&mut chunk) {
                Ok(0) => break,
                Ok(read) => read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            let mut rest = chunk.get(..read).unwrap_or_default();
            while let Some(at) = memchr::memchr(b'\n', rest) {
                let (line, after) = rest.split_at(at + 1);
                self.add(line.get(..at).unwrap_or_default());
                self.end_line();
                self.lines.bytes.push(b'\n');
                self.line_from = self.lines.bytes.len();
                rest = after;
                if self.ended > self.max_lines {
                    let max = self.max_lines;
                    let message = format!("it exceeds the limit of {max} lines");
                    return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
                }
            }
            self.add(rest);
        }
        self.end_line();
        Ok(())
    }

    fn add(&mut self, part: &[u8]) {
        let held = self.lines.bytes.len() - self.line_from;
        if self.long_line_bytes == 0 && held + part.len() <= self.max_line_bytes {
            self.lines.bytes.extend_from_slice(part);
            return;
        }
        // Its start was buffered before it was known to be too long.
        self.long_line_bytes += (held + part.len()) as u64;
        self.lines.bytes.truncate(self.line_from);
    }

    fn end_line(&mut self) {
        self.ended += 1;
        if self.long_line_bytes > 0 {
            let length_bytes = std::mem::take(&mut self.long_line_bytes);
            self.lines.long.push(LongLine { line: self.ended, length_bytes });
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn lines(bytes: &[u8], max_line_bytes: usize) -> FileLines {
        let mut reader = LineReader::new(max_line_bytes, MAX_LINES);
        reader.read(&mut &*bytes).unwrap();
        reader.lines
    }

    proptest! {
        #[test]
        fn long_lines_are_empty_and_the_others_as_they_are(
            texts in prop::collection::vec("[a-z]{0,9}", 0..9), ends in any::<bool>(), most in 0..9_usize,
        ) {
            let ending = if ends { "\n" } else { "" };
            let all = texts.join("\n") + ending;
            let read = lines(all.as_bytes(), most);
            let shortened: Vec<&str> =
                texts.iter().map(|text| if text.len() > most { "" } else { text.as_str() }).collect();
            prop_assert_eq!(String::from_utf8(read.bytes).unwrap(), shortened.join("\n") + ending);
            let long: Vec<_> = texts.iter().enumerate().filter(|(_, text)| text.len() > most)
                .map(|(at, text)| LongLine { line: at + 1, length_bytes: text.len() as u64 }).collect();
            prop_assert_eq!(read.long, long);
        }
    }

    #[test]
    fn a_long_line_is_counted_over_many_chunks() {
        let mut text = vec![b'x'; 3 * CHUNK_BYTES];
        text.extend_from_slice(b"\nshort\n");
        let read = lines(&text, 100);
        assert_eq!(read.bytes, b"\nshort\n");
        assert_eq!(read.long, [LongLine { line: 1, length_bytes: 3 * CHUNK_BYTES as u64 }]);
        assert!(read.long[0].message().contains("786432 bytes"));
    }

    #[test]
    fn a_source_above_the_limit_is_refused_without_a_length_that_is_unknown() {
        let source = io::repeat(b'x');
        let error = read_source_lines(source, 12_345).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
        let error = error.to_string();
        assert!(error.starts_with("it has more than 12,345 bytes when decompressed"), "{error}");
        assert!(error.ends_with("4,294,967,296 bytes"), "{error}");
        assert!(read_source_lines(&b"abc"[..], 3).is_ok());
        assert_eq!(group_digits(7) + &group_digits(1_000), "71,000");
    }

    #[test]
    fn too_many_lines_are_refused() {
        let mut reader = LineReader::new(9, 3);
        assert!(
            reader.read(&mut &b"a\nb\nc\nd\ne\n"[..]).unwrap_err().to_string().contains("3 lines")
        );
        assert!(LineReader::new(9, 3).read(&mut &b"a\nb\nc"[..]).is_ok());
    }
}
