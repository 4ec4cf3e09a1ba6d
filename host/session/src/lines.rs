//! Bytes as lines, so that a whole file can be put together again byte for byte.

/// What ends a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// A line feed.
    Lf,
    /// Carriage return and line feed.
    CrLf,
    /// Nothing: the last line of a file that was not finished.
    Missing,
}

impl Ending {
    /// Its bytes.
    pub(super) fn bytes(self) -> &'static [u8] {
        match self {
            Ending::Lf => b"\n",
            Ending::CrLf => b"\r\n",
            Ending::Missing => b"",
        }
    }
}

/// The lines of a file, each with its ending.
pub(super) fn split(bytes: &[u8]) -> impl Iterator<Item = (&[u8], Ending)> {
    bytes.split_inclusive(|byte| *byte == b'\n').map(|line| {
        if let Some(content) = line.strip_suffix(b"\r\n") {
            (content, Ending::CrLf)
        } else if let Some(content) = line.strip_suffix(b"\n") {
            (content, Ending::Lf)
        } else {
            (line, Ending::Missing)
        }
    })
}
