//! Reads files in bounded time and memory, and replaces files atomically.
//!
//! Every file named by a command, a config or a state folder is opened here. Only regular files are read: a
//! named pipe would block, and a device may be endless. Reading is limited independently of the file length,
//! which may grow meanwhile.

#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

mod lines;
mod replace;
mod zstd;

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use ctxhost_platform::files::{LinkPolicy, open_options, special_kind};

pub use lines::{
    FileLines, LongLine, MAX_LINE_BYTES, MAX_LINES, read_lines, read_open_lines, read_source_lines,
};
pub use replace::{
    FileAccess, FileSystem, OsFileSystem, ReplaceError, STAGING_PREFIX, create_folders,
    replace_file, replace_file_on,
};
pub use zstd::{ZstdReader, is_zstd};

/// Limit for configs, keys and small state files: 16 MiB. The largest known one has less than 1 MiB.
pub const SMALL_FILE_BYTES: u64 = 16 << 20;

/// Limit for session files: 4 GiB. Reading needs several times as much memory.
pub const SESSION_FILE_BYTES: u64 = 4 << 30;

/// Opens a regular file for reading.
///
/// # Errors
///
/// If the file cannot be opened or is not a regular file.
pub fn open(path: &Path) -> io::Result<File> {
    let file = open_options(LinkPolicy::Follow).read(true).open(path)?;
    // Of the open file: the path may refer to another one by now.
    check_regular(&file)?;
    Ok(file)
}

/// Fails for anything but a regular file.
///
/// # Errors
///
/// [`io::ErrorKind::InvalidInput`] with the actual file type.
pub fn check_regular(file: &File) -> io::Result<()> {
    let kind = file.metadata()?.file_type();
    if kind.is_file() {
        return Ok(());
    }
    if kind.is_dir() {
        return Err(io::Error::new(
            io::ErrorKind::IsADirectory,
            "it is a folder; use a file inside it",
        ));
    }
    let found = special_kind(kind);
    let message =
        format!("it is {found}, and only regular files are read; copy its content to a file");
    Err(io::Error::new(io::ErrorKind::InvalidInput, message))
}

/// Reads a regular file of at most `max_bytes` bytes.
///
/// # Errors
///
/// As [`open`], and [`io::ErrorKind::FileTooLarge`] if it is larger.
pub fn read(path: &Path, max_bytes: u64) -> io::Result<Vec<u8>> {
    read_from(&mut open(path)?, max_bytes)
}

/// Reads a regular file of UTF-8 text of at most `max_bytes` bytes.
///
/// # Errors
///
/// As [`read`], and [`io::ErrorKind::InvalidData`] if it is not UTF-8.
pub fn read_text(path: &Path, max_bytes: u64) -> io::Result<String> {
    let bytes = read(path, max_bytes)?;
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        io::Error::new(io::ErrorKind::InvalidData, format!("invalid UTF-8 at byte {at}"))
    })
}

fn read_from(file: &mut File, max_bytes: u64) -> io::Result<Vec<u8>> {
    let length_bytes = file.metadata()?.len();
    check_length(length_bytes, max_bytes)?;
    let mut bytes = Vec::with_capacity(usize::try_from(length_bytes).unwrap_or(0));
    // One byte more, to detect a file that grew or whose length is unknown (such as those in /proc).
    file.take(max_bytes.saturating_add(1)).read_to_end(&mut bytes)?;
    check_length(bytes.len() as u64, max_bytes)?;
    Ok(bytes)
}

fn check_length(length_bytes: u64, max_bytes: u64) -> io::Result<()> {
    if length_bytes <= max_bytes {
        return Ok(());
    }
    let message = format!("its {length_bytes} bytes exceed the limit of {max_bytes} bytes");
    Err(io::Error::new(io::ErrorKind::FileTooLarge, message))
}

#[cfg(test)]
mod tests;
