//! Creates folders and files that only their owner can access: they contain parts of conversations.

use std::fs::File;
use std::io;
use std::path::Path;

use ctxhost_platform::files::{LinkPolicy, open_options, open_or_create};

/// Creates a folder and its parents.
pub(crate) use ctxhost_platform::files::create_private_folders as create_folder;

/// Opens a file for appending; creates it if it does not exist.
pub(crate) fn open_append(path: &Path) -> io::Result<File> {
    // The mode applies at creation: set afterwards, the file would be readable for a moment.
    open_or_create(open_options(LinkPolicy::Follow).append(true), path)
}
