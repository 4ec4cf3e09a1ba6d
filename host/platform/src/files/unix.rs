//! Files on Unix.

use std::fs::{self, DirBuilder, File, FileType, Metadata, OpenOptions, Permissions};
use std::io;
use std::os::unix::fs::{
    DirBuilderExt as _, FileExt as _, FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _,
    PermissionsExt as _,
};
use std::path::Path;

use rustix::fs::{CWD, Gid, OFlags, RenameFlags, Uid, fchown, renameat_with};
use rustix::io::Errno;

use super::{FileIdentity, LinkPolicy, PRIVATE_FILE, PRIVATE_FOLDER};

pub(super) fn set_open_flags(options: &mut OpenOptions, links: LinkPolicy) {
    let mut flags = OFlags::NONBLOCK | OFlags::NOCTTY;
    if links == LinkPolicy::Refuse {
        flags |= OFlags::NOFOLLOW;
    }
    options.mode(PRIVATE_FILE).custom_flags(i32::try_from(flags.bits()).unwrap_or(0));
}

pub(super) fn set_folder_mode(builder: &mut DirBuilder) {
    builder.mode(PRIVATE_FOLDER);
}

/// The permission bits of a file; `None` where files have none.
#[must_use]
pub fn mode(metadata: &Metadata) -> Option<u32> {
    Some(metadata.mode() & 0o7777)
}

/// Permissions with this mode; `None` where files have none.
#[must_use]
pub fn permissions(mode: u32) -> Option<Permissions> {
    Some(Permissions::from_mode(mode))
}

/// The number of the user who owns a file, if it is neither this user nor the administrator.
#[must_use]
pub fn foreign_owner(metadata: &Metadata) -> Option<u32> {
    let owner = metadata.uid();
    (owner != rustix::process::geteuid().as_raw() && owner != 0).then_some(owner)
}

/// Gives a file that this process has just created to the owner of the file at `like`, if this process may: only the
/// administrator can. Without an effect for any other user.
///
/// # Errors
///
/// That of the file system.
pub fn give_to_owner_of(file: &File, like: &Path) -> io::Result<()> {
    let (own, wanted) = (file.metadata()?, fs::metadata(like)?);
    if own.uid() == wanted.uid() || !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let (owner, group) = (Uid::from_raw(wanted.uid()), Gid::from_raw(wanted.gid()));
    Ok(fchown(file, Some(owner), Some(group))?)
}

/// Gives a folder that this process has just created to the owner of the folder above, as [`give_to_owner_of`] does.
///
/// # Errors
///
/// That of the file system.
pub fn give_folder_to_owner_above(folder: &Path) -> io::Result<()> {
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let absolute = std::path::absolute(folder)?;
    let Some(above) = absolute.parent() else { return Ok(()) };
    // Not by its path: the owner of the folder above could put a link there meanwhile, and would get what it leads to.
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW;
    let flags = i32::try_from(flags.bits()).unwrap_or(0);
    let opened = OpenOptions::new().read(true).custom_flags(flags).open(&absolute)?;
    give_to_owner_of(&opened, above)
}

/// The identity of an open file.
///
/// # Errors
///
/// That of the file system.
pub fn file_identity(file: &File) -> io::Result<FileIdentity> {
    Ok(identity(&file.metadata()?))
}

/// The identity of the file at a path, of a link itself.
///
/// # Errors
///
/// That of the file system.
pub fn path_identity(path: &Path) -> io::Result<FileIdentity> {
    Ok(identity(&fs::symlink_metadata(path)?))
}

fn identity(metadata: &Metadata) -> FileIdentity {
    FileIdentity { volume: metadata.dev(), number: metadata.ino() }
}

/// Numbers of which one changes when the file is written or replaced.
#[must_use]
pub fn change_marks(metadata: &Metadata) -> [i64; 5] {
    let inode = metadata.ino().cast_signed();
    // Tools may set the modification time back, but not the time of the last change.
    let [modified, changed] =
        [[metadata.mtime(), metadata.mtime_nsec()], [metadata.ctime(), metadata.ctime_nsec()]];
    [inode, modified[0], modified[1], changed[0], changed[1]]
}

/// What a file is that is neither a regular file nor a folder.
#[must_use]
pub fn special_kind(kind: FileType) -> &'static str {
    if kind.is_fifo() {
        "a named pipe"
    } else if kind.is_char_device() || kind.is_block_device() {
        "a device"
    } else {
        "a socket"
    }
}

/// Reads a part of a file, wherever its position is.
///
/// # Errors
///
/// That of the file system, and [`io::ErrorKind::UnexpectedEof`].
pub fn read_exact_at(file: &File, bytes: &mut [u8], offset: u64) -> io::Result<()> {
    file.read_exact_at(bytes, offset)
}

/// Renames a file; fails if the target exists.
///
/// # Errors
///
/// That of the file system.
pub fn rename_new(from: &Path, to: &Path) -> io::Result<()> {
    match renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
        // Some file systems do not support RENAME_NOREPLACE. On those, two processes can race
        // between the check and the rename.
        Err(Errno::INVAL | Errno::NOSYS) if !to.exists() => fs::rename(from, to),
        other => Ok(other?),
    }
}

/// Syncs a folder, so that names in it survive a crash.
///
/// # Errors
///
/// That of the file system.
pub fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}
