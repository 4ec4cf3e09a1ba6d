//! The inbox file: one JSON line per message, readable by its owner only.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::error::InboxError;
use super::queued_message::QueuedMessage;
use crate::private_files;

/// The file `<session>.inbox`. It exists only while messages are queued.
#[derive(Debug)]
pub(super) struct InboxFile {
    path: PathBuf,
}

impl InboxFile {
    pub(super) fn for_session(session: &Path) -> InboxFile {
        InboxFile { path: with_suffix(session, "inbox") }
    }

    /// Reads the messages, oldest first. Truncates a torn last line, whose sender got no confirmation.
    pub(super) fn read(&self) -> Result<Vec<QueuedMessage>, InboxError> {
        let bytes = match ctxhost_files::read(&self.path, ctxhost_files::SESSION_FILE_BYTES) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(self.error("read")(error)),
        };
        let whole_bytes = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        if whole_bytes < bytes.len() {
            self.truncate(whole_bytes as u64).map_err(self.error("truncate"))?;
        }
        let lines = bytes.get(..whole_bytes).unwrap_or_default().split(|byte| *byte == b'\n');
        // Unreadable lines are skipped here; `clear` preserves them.
        Ok(lines.filter_map(|line| serde_json::from_slice(line).ok()).collect())
    }

    /// Appends a message and syncs it. On failure the file is as before.
    pub(super) fn append(&self, message: &QueuedMessage) -> Result<(), InboxError> {
        let lead = if self.is_torn() { "\n" } else { "" };
        let line = format!("{lead}{}\n", serde_json::json!(message));
        // A new file is lost in a crash unless its folder is synced as well.
        let is_new = !self.path.exists();
        let mut file = private_files::open_append(&self.path).map_err(self.error("open"))?;
        let before_bytes = file.metadata().map_err(self.error("look at"))?.len();
        let written = file.write_all(line.as_bytes()).and_then(|()| file.sync_data());
        let named = written.and_then(|()| if is_new { sync_folder(&self.path) } else { Ok(()) });
        named.map_err(|error| {
            // If this fails too, the message may be delivered although its sender got an error. A
            // sender that retries with its own id is safe even then.
            let _ = file.set_len(before_bytes);
            self.error("append to")(error)
        })
    }

    /// Removes the file, or renames it if it has unreadable lines.
    pub(super) fn clear(&self) -> Result<(), InboxError> {
        let cleared = match self.unreadable_lines() {
            Ok(0) => fs::remove_file(&self.path),
            Ok(lines) => {
                let kept = self.unreadable_path();
                tracing::warn!(file = %kept.display(), lines, "the inbox has unreadable lines; the file is kept");
                fs::rename(&self.path, kept)
            }
            Err(error) => Err(error),
        };
        match cleared {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            cleared => cleared.and_then(|()| sync_folder(&self.path)).map_err(self.error("clear")),
        }
    }

    fn unreadable_lines(&self) -> io::Result<usize> {
        let bytes = ctxhost_files::read(&self.path, ctxhost_files::SESSION_FILE_BYTES)?;
        let lines = bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        Ok(lines.filter(|line| serde_json::from_slice::<QueuedMessage>(line).is_err()).count())
    }

    /// A free path for a file with unreadable lines.
    fn unreadable_path(&self) -> PathBuf {
        let names =
            (1_u32..).map(|number| with_suffix(&self.path, &format!("unreadable.{number}")));
        names.into_iter().find(|name| !name.exists()).unwrap_or_else(|| self.path.clone())
    }

    /// Whether the file ends in a torn line: an append failed and could not be undone.
    fn is_torn(&self) -> bool {
        ctxhost_files::read(&self.path, ctxhost_files::SESSION_FILE_BYTES)
            .is_ok_and(|bytes| bytes.last().is_some_and(|last| *last != b'\n'))
    }

    fn truncate(&self, length_bytes: u64) -> io::Result<()> {
        let file = OpenOptions::new().write(true).open(&self.path)?;
        file.set_len(length_bytes)?;
        file.sync_data()
    }

    fn error(&self, action: &'static str) -> impl FnOnce(io::Error) -> InboxError {
        let path = self.path.clone();
        move |source| InboxError::Io { action, path, source }
    }
}

/// `<name>.<suffix>` in the same folder.
fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.file_name().map_or_else(OsString::new, OsString::from);
    name.push(".");
    name.push(suffix);
    path.with_file_name(name)
}

/// Syncs the folder of a file, which makes its name durable.
fn sync_folder(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(folder) if cfg!(unix) => File::open(folder)?.sync_all(),
        _ => Ok(()),
    }
}
