//! Files on Windows: no modes, since access is inherited from the folder, and the user's own folders are private.

use std::fs::{self, DirBuilder, File, FileType, Metadata, OpenOptions, Permissions};
use std::io;
use std::os::windows::fs::{FileExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use winapi_util::file::information;

use super::{FileIdentity, LinkPolicy};

/// `FILE_FLAG_OPEN_REPARSE_POINT`: opens a link itself.
const OPEN_LINK: u32 = 0x0020_0000;

/// `FILE_FLAG_BACKUP_SEMANTICS`: opens folders as well.
const OPEN_FOLDER: u32 = 0x0200_0000;

pub(super) fn set_open_flags(options: &mut OpenOptions, links: LinkPolicy) {
    if links == LinkPolicy::Refuse {
        // What is opened is the link, which is no regular file.
        options.custom_flags(OPEN_LINK);
    }
}

pub(super) fn set_folder_mode(_builder: &mut DirBuilder) {}

/// The permission bits of a file; `None` where files have none.
#[must_use]
pub fn mode(_metadata: &Metadata) -> Option<u32> {
    None
}

/// Permissions with this mode; `None` where files have none.
#[must_use]
pub fn permissions(_mode: u32) -> Option<Permissions> {
    None
}

/// The number of the user who owns a file, if it is neither this user nor the administrator; not known here.
#[must_use]
pub fn foreign_owner(_metadata: &Metadata) -> Option<u32> {
    None
}

/// Gives a file to the owner of the file at `like`. Windows gives access by the folder, so there is nothing to do.
///
/// # Errors
///
/// None.
pub fn give_to_owner_of(_file: &File, _like: &Path) -> io::Result<()> {
    Ok(())
}

/// Gives a folder to the owner of the folder above; nothing to do here.
///
/// # Errors
///
/// None.
pub fn give_folder_to_owner_above(_folder: &Path) -> io::Result<()> {
    Ok(())
}

/// The identity of an open file.
///
/// # Errors
///
/// That of the file system.
pub fn file_identity(file: &File) -> io::Result<FileIdentity> {
    let found = information(file)?;
    Ok(FileIdentity { volume: found.volume_serial_number(), number: found.file_index() })
}

/// The identity of the file at a path, of a link itself.
///
/// # Errors
///
/// That of the file system.
pub fn path_identity(path: &Path) -> io::Result<FileIdentity> {
    // No access but to the metadata, which a lock of another process does not prevent.
    let mut options = OpenOptions::new();
    file_identity(&options.access_mode(0).custom_flags(OPEN_LINK | OPEN_FOLDER).open(path)?)
}

/// Numbers of which one changes when the file is written or replaced.
#[must_use]
pub fn change_marks(metadata: &Metadata) -> [i64; 5] {
    let [created, written] =
        [metadata.creation_time(), metadata.last_write_time()].map(u64::cast_signed);
    [created, written, 0, 0, 0]
}

/// What a file is that is neither a regular file nor a folder.
#[must_use]
pub fn special_kind(kind: FileType) -> &'static str {
    if kind.is_symlink() { "a link" } else { "a device" }
}

/// Reads a part of a file. Moves its position.
///
/// # Errors
///
/// That of the file system, and [`io::ErrorKind::UnexpectedEof`].
pub fn read_exact_at(file: &File, mut bytes: &mut [u8], mut offset: u64) -> io::Result<()> {
    while !bytes.is_empty() {
        match file.seek_read(bytes, offset) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => {
                bytes = bytes.get_mut(read..).unwrap_or_default();
                offset += read as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Renames a file; fails if the target exists.
///
/// # Errors
///
/// That of the file system.
pub fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    // A rename would replace the target, a second name does not.
    fs::hard_link(from, to)?;
    fs::remove_file(from)
}

/// Syncs a folder, so that names in it survive a crash. Windows has no such operation.
///
/// # Errors
///
/// None.
pub fn sync_folder(_folder: &Path) -> io::Result<()> {
    Ok(())
}
