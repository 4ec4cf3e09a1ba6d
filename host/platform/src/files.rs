//! Access, identity and renames of files.

#[cfg_attr(unix, path = "files/unix.rs")]
#[cfg_attr(windows, path = "files/windows.rs")]
mod system;

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io;
use std::path::Path;

pub use system::{
    change_marks, file_identity, foreign_owner, give_folder_to_owner_above, give_to_owner_of, mode,
    path_identity, permissions, read_exact_at, rename_new, special_kind, sync_folder,
};

/// The mode of files that only their owner may read.
pub const PRIVATE_FILE: u32 = 0o600;

/// The mode of folders that only their owner may enter.
pub const PRIVATE_FOLDER: u32 = 0o700;

/// What distinguishes a file from all others of the machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileIdentity {
    /// The file system.
    pub volume: u64,
    /// The file in it.
    pub number: u64,
}

/// Whether opening a path follows a link at its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkPolicy {
    /// The file that the link leads to is opened.
    Follow,
    /// A link is not opened.
    Refuse,
}

/// Options to open a file: a new one is private from the start, a pipe does not block, and a terminal does not
/// become the controlling one.
#[must_use]
pub fn open_options(links: LinkPolicy) -> OpenOptions {
    let mut options = OpenOptions::new();
    system::set_open_flags(&mut options, links);
    options
}

/// Opens a file with these options, which must allow writing; creates a private one if there is none.
///
/// A file that the administrator creates belongs to the owner of its folder: a service that runs as that user could not
/// read it otherwise.
///
/// # Errors
///
/// That of the file system.
pub fn open_or_create(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    // Only a file that is new is given away. An existing one may be a link that the owner of the folder has put there.
    match create_new(options, path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            options.create_new(false).create(true).open(path)
        }
        opened => opened,
    }
}

/// Creates a private file with these options, which must allow writing; an existing one is an error. The owner is that of
/// [`open_or_create`].
///
/// # Errors
///
/// That of the file system.
pub fn create_new(options: &mut OpenOptions, path: &Path) -> io::Result<File> {
    let file = options.create_new(true).open(path)?;
    give_to_owner_of(&file, folder_of(path))?;
    Ok(file)
}

/// The folder that a path is in.
fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Creates a private folder; an existing one is an error. One that the administrator creates belongs to the owner of the
/// folder above.
///
/// # Errors
///
/// That of the file system.
pub fn create_private_folder(path: &Path) -> io::Result<()> {
    folder_builder().create(path)?;
    give_folder_to_owner_above(path)
}

/// Creates a private folder with its parents, as [`create_private_folder`] does; an existing one is left unchanged.
///
/// # Errors
///
/// That of the file system.
pub fn create_private_folders(path: &Path) -> io::Result<()> {
    if path.as_os_str().is_empty() || path.is_dir() {
        return Ok(());
    }
    let created = match create_private_folder(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            create_private_folders(path.parent().ok_or(error)?)?;
            create_private_folder(path)
        }
        created => created,
    };
    match created {
        // Another process may have created it meanwhile.
        Err(_) if path.is_dir() => Ok(()),
        created => created,
    }
}

/// Sets the mode of an open file. Without an effect where files have no modes.
///
/// # Errors
///
/// That of the file system.
pub fn set_mode(file: &File, mode: u32) -> io::Result<()> {
    permissions(mode).map_or(Ok(()), |permissions| file.set_permissions(permissions))
}

/// Sets the mode of a file or folder. Without an effect where files have no modes.
///
/// # Errors
///
/// That of the file system.
pub fn set_path_mode(path: &Path, mode: u32) -> io::Result<()> {
    permissions(mode).map_or(Ok(()), |permissions| fs::set_permissions(path, permissions))
}

fn folder_builder() -> DirBuilder {
    let mut builder = DirBuilder::new();
    system::set_folder_mode(&mut builder);
    builder
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[test]
    fn what_the_administrator_creates_belongs_to_the_owner_of_the_folder() {
        use std::os::unix::fs::{MetadataExt as _, chown, symlink};

        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let owner = |path: &Path| {
            let found = fs::symlink_metadata(path).unwrap();
            (found.uid(), found.gid())
        };
        let root = owner(folder.path());
        if root.0 != 0 || chown(folder.path(), Some(4321), Some(4322)).is_err() {
            return;
        }
        create_private_folders(&at("slots/one")).unwrap();
        let open = |path: &Path| {
            open_or_create(open_options(LinkPolicy::Follow).append(true), path).unwrap();
        };
        open(&at("slots/one/lock"));
        open(&at("slots/one/lock"));
        for name in ["slots", "slots/one", "slots/one/lock"] {
            assert_eq!(owner(&at(name)), (4321, 4322), "{name}");
        }
        // What a link in the folder of another user leads to stays as it is.
        let kept = tempfile::tempdir().unwrap();
        let kept = kept.path().join("kept");
        fs::write(&kept, "").unwrap();
        symlink(&kept, at("link")).unwrap();
        open(&at("link"));
        assert_eq!(owner(&kept), root);
    }

    #[test]
    fn a_file_keeps_its_identity_and_another_has_another() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let create = |name: &str| {
            let mut options = open_options(LinkPolicy::Refuse);
            options.read(true).write(true).create_new(true).open(at(name)).unwrap()
        };
        let (one, two) = (create("one"), create("two"));
        let identity = file_identity(&one).unwrap();
        assert_eq!(path_identity(&at("one")).unwrap(), identity);
        assert_ne!(file_identity(&two).unwrap(), identity);
        rename_new(&at("one"), &at("three")).unwrap();
        assert_eq!(path_identity(&at("three")).unwrap(), identity);
        let taken = rename_new(&at("three"), &at("two")).unwrap_err();
        assert_eq!(taken.kind(), io::ErrorKind::AlreadyExists);
        assert!(at("three").exists());
    }

    #[test]
    fn parts_are_read_from_their_place() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, b"abXYef").unwrap();
        let file = open_options(LinkPolicy::Follow).read(true).open(&path).unwrap();
        let mut part = [0; 3];
        read_exact_at(&file, &mut part, 1).unwrap();
        assert_eq!(&part, b"bXY");
        let past_the_end = read_exact_at(&file, &mut part, 4).unwrap_err();
        assert_eq!(past_the_end.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn what_is_created_is_private() {
        let folder = tempfile::tempdir().unwrap();
        let inner = folder.path().join("a/b");
        create_private_folders(&inner).unwrap();
        create_private_folders(&inner).unwrap();
        assert!(create_private_folder(&inner).is_err());
        let path = inner.join("file");
        open_options(LinkPolicy::Follow).write(true).create_new(true).open(&path).unwrap();
        let mode_of = |path: &Path| mode(&path.metadata().unwrap()).map(|mode| mode & 0o777);
        let expected = |mode| permissions(mode).map(|_| mode);
        assert_eq!(mode_of(&path), expected(PRIVATE_FILE));
        assert_eq!(mode_of(&inner), expected(PRIVATE_FOLDER));
        set_path_mode(&path, 0o640).unwrap();
        assert_eq!(mode_of(&path), expected(0o640));
    }
}
