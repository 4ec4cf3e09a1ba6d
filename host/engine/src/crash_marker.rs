//! Marker files that attribute a crash of the host to the engine that caused it.
//!
//! ```text
//!  before load ─► running/<pid>-<n>-<random>, locked: engine and bytes
//!  load, create, calls ─► one line each, when the stage begins
//!  a fatal signal on a thread that runs the engine ─► one more line, see `signal_handler`
//!  orderly end ─► the marker is removed
//! ```
//!
//! The kernel releases the lock when the process ends, however it ends. An unlocked marker with a
//! signal is a crash and is counted once. One without a signal belongs to a process that was killed or
//! lost power; it is removed and counts for nothing. Calls write nothing.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ctxhost_platform::files::give_to_owner_of;
use ctxhost_platform::processes::signal_name;
use serde::{Deserialize, Serialize};

use super::library::private_folder;
use super::quarantine::record::QuarantineRecord;
use super::signal_handler::{DEATH_PREFIX, install_signal_handlers};

/// The name prefix of markers that are not complete yet.
const STAGING_PREFIX: &str = ".new-";

/// Markers created by this process.
static MARKERS: AtomicU64 = AtomicU64::new(0);

/// The marker of one engine in this process.
#[derive(Debug)]
pub(super) struct CrashMarker {
    file: Arc<File>,
    path: PathBuf,
}

/// The first line of a marker.
#[derive(Debug, Serialize, Deserialize)]
struct MarkerHeader {
    id: String,
    sha256: String,
    pid: u32,
    since_ms: i64,
}

impl CrashMarker {
    /// Creates the marker of an engine that this process is about to load.
    ///
    /// # Errors
    ///
    /// When the marker cannot be written.
    pub(super) fn create(
        folder: &Path,
        id: &str,
        sha256: &str,
        now_ms: i64,
    ) -> io::Result<CrashMarker> {
        install_signal_handlers();
        private_folder(folder)?;
        let pid = std::process::id();
        let number = MARKERS.fetch_add(1, Ordering::Relaxed);
        let header = MarkerHeader { id: id.into(), sha256: sha256.into(), pid, since_ms: now_ms };
        let mut staged = tempfile::Builder::new().prefix(STAGING_PREFIX).tempfile_in(folder)?;
        // The service that uses this folder has to read what a crash of a command leaves.
        give_to_owner_of(staged.as_file(), folder)?;
        serde_json::to_writer(staged.as_file(), &header)?;
        staged.write_all(b"\n")?;
        // Locked before it gets its name: an unlocked marker belongs to a dead process.
        staged.as_file().lock()?;
        // Containers that share this folder may have the same pids, hence the random part.
        let name = staged.path().file_name().unwrap_or_default().to_string_lossy().into_owned();
        let random = name.trim_start_matches(STAGING_PREFIX);
        let path = folder.join(format!("{pid}-{number}-{random}"));
        let file = staged.persist_noclobber(&path).map_err(|error| error.error)?;
        Ok(CrashMarker { file: Arc::new(file), path })
    }

    /// Records that a stage of the engine begins: `load`, `create`, `calls`.
    pub(super) fn record_stage(&self, stage: &str) {
        // Best effort: without the line a crash is reported with the stage before.
        let _ = (&*self.file).write_all(format!("{stage}\n").as_bytes());
    }

    /// The open file, for threads that run the engine.
    pub(super) fn file(&self) -> Arc<File> {
        self.file.clone()
    }
}

impl Drop for CrashMarker {
    fn drop(&mut self) {
        // Best effort: a marker left behind holds no signal, and the next start removes it.
        let _ = fs::remove_file(&self.path);
    }
}

/// Removes the markers of processes that have ended, and passes their crashes to `record`.
pub(super) fn collect_crashes(
    folder: &Path,
    now_ms: i64,
    record: impl Fn(&QuarantineRecord) -> io::Result<()>,
) {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    for path in entries.map(|entry| entry.path()) {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name.starts_with(STAGING_PREFIX) {
            continue;
        }
        if let Err(error) = collect_crash(&path, now_ms, &record) {
            tracing::warn!(marker = %path.display(), %error, "cannot read the marker of a dead process");
        }
    }
}

fn collect_crash(
    path: &Path,
    now_ms: i64,
    record: impl Fn(&QuarantineRecord) -> io::Result<()>,
) -> io::Result<()> {
    let Ok(file) = ctxhost_files::open(path) else { return Ok(()) };
    // Locked by its process, or by another process that collects.
    if file.try_lock().is_err() {
        return Ok(());
    }
    // Another process may have collected and removed it between the two lines above.
    if !path.exists() {
        return Ok(());
    }
    let text = io::read_to_string(&file).unwrap_or_default();
    if let Some(crash) = parse_crash(&text, now_ms) {
        tracing::error!(engine = crash.id, reason = crash.reason, "an engine crashed a host");
        record(&crash)?;
    }
    // Only after the crash is recorded, so that an interrupted collection repeats it.
    fs::remove_file(path)
}

/// The crash in a marker; `None` where its process did not crash.
fn parse_crash(text: &str, now_ms: i64) -> Option<QuarantineRecord> {
    let mut lines = text.lines();
    let header: MarkerHeader = serde_json::from_str(lines.next()?).ok()?;
    let lines: Vec<&str> = lines.collect();
    let at = lines.iter().position(|line| line.starts_with(DEATH_PREFIX))?;
    let stage = lines.get(..at)?.last().copied().unwrap_or("load");
    Some(QuarantineRecord {
        id: header.id,
        bytes: Some(header.sha256),
        operation: stage.into(),
        reason: format_signal(lines.get(at)?.trim_start_matches(DEATH_PREFIX).trim()),
        failed_at_ms: now_ms,
    })
}

/// `signal 6 (SIGABRT)` for `signal 06`; any other text unchanged.
fn format_signal(death: &str) -> String {
    let number = death.strip_prefix("signal ").and_then(|digits| digits.parse::<i32>().ok());
    match number.and_then(|number| Some((number, signal_name(number)?))) {
        Some((number, name)) => format!("signal {number} ({name})"),
        None => death.to_owned(),
    }
}

#[cfg(test)]
mod tests;
