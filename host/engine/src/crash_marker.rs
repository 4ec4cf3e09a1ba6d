//! Which engines of files run in which process, noted so that a crash can be laid at the right door.
//!
//! ```text
//!  before load ─► running/<pid>-<n>-<random>, locked: which engine, which bytes
//!  load, create, calls ─► one word each, when they begin
//!  a fatal signal on a thread that runs the engine ─► one word more, see `signal_handler`
//!  orderly end ─► the note is removed
//! ```
//!
//! The lock is the kernel's and ends with the process, however it ends. A note that nobody locks and
//! that holds a signal is a crash, and is counted once. One without a signal is of a process that was
//! killed or lost its power: nobody's fault, and only removed. No call costs anything.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use nix::sys::signal::Signal;
use serde::{Deserialize, Serialize};

use super::library::private_folder;
use super::quarantine::QuarantineRecord;
use super::quarantine::failure_log::FailureLog;
use super::signal_handler;

/// Names that begin so are notes in the making.
const STAGING_PREFIX: &str = ".new-";

/// How many notes this process has set.
static NOTES: AtomicU64 = AtomicU64::new(0);

/// The note of one engine in this process.
#[derive(Debug)]
pub(super) struct CrashMarker {
    file: Arc<File>,
    path: PathBuf,
}

/// The first line of a note.
#[derive(Debug, Serialize, Deserialize)]
struct MarkerHeader {
    id: String,
    sha256: String,
    pid: u32,
    since_ms: i64,
}

impl CrashMarker {
    /// Notes that this process is about to run an engine.
    ///
    /// # Errors
    ///
    /// When the note cannot be written.
    pub(super) fn create(book: &FailureLog, id: &str, sha256: &str) -> io::Result<CrashMarker> {
        signal_handler::install_signal_handlers();
        let folder = book.marker_folder();
        private_folder(&folder)?;
        let pid = std::process::id();
        let number = NOTES.fetch_add(1, Ordering::Relaxed);
        let note =
            MarkerHeader { id: id.into(), sha256: sha256.into(), pid, since_ms: book.now_ms() };
        let mut staged = tempfile::Builder::new().prefix(STAGING_PREFIX).tempfile_in(&folder)?;
        serde_json::to_writer(staged.as_file(), &note)?;
        staged.write_all(b"\n")?;
        // Locked before it has its name, so that nobody takes it for that of a dead process.
        staged.as_file().lock()?;
        // Several containers may share this folder, and each of them counts its processes from 1.
        let name = staged.path().file_name().unwrap_or_default().to_string_lossy().into_owned();
        let random = name.trim_start_matches(STAGING_PREFIX);
        let path = folder.join(format!("{pid}-{number}-{random}"));
        let file = staged.persist_noclobber(&path).map_err(|error| error.error)?;
        Ok(CrashMarker { file: Arc::new(file), path })
    }

    /// From here on the engine does this.
    pub(super) fn record_stage(&self, stage: &str) {
        // Best effort: without the word a crash is told without its place.
        let _ = (&*self.file).write_all(format!("{stage}\n").as_bytes());
    }

    /// The note, for threads that run nothing but the engine.
    pub(super) fn file(&self) -> Arc<File> {
        self.file.clone()
    }
}

impl Drop for CrashMarker {
    fn drop(&mut self) {
        // Best effort: what stays behind holds no signal and is removed by the next start.
        let _ = fs::remove_file(&self.path);
    }
}

/// Reads the notes of processes that are gone: crashes go into the book, and the notes go away.
pub(super) fn collect_crashes(book: &FailureLog) {
    let entries = fs::read_dir(book.marker_folder()).into_iter().flatten().flatten();
    for path in entries.map(|entry| entry.path()) {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.starts_with(STAGING_PREFIX) {
            continue;
        }
        if let Err(error) = collect_crash(book, &path) {
            tracing::warn!(note = %path.display(), %error, "note of a dead process not read");
        }
    }
}

fn collect_crash(book: &FailureLog, path: &Path) -> io::Result<()> {
    let Ok(file) = ctxhost_files::open(path) else { return Ok(()) };
    // Held by its process, or by another sweep.
    if file.try_lock().is_err() {
        return Ok(());
    }
    // Another sweep may have been here between the two lines above.
    if !path.exists() {
        return Ok(());
    }
    let text = io::read_to_string(&file).unwrap_or_default();
    if let Some(record) = parse_crash(&text, book.now_ms()) {
        tracing::error!(engine = record.id, reason = record.reason, "an engine took a host down");
        book.record_crash(&record)?;
    }
    fs::remove_file(path)
}

/// The crash that a note tells of; `None` where its process ended otherwise.
fn parse_crash(text: &str, now_ms: i64) -> Option<QuarantineRecord> {
    let mut lines = text.lines();
    let note: MarkerHeader = serde_json::from_str(lines.next()?).ok()?;
    let words: Vec<&str> = lines.collect();
    let at = words.iter().position(|word| word.starts_with(signal_handler::DEATH_PREFIX))?;
    let stage = words.get(..at)?.last().copied().unwrap_or("load");
    Some(QuarantineRecord {
        id: note.id,
        bytes: Some(note.sha256),
        operation: stage.into(),
        reason: format_signal(
            words.get(at)?.trim_start_matches(signal_handler::DEATH_PREFIX).trim(),
        ),
        failed_at_ms: now_ms,
    })
}

/// `signal 6 (SIGABRT)` for `signal 06`; other words as they are.
fn format_signal(how: &str) -> String {
    let number = how.strip_prefix("signal ").and_then(|digits| digits.parse::<i32>().ok());
    match number.map(|number| (number, Signal::try_from(number))) {
        Some((number, Ok(signal))) => format!("signal {number} ({signal})"),
        _ => how.to_owned(),
    }
}

#[cfg(test)]
mod tests;
