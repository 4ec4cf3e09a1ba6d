//! Opening and reading files that people name, in bounded time and memory; replacing files as a whole.
//!
//! Every file that a command, a config or a state folder names is opened here. Only regular files are read: a
//! named pipe would wait for a writer, and a device may have no end. A file is read up to a limit, whatever its
//! length says, so that one that grows meanwhile ends too.

#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

mod lines;
mod replace;

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::{FileTypeExt as _, OpenOptionsExt as _};
use std::path::Path;

use rustix::fs::OFlags;

pub use lines::{FileLines, LongLine, MAX_LINE_BYTES, MAX_LINES, read_lines, read_open_lines};
pub use replace::{
    FileAccess, FileSystem, OsFileSystem, ReplaceError, STAGING_PREFIX, create_folders,
    replace_file, replace_file_on,
};

/// Bytes of a file that people write by hand, or that holds settings, keys or notes of ctxhost: 16 MiB. The
/// largest of them on record has less than one.
pub const SMALL_FILE_BYTES: u64 = 16 << 20;

/// Bytes of a file that holds a conversation: 4 GiB. Reading takes several times as much memory.
pub const SESSION_FILE_BYTES: u64 = 4 << 30;

/// Flags that keep an opening from waiting, and from making a terminal the one of this process.
#[must_use]
pub fn open_flags() -> i32 {
    i32::try_from((OFlags::NONBLOCK | OFlags::NOCTTY).bits()).unwrap_or(0)
}

/// Opens a regular file for reading.
///
/// # Errors
///
/// Where the system refuses, and for whatever is no regular file.
pub fn open(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().read(true).custom_flags(open_flags()).open(path)?;
    check_regular(&file)?;
    Ok(file)
}

/// Refuses what is no regular file.
///
/// # Errors
///
/// [`io::ErrorKind::InvalidInput`], with what it is instead.
pub fn check_regular(file: &File) -> io::Result<()> {
    let kind = file.metadata()?.file_type();
    let found = if kind.is_file() {
        return Ok(());
    } else if kind.is_dir() {
        return Err(io::Error::new(
            io::ErrorKind::IsADirectory,
            "it is a folder; name a file inside it",
        ));
    } else if kind.is_fifo() {
        "a named pipe"
    } else if kind.is_char_device() || kind.is_block_device() {
        "a device"
    } else {
        "a socket"
    };
    let message =
        format!("it is {found}, and only regular files are read; copy it into a file first");
    Err(io::Error::new(io::ErrorKind::InvalidInput, message))
}

/// Reads a regular file of at most `most_bytes` bytes.
///
/// # Errors
///
/// As [`open`], and [`io::ErrorKind::FileTooLarge`] where there are more bytes.
pub fn read(path: &Path, most_bytes: u64) -> io::Result<Vec<u8>> {
    read_from(&mut open(path)?, most_bytes)
}

/// Reads a regular file of UTF-8 text of at most `most_bytes` bytes.
///
/// # Errors
///
/// As [`read`], and [`io::ErrorKind::InvalidData`] where it is no text.
pub fn read_text(path: &Path, most_bytes: u64) -> io::Result<String> {
    let bytes = read(path, most_bytes)?;
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        io::Error::new(io::ErrorKind::InvalidData, format!("it is no UTF-8 text from byte {at} on"))
    })
}

fn read_from(file: &mut File, most_bytes: u64) -> io::Result<Vec<u8>> {
    let length_bytes = file.metadata()?.len();
    check_length(length_bytes, most_bytes)?;
    let mut bytes = Vec::with_capacity(usize::try_from(length_bytes).unwrap_or(0));
    // One byte more tells a file that grows, or that has no length, from one that is at its end.
    file.take(most_bytes.saturating_add(1)).read_to_end(&mut bytes)?;
    check_length(bytes.len() as u64, most_bytes)?;
    Ok(bytes)
}

fn check_length(length_bytes: u64, most_bytes: u64) -> io::Result<()> {
    if length_bytes <= most_bytes {
        return Ok(());
    }
    let message = format!(
        "it has {length_bytes} bytes, more than the {most_bytes} that are read of such a file"
    );
    Err(io::Error::new(io::ErrorKind::FileTooLarge, message))
}

#[cfg(test)]
mod tests;
