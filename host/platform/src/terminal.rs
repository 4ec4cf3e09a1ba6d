//! The width of a terminal.

#[cfg(unix)]
use std::os::fd::AsFd as AsStream;
#[cfg(windows)]
use std::os::windows::io::AsHandle as AsStream;

/// The width of the terminal behind a stream, in columns; `None` if it is none.
pub fn terminal_width(stream: impl AsStream) -> Option<u16> {
    terminal_size::terminal_size_of(stream).map(|(width, _)| width.0).filter(|width| *width > 0)
}
