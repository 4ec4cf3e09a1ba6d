//! The file behind a session: appended to, never rewritten but once, when an older version is migrated.
//!
//! An append is one write of one line, then a sync. When either fails, the file is cut back to what
//! it was, so that memory and file tell the same story.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use super::contents::Contents;
use super::error::SessionError;
use super::identity;

/// A session file that is open for writing.
#[derive(Debug)]
pub(super) struct Journal {
    path: PathBuf,
    sink: Box<dyn Sink>,
    length_bytes: u64,
    is_broken: bool,
}

/// What a journal needs of a file.
pub(super) trait Sink: std::fmt::Debug + Send + Sync {
    /// The length of the file now.
    fn length_bytes(&self) -> io::Result<u64>;
    /// Writes all bytes at the end.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// Waits until what was written is on the disk.
    fn sync(&mut self) -> io::Result<()>;
    /// Cuts the file.
    fn truncate(&mut self, length_bytes: u64) -> io::Result<()>;
}

impl Journal {
    /// Opens a file for writing and reads it. Nothing on the disk changes before the first append.
    pub(super) fn open(path: &Path) -> Result<(Journal, Vec<u8>), SessionError> {
        // The file itself is replaced by a migration, not a link that leads to it.
        let path = path.canonicalize().map_err(io_error("open", path))?;
        let mut file = OpenOptions::new()
            .read(true)
            .append(true)
            .open(&path)
            .map_err(io_error("open", &path))?;
        lock(&file, &path)?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(io_error("read", &path))?;
        let journal = Journal::on(&path, Box::new(DiskFile(file)), bytes.len() as u64);
        Ok((journal, bytes))
    }

    /// Creates a file that must not be there yet, with its first bytes. It has them when it gets its name:
    /// a kill leaves no session without a header.
    pub(super) fn create(path: &Path, bytes: &[u8]) -> Result<Journal, SessionError> {
        if path.exists() {
            return Err(io_error("create", path)(io::ErrorKind::AlreadyExists.into()));
        }
        let staged = beside(path, &format!("new-{}", identity::nonce()));
        let file = new_file(&staged).map_err(io_error("create", path))?;
        lock(&file, path)?;
        let mut journal = Journal::on(&staged, Box::new(DiskFile(file)), 0);
        let written = journal.write(bytes).and_then(|()| {
            fs::hard_link(&staged, path)
                .or_else(|error| {
                    // Some file systems have no links; others say that somebody was faster.
                    if path.exists() { Err(error) } else { fs::rename(&staged, path) }
                })
                .map_err(io_error("create", path))
        });
        // A second name of the file, or the only one of one that nobody wants.
        let _ = fs::remove_file(&staged);
        written?;
        journal.path = path.canonicalize().map_err(io_error("create", path))?;
        sync_folder(&journal.path).map_err(io_error("create", path))?;
        Ok(journal)
    }

    /// A journal on a file of a known length.
    pub(super) fn on(path: &Path, sink: Box<dyn Sink>, length_bytes: u64) -> Journal {
        Journal { path: path.to_owned(), sink, length_bytes, is_broken: false }
    }

    /// The file.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Appends a line. Before the first one, what is torn or old about the file is put right.
    pub(super) fn append(
        &mut self,
        contents: &mut Contents,
        line: &str,
    ) -> Result<(), SessionError> {
        if self.is_broken {
            return Err(SessionError::Broken { path: self.path.clone() });
        }
        self.check_length()?;
        self.put_right(contents)?;
        let lead = if contents.is_unfinished() { "\n" } else { "" };
        self.write(format!("{lead}{line}\n").as_bytes())
    }

    /// Appends lines with one write and one sync. If either fails, none of them is there.
    pub(super) fn append_all(
        &mut self,
        contents: &mut Contents,
        lines: &[&str],
    ) -> Result<(), SessionError> {
        self.append(contents, &lines.join("\n"))
    }

    fn check_length(&self) -> Result<(), SessionError> {
        let found_bytes = self.sink.length_bytes().map_err(io_error("look at", &self.path))?;
        if found_bytes == self.length_bytes {
            return Ok(());
        }
        let (path, expected_bytes) = (self.path.clone(), self.length_bytes);
        Err(SessionError::Changed { path, expected_bytes, found_bytes })
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), SessionError> {
        let written = self.sink.append(bytes).and_then(|()| self.sink.sync());
        if let Err(source) = written {
            self.is_broken = self.sink.truncate(self.length_bytes).is_err();
            return Err(io_error("append to", &self.path)(source));
        }
        self.length_bytes += bytes.len() as u64;
        Ok(())
    }

    fn put_right(&mut self, contents: &mut Contents) -> Result<(), SessionError> {
        if let Some(torn) = contents.torn() {
            let aside = set_aside(&self.path, "torn", torn)?;
            tracing::warn!(file = %aside.display(), "the last line was cut short, its bytes are set aside");
            self.cut(self.length_bytes - torn.len() as u64)?;
            contents.drop_torn();
        }
        if let Some(version) = contents.migrated_from {
            self.migrate(version, &contents.to_bytes())?;
            contents.migrated_from = None;
        }
        Ok(())
    }

    fn cut(&mut self, length_bytes: u64) -> Result<(), SessionError> {
        let cut = self.sink.truncate(length_bytes).and_then(|()| self.sink.sync());
        cut.map_err(io_error("cut the torn line off", &self.path))?;
        self.length_bytes = length_bytes;
        Ok(())
    }

    /// Puts the migrated file in the place of the old one, which stays beside it.
    fn migrate(&mut self, from_version: u32, bytes: &[u8]) -> Result<(), SessionError> {
        let original = fs::read(&self.path).map_err(io_error("read", &self.path))?;
        let aside = set_aside(&self.path, &format!("v{from_version}.bak"), &original)?;
        let file = replace(&self.path, bytes).map_err(io_error("migrate", &self.path))?;
        tracing::info!(original = %aside.display(), from_version, "session migrated");
        self.sink = Box::new(DiskFile(file));
        self.length_bytes = bytes.len() as u64;
        Ok(())
    }
}

#[derive(Debug)]
struct DiskFile(File);

impl Sink for DiskFile {
    fn length_bytes(&self) -> io::Result<u64> {
        Ok(self.0.metadata()?.len())
    }

    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.write_all(bytes)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.0.sync_data()
    }

    fn truncate(&mut self, length_bytes: u64) -> io::Result<()> {
        self.0.set_len(length_bytes)
    }
}

/// Reads a file without any claim on it.
pub(super) fn read(path: &Path) -> Result<Vec<u8>, SessionError> {
    fs::read(path).map_err(io_error("read", path))
}

/// Writes the new file, syncs it, and gives it the name and the permissions of the old one.
fn replace(path: &Path, bytes: &[u8]) -> io::Result<File> {
    let staged = beside(path, "migrating");
    // Left behind by a crash; the lock on the session says that nobody is writing it.
    match fs::remove_file(&staged) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = new_file(&staged)?;
    let renamed = (|| {
        file.write_all(bytes)?;
        file.set_permissions(fs::metadata(path)?.permissions())?;
        file.sync_all()?;
        if cfg!(unix) {
            file.lock()?;
        }
        fs::rename(&staged, path)?;
        sync_folder(path)
    })();
    if let Err(error) = renamed {
        // If this fails too, the next migration removes the file.
        let _ = fs::remove_file(&staged);
        return Err(error);
    }
    Ok(file)
}

/// Keeps bytes in a file beside the session, once.
pub(super) fn set_aside(path: &Path, suffix: &str, bytes: &[u8]) -> Result<PathBuf, SessionError> {
    for number in 1_u32.. {
        let numbered = if number == 1 { suffix.to_owned() } else { format!("{suffix}.{number}") };
        let aside = beside(path, &numbered);
        match new_file(&aside) {
            Ok(mut file) => {
                let kept = file.write_all(bytes).and_then(|()| file.sync_all());
                kept.and_then(|()| sync_folder(&aside)).map_err(io_error("keep", &aside))?;
                return Ok(aside);
            }
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                if fs::read(&aside).is_ok_and(|there| there == bytes) {
                    return Ok(aside);
                }
            }
            Err(error) => return Err(io_error("keep", &aside)(error)),
        }
    }
    Err(io_error("keep", path)(io::ErrorKind::AlreadyExists.into()))
}

/// The path of a file beside this one: `<name>.<suffix>`.
pub(super) fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.file_name().map_or_else(OsString::new, OsString::from);
    name.push(".");
    name.push(suffix);
    path.with_file_name(name)
}

/// A new file that only its owner reads: sessions hold whatever the agent saw.
fn new_file(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).append(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// One writer at a time. On Windows a lock would keep readers out as well, so there is none.
fn lock(file: &File, path: &Path) -> Result<(), SessionError> {
    match file.try_lock() {
        _ if !cfg!(unix) => Ok(()),
        Err(TryLockError::WouldBlock) => Err(SessionError::Locked { path: path.to_owned() }),
        // Some network file systems have no locks; the check of the length is what is left there.
        Ok(()) | Err(TryLockError::Error(_)) => Ok(()),
    }
}

/// Makes a new name in a folder last.
fn sync_folder(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(folder) if cfg!(unix) => File::open(folder)?.sync_all(),
        _ => Ok(()),
    }
}

pub(super) fn io_error(
    action: &'static str,
    path: &Path,
) -> impl FnOnce(io::Error) -> SessionError {
    let path = path.to_owned();
    move |source| SessionError::Io { action, path, source }
}
