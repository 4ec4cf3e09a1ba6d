//! Creates folders and files that only their owner can access: they contain parts of conversations.

use std::fs::{DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

/// Creates a folder and its parents.
pub(crate) fn create_folder(folder: &Path) -> io::Result<()> {
    DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

/// Opens a file for appending; creates it if it does not exist.
pub(crate) fn open_append(path: &Path) -> io::Result<File> {
    // The mode applies at creation: set afterwards, the file would be readable for a moment.
    File::options().append(true).create(true).mode(0o600).open(path)
}
