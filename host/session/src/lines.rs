//! Splits bytes into lines that can be joined again byte for byte.

/// The line break of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LineEnding {
    /// A line feed.
    Lf,
    /// Carriage return and line feed.
    CrLf,
    /// None: an unterminated last line.
    Missing,
}

impl LineEnding {
    /// Its bytes.
    pub(super) fn bytes(self) -> &'static [u8] {
        match self {
            LineEnding::Lf => b"\n",
            LineEnding::CrLf => b"\r\n",
            LineEnding::Missing => b"",
        }
    }
}

/// The lines of a file with their endings.
pub(super) fn split_lines(bytes: &[u8]) -> impl Iterator<Item = (&[u8], LineEnding)> {
    bytes.split_inclusive(|byte| *byte == b'\n').map(|line| {
        if let Some(content) = line.strip_suffix(b"\r\n") {
            (content, LineEnding::CrLf)
        } else if let Some(content) = line.strip_suffix(b"\n") {
            (content, LineEnding::Lf)
        } else {
            (line, LineEnding::Missing)
        }
    })
}
