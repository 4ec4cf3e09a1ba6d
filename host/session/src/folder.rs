//! Folders of session files, one per working folder.

use std::borrow::Cow;
use std::io::{BufRead as _, BufReader, ErrorKind, Read as _};
use std::path::{Path, PathBuf};

use ctxhost_files::MAX_LINE_BYTES;
use serde::Deserialize;

use super::error::io_error;
use super::header::whole_path;
use super::journal::disk::{OsJournalDisk, create_folders};
use super::journal::sidecar::sidecar_path;
use super::{Session, SessionError, SessionHeader, clock};

/// Longest header that is read: 64 KiB. It has an id, a time and a few paths.
const MOST_HEADER_BYTES: u64 = 64 << 10;

/// Types of the records that a user or a model wrote, or that stand for them.
const MESSAGE_TYPES: [&str; 4] = ["message", "compaction", "branch_summary", "custom_message"];

/// Suffixes of the files beside a session that has no message. The queue is not among them: it is removed when it is empty.
const BESIDE: [&str; 5] = ["crc", "live", "ids", "pending", "lock"];

/// A folder of session files.
#[derive(Clone, Debug)]
pub struct SessionFolder {
    path: PathBuf,
}

/// A session file in a folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SessionFile {
    /// Its path.
    pub path: PathBuf,
    /// When it was last modified, in milliseconds since 1970.
    pub changed_ms: i64,
}

impl SessionFolder {
    /// The folder below `root` for sessions of the working folder `cwd`, with the name that Pi gives it.
    ///
    /// Other working folders may have the same one, `/x/a-b` that of `/x/a/b`: see [`newest_of`](Self::newest_of) and
    /// [`SessionFile::is_of`].
    pub fn for_cwd(root: &Path, cwd: &Path) -> SessionFolder {
        let name = whole_path(cwd).display().to_string();
        let name = name.trim_start_matches('/').replace(['/', '\\', ':'], "-");
        SessionFolder { path: root.join(format!("--{name}--")) }
    }

    /// A folder that contains session files directly.
    pub fn from_path(path: &Path) -> SessionFolder {
        SessionFolder { path: path.to_owned() }
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Creates a session in it, and the folder if needed.
    ///
    /// # Errors
    ///
    /// [`SessionError`] if folder or file cannot be created.
    pub fn start_session(&self, cwd: &Path) -> Result<Session, SessionError> {
        let header = SessionHeader::for_cwd(None, cwd, clock::now_ms());
        self.save(Session::in_memory(header))
    }

    /// Moves a session from memory to a new file in it, creating the folder if needed.
    ///
    /// # Errors
    ///
    /// [`SessionError`] if folder or file cannot be created.
    pub fn save(&self, session: Session) -> Result<Session, SessionError> {
        self.create()?;
        let header = session.header();
        let path = self.path.join(header.file_name());
        session.into_file(&path)
    }

    /// Creates the folder with mode 0700 if it does not exist.
    ///
    /// # Errors
    ///
    /// [`SessionError`] if it cannot be created.
    pub fn create(&self) -> Result<(), SessionError> {
        create_folders(&OsJournalDisk, &self.path)
            .map_err(io_error("create the folder", &self.path))
    }

    /// The sessions in it, newest first; empty if the folder does not exist or cannot be read.
    pub fn list(&self) -> Vec<SessionFile> {
        self.try_list().unwrap_or_default()
    }

    /// The sessions in it, newest first; empty if the folder does not exist.
    ///
    /// # Errors
    ///
    /// [`SessionError::Io`] if it cannot be read.
    pub fn try_list(&self) -> Result<Vec<SessionFile>, SessionError> {
        let files = match std::fs::read_dir(&self.path) {
            Ok(files) => files.flatten(),
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(io_error("list", &self.path)(error)),
        };
        let mut sessions: Vec<SessionFile> =
            files.filter_map(|file| session_file(file.path())).collect();
        // Names begin with the creation time, which orders files that changed at the same time.
        sessions.sort_by(|a, b| b.changed_ms.cmp(&a.changed_ms).then_with(|| b.path.cmp(&a.path)));
        Ok(sessions)
    }

    /// The newest session of a working folder that has a message. Sessions whose header names another folder, or cannot be
    /// read, are passed over: to continue them would send the text of another project to the model.
    ///
    /// # Errors
    ///
    /// [`SessionError::Io`] if the folder cannot be read.
    pub fn newest_of(&self, cwd: &Path) -> Result<Option<SessionFile>, SessionError> {
        let is_wanted = |session: &SessionFile| session.is_of(cwd) && session.has_messages();
        Ok(self.try_list()?.into_iter().find(is_wanted))
    }
}

impl SessionFile {
    /// Its header; `None` for a file that is not a session, or whose header is damaged.
    pub fn header(&self) -> Option<SessionHeader> {
        read_header(&self.path)
    }

    /// Whether its header names this working folder.
    pub fn is_of(&self, cwd: &Path) -> bool {
        self.header().is_some_and(|header| header.is_of(cwd))
    }

    /// Whether it has a message, or one waits in its queue.
    pub fn has_messages(&self) -> bool {
        has_messages(&self.path)
    }
}

/// Removes a session file without a message, and the files beside it. Returns whether it was one.
///
/// # Errors
///
/// [`SessionError`] if it is open in another writer, or cannot be read or removed.
pub fn remove_unused(path: &Path) -> Result<bool, SessionError> {
    // Holds the lock of the file until it is gone.
    let session = Session::open(path)?;
    if has_messages(path) {
        return Ok(false);
    }
    std::fs::remove_file(path).map_err(io_error("remove", path))?;
    drop(session);
    for suffix in BESIDE {
        // Most of them do not exist, and one that stays is reported by fsck.
        let _ = std::fs::remove_file(sidecar_path(path, suffix));
    }
    Ok(true)
}

fn read_header(path: &Path) -> Option<SessionHeader> {
    let file = ctxhost_files::open(path).ok()?;
    let lines = BufReader::new(file.take(MOST_HEADER_BYTES)).lines().map_while(Result::ok);
    let first = lines.into_iter().find(|line| !line.trim().is_empty())?;
    let session = Session::parse(&path.display().to_string(), first.as_bytes()).ok()?;
    Some(session.header().clone())
}

fn has_messages(path: &Path) -> bool {
    let is_queued = || sidecar_path(path, "inbox").metadata().is_ok_and(|queue| queue.len() > 0);
    find_message(path).unwrap_or_default() || is_queued()
}

/// Reads lines up to the first message, which is one of the first lines.
fn find_message(path: &Path) -> std::io::Result<bool> {
    let file = ctxhost_files::open(path)?;
    if file.metadata()?.len() > MAX_LINE_BYTES as u64 {
        // Nothing else is as large.
        return Ok(true);
    }
    let mut lines = BufReader::new(file.take(MAX_LINE_BYTES as u64));
    let mut line = Vec::new();
    while lines.read_until(b'\n', &mut line)? > 0 {
        let record = serde_json::from_slice::<RecordType<'_>>(&line);
        if record.is_ok_and(|record| MESSAGE_TYPES.contains(&&*record.kind)) {
            return Ok(true);
        }
        line.clear();
    }
    Ok(false)
}

/// The type of a record.
#[derive(Deserialize)]
struct RecordType<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
}

fn session_file(path: PathBuf) -> Option<SessionFile> {
    if path.extension()? != "jsonl" {
        return None;
    }
    let changed = path.metadata().ok()?.modified().ok()?;
    let since = changed.duration_since(std::time::UNIX_EPOCH).ok()?;
    Some(SessionFile { path, changed_ms: i64::try_from(since.as_millis()).ok()? })
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::os::unix::ffi::OsStrExt as _;

    use super::*;

    const MESSAGE: &str = "{\"type\":\"message\",\"id\":\"a\",\"parentId\":null,\"timestamp\":\"2026-11-21T01:41:21.054Z\",\"message\":{\"role\":\"user\",\"content\":\"hi\"}}\n";

    /// A session of a working folder, with a message.
    fn talk(root: &Path, cwd: &Path) -> PathBuf {
        let session = SessionFolder::for_cwd(root, cwd).start_session(cwd).unwrap();
        let path = session.path().unwrap().to_owned();
        drop(session);
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, text + MESSAGE).unwrap();
        path
    }

    fn newest(root: &Path, cwd: &Path) -> Option<PathBuf> {
        SessionFolder::for_cwd(root, cwd).newest_of(cwd).unwrap().map(|session| session.path)
    }

    #[test]
    fn a_folder_that_cannot_be_listed_is_an_error_and_a_missing_one_is_empty() {
        let root = tempfile::tempdir().unwrap();
        let folder = SessionFolder::from_path(&root.path().join("file"));
        assert!(folder.try_list().unwrap().is_empty());
        // A file cannot be listed by any user, also not by root.
        std::fs::write(folder.path(), "").unwrap();
        let error = folder.newest_of(root.path()).unwrap_err().to_string();
        assert!(error.starts_with("cannot list ") && folder.list().is_empty(), "{error}");
    }

    #[test]
    fn folders_with_one_name_have_sessions_of_their_own() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path();
        let names: [&[u8]; 4] =
            [b"/x/a-b", b"/x/caf\xe9", b"/x/caf\xea", "/x/caf\u{fffd}".as_bytes()];
        let folders = names.map(|name| Path::new(OsStr::from_bytes(name)));
        let sessions = folders.map(|folder| talk(root, folder));
        for (folder, session) in folders.iter().zip(&sessions) {
            assert_eq!(newest(root, folder).as_ref(), Some(session), "{folder:?}");
        }
        assert_eq!(newest(root, Path::new("/x/a/b")), None);
        assert_eq!(newest(root, Path::new("/x/a-b/")).as_ref(), Some(&sessions[0]));
        // Written before the header named the bytes of such folders: none of them continues it.
        let text = std::fs::read_to_string(&sessions[1]).unwrap();
        let (head, rest) = text.split_once(",\"cwdBytes\":").unwrap();
        let rest = rest.split_once('}').unwrap().1;
        std::fs::write(&sessions[1], format!("{head}}}{rest}")).unwrap();
        assert_eq!(newest(root, folders[1]), None);
        std::fs::write(&sessions[0], format!("[damaged\n{MESSAGE}")).unwrap();
        assert_eq!(newest(root, folders[0]), None);
    }

    #[test]
    fn a_session_without_messages_is_passed_over_and_can_be_removed() {
        let root = tempfile::tempdir().unwrap();
        let cwd = Path::new("/w");
        let used = talk(root.path(), cwd);
        let folder = SessionFolder::for_cwd(root.path(), cwd);
        let unused = folder.start_session(cwd).unwrap();
        let path = unused.path().unwrap().to_owned();
        assert_eq!(newest(root.path(), cwd).as_ref(), Some(&used));
        assert!(matches!(remove_unused(&path), Err(SessionError::Locked { .. })));
        drop(unused);
        let queue = sidecar_path(&path, "inbox");
        std::fs::write(&queue, "{}\n").unwrap();
        assert!(!remove_unused(&path).unwrap() && path.exists(), "a message waits");
        std::fs::remove_file(queue).unwrap();
        assert!(remove_unused(&path).unwrap() && !remove_unused(&used).unwrap());
        let left = std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path());
        let left: Vec<String> = left.map(|path| path.display().to_string()).collect();
        let used = used.display().to_string();
        assert!(left.iter().all(|path| path.starts_with(&used)), "{left:?}");
    }
}
