//! The failures and crashes of engines on this machine, in `quarantine.json`.
//!
//! The file is replaced as a whole under a lock. A record belongs to the bytes that failed: another
//! build of the same engine starts without one.
//!
//! ```text
//!  failure    quarantined for hold_ms, twice as long after each further one, at most max_hold_ms
//!  crash      from the n-th on quarantined until it is released
//! ```

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use ctxhost_files::{FileAccess, replace_file};
use ctxhost_platform::files::{LinkPolicy, open_options, open_or_create};
use serde::{Deserialize, Serialize};

use super::record::QuarantineRecord;
use crate::clock::HostClock;
use crate::crash_marker::{self, CrashMarker};
use crate::library::private_folder;

/// The newest version of the file format that this host reads.
const VERSION: u32 = 1;

/// How long engines are quarantined, from the settings of `[plugins]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuarantineRules {
    /// Milliseconds after the first failure; each further failure doubles it.
    pub hold_ms: u64,
    /// The longest quarantine in milliseconds. A failure older than this is forgotten.
    pub max_hold_ms: u64,
    /// The number of crashes after which an engine is quarantined until it is released.
    pub crashes: u32,
}

impl Default for QuarantineRules {
    fn default() -> Self {
        QuarantineRules { hold_ms: 600_000, max_hold_ms: 86_400_000, crashes: 2 }
    }
}

/// The failures of one build of an engine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailureRecord {
    /// The engine's id.
    pub id: String,
    /// SHA-256 of its file in hex, or `bundled <version>`.
    pub bytes: String,
    /// The call that failed last.
    pub operation: String,
    /// The error message, or the signal of the crash.
    pub reason: String,
    /// The last failure, in milliseconds since 1970.
    pub failed_at_ms: i64,
    /// Failed calls.
    pub failures: u32,
    /// Crashes of the host process.
    pub crashes: u32,
    /// Quarantined until this time, in milliseconds since 1970.
    pub held_until_ms: i64,
    /// Quarantined until it is released.
    pub held: bool,
}

impl FailureRecord {
    /// What happened, as one clause: `2 crashes of a host, last in create: signal 6`.
    pub fn summary(&self) -> String {
        let counted = |count: u32, one: &str, many: &str| match count {
            0 => None,
            1 => Some(format!("1 {one}")),
            count => Some(format!("{count} {many}")),
        };
        let counts = [
            counted(self.crashes, "crash of a host", "crashes of a host"),
            counted(self.failures, "failure", "failures"),
        ];
        let counts: Vec<String> = counts.into_iter().flatten().collect();
        format!("{}, last in {}: {}", counts.join(" and "), self.operation, self.reason)
    }

    /// Whether the engine is quarantined at a time.
    pub fn is_held_at(&self, now_ms: i64) -> bool {
        self.held || now_ms < self.held_until_ms
    }
}

/// The failure log in a state folder.
#[derive(Debug)]
pub struct FailureLog {
    folder: PathBuf,
    rules: QuarantineRules,
    clock: HostClock,
}

/// The contents of `quarantine.json`.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct FailureLogFile {
    version: u32,
    records: Vec<FailureRecord>,
    /// The last release of each engine, in milliseconds since 1970. Running processes compare it with
    /// the time of their own failure; a missing record would not do, since another build of the
    /// engine may have replaced it.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    releases: BTreeMap<String, i64>,
}

impl FailureLogFile {
    fn remove_records(&mut self, matches: impl Fn(&FailureRecord) -> bool) -> Vec<FailureRecord> {
        self.records.extract_if(.., |record| matches(record)).collect()
    }
}

impl FailureLog {
    /// The log in the folder `engines` of a state folder. Creates no file before the first record.
    pub fn new(state: &Path, rules: QuarantineRules, clock: HostClock) -> Self {
        FailureLog { folder: state.join("engines"), rules, clock }
    }

    /// All records, including crashes of processes that ended since.
    ///
    /// # Errors
    ///
    /// When the file cannot be read or parsed.
    pub fn records(&self) -> io::Result<Vec<FailureRecord>> {
        self.collect_crashes();
        Ok(self.read()?.records)
    }

    /// The record of one build.
    ///
    /// # Errors
    ///
    /// See [`FailureLog::records`].
    pub fn find(&self, id: &str, bytes: &str) -> io::Result<Option<FailureRecord>> {
        let mut records = self.read()?.records.into_iter();
        Ok(records.find(|record| record.id == id && record.bytes == bytes))
    }

    /// The record that quarantines a build now. An unreadable log quarantines no engine.
    pub fn active_hold(&self, id: &str, bytes: &str) -> Option<FailureRecord> {
        self.collect_crashes();
        let record = self.find(id, bytes).unwrap_or_else(|error| {
            tracing::error!(%error, "cannot read the quarantine file; no engine is quarantined");
            None
        });
        record.filter(|record| self.is_held(record))
    }

    /// Whether a record quarantines its engine now.
    pub fn is_held(&self, record: &FailureRecord) -> bool {
        record.is_held_at(self.clock.now_ms())
    }

    /// The last release of an engine in milliseconds since 1970; `None` where there was none.
    ///
    /// # Errors
    ///
    /// When the file cannot be read or parsed.
    pub fn released_at(&self, id: &str) -> io::Result<Option<i64>> {
        Ok(self.read()?.releases.get(id).copied())
    }

    /// Records a failed call. Answers the last release before it (see [`FailureLog::released_at`]): a
    /// process that quarantines the engine now waits for a later one.
    ///
    /// # Errors
    ///
    /// When the file cannot be replaced.
    pub fn record_failure(&self, record: &QuarantineRecord) -> io::Result<Option<i64>> {
        let rules = self.rules;
        self.update_record(record, |kept, now_ms| {
            kept.failures += 1;
            let doubled = rules.hold_ms.checked_shl(kept.failures - 1).unwrap_or(u64::MAX);
            // A shift can also lose all bits, hence the lower bound.
            let hold_ms = doubled.max(rules.hold_ms).min(rules.max_hold_ms.max(rules.hold_ms));
            kept.held_until_ms = now_ms.saturating_add_unsigned(hold_ms);
        })
    }

    /// Records that an engine crashed its host.
    ///
    /// # Errors
    ///
    /// When the file cannot be replaced.
    pub fn record_crash(&self, record: &QuarantineRecord) -> io::Result<()> {
        let crashes = self.rules.crashes;
        let updated = self.update_record(record, |kept, _| {
            kept.crashes += 1;
            kept.held |= kept.crashes >= crashes;
        });
        updated.map(drop)
    }

    /// Releases an engine in all builds and answers its records. Running processes call it again.
    ///
    /// # Errors
    ///
    /// When the file cannot be read or replaced.
    pub fn release(&self, id: &str) -> io::Result<Vec<FailureRecord>> {
        self.collect_crashes();
        // Without a file no engine was ever quarantined on disk, so no process waits for a release.
        if !self.path().exists() {
            return Ok(Vec::new());
        }
        let _lock = self.lock()?;
        let mut file = self.read()?;
        let removed = file.remove_records(|record| record.id == id);
        let before = file.releases.get(id).copied();
        // Later than the last release even where the clock was set back.
        let now_ms = self.clock.now_ms().max(before.map_or(i64::MIN, |at| at.saturating_add(1)));
        file.releases.insert(id.to_owned(), now_ms);
        self.write(&mut file)?;
        Ok(removed)
    }

    /// Removes the records of an engine that only failed, so that it can be opened again. An engine
    /// with crashes stays quarantined, and so does it in processes in which it failed.
    ///
    /// # Errors
    ///
    /// When the file cannot be read or replaced.
    pub fn clear_failures(&self, id: &str) -> io::Result<Vec<FailureRecord>> {
        self.collect_crashes();
        self.remove_records(|record| record.id == id && record.crashes == 0)
    }

    /// Removes the records of other builds of an engine. Processes in which one of those failed still
    /// run the old bytes and keep their quarantine.
    ///
    /// # Errors
    ///
    /// When the file cannot be read or replaced.
    pub fn forget_other_builds(&self, id: &str, bytes: &str) -> io::Result<Vec<FailureRecord>> {
        self.collect_crashes();
        self.remove_records(|record| record.id == id && record.bytes != bytes)
    }

    /// Creates the marker of an engine that this process is about to load.
    ///
    /// # Errors
    ///
    /// When the marker cannot be written.
    pub(crate) fn create_marker(&self, id: &str, sha256: &str) -> io::Result<CrashMarker> {
        CrashMarker::create(&self.marker_folder(), id, sha256, self.clock.now_ms())
    }

    fn marker_folder(&self) -> PathBuf {
        self.folder.join("running")
    }

    /// Records the crashes of processes that have ended.
    fn collect_crashes(&self) {
        let record = |record: &QuarantineRecord| self.record_crash(record);
        crash_marker::collect_crashes(&self.marker_folder(), self.clock.now_ms(), record);
    }

    fn remove_records(
        &self,
        matches: impl Fn(&FailureRecord) -> bool,
    ) -> io::Result<Vec<FailureRecord>> {
        // Most calls find nothing, so they neither lock nor write.
        if !self.read()?.records.iter().any(&matches) {
            return Ok(Vec::new());
        }
        let _lock = self.lock()?;
        let mut file = self.read()?;
        let removed = file.remove_records(matches);
        self.write(&mut file)?;
        Ok(removed)
    }

    fn update_record(
        &self,
        failure: &QuarantineRecord,
        count: impl FnOnce(&mut FailureRecord, i64),
    ) -> io::Result<Option<i64>> {
        let Some(bytes) = &failure.bytes else { return Ok(None) };
        let _lock = self.lock()?;
        let mut file = self.read_or_reset()?;
        let records = &mut file.records;
        let found = records.iter().position(|kept| kept.id == failure.id && &kept.bytes == bytes);
        let before = found.map(|at| records.remove(at)).filter(|kept| !self.is_expired(kept));
        let mut kept = before.unwrap_or_else(|| FailureRecord {
            id: failure.id.clone(),
            bytes: bytes.clone(),
            operation: String::new(),
            reason: String::new(),
            failed_at_ms: 0,
            failures: 0,
            crashes: 0,
            held_until_ms: 0,
            held: false,
        });
        kept.operation.clone_from(&failure.operation);
        kept.reason.clone_from(&failure.reason);
        kept.failed_at_ms = failure.failed_at_ms;
        count(&mut kept, failure.failed_at_ms);
        records.push(kept);
        self.write(&mut file)?;
        Ok(file.releases.get(&failure.id).copied())
    }

    /// Whether a record is too old to count and does not quarantine its engine.
    fn is_expired(&self, record: &FailureRecord) -> bool {
        let now_ms = self.clock.now_ms();
        let age_ms = now_ms.saturating_sub(record.failed_at_ms);
        !record.is_held_at(now_ms)
            && age_ms > i64::try_from(self.rules.max_hold_ms).unwrap_or(i64::MAX)
    }

    fn path(&self) -> PathBuf {
        self.folder.join("quarantine.json")
    }

    fn read(&self) -> io::Result<FailureLogFile> {
        let path = self.path();
        let text = match ctxhost_files::read(&path, ctxhost_files::SMALL_FILE_BYTES) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(FailureLogFile::default());
            }
            Err(error) => return Err(file_error(&path, &error.to_string())),
        };
        let file: FailureLogFile =
            serde_json::from_slice(&text).map_err(|error| file_error(&path, &error.to_string()))?;
        if file.version > VERSION {
            return Err(file_error(&path, "was written by a newer ctxhost"));
        }
        Ok(file)
    }

    /// Renames a damaged file and starts a new one: it must not prevent new failures from being
    /// recorded.
    fn read_or_reset(&self) -> io::Result<FailureLogFile> {
        match self.read() {
            Ok(file) => Ok(file),
            Err(error) if error.to_string().contains("newer ctxhost") => Err(error),
            Err(error) => {
                let renamed = self.path().with_extension("json.broken");
                tracing::error!(%error, renamed_to = %renamed.display(), "damaged quarantine file renamed");
                fs::rename(self.path(), renamed)?;
                Ok(FailureLogFile::default())
            }
        }
    }

    fn write(&self, file: &mut FailureLogFile) -> io::Result<()> {
        file.version = VERSION;
        Ok(replace_file(&self.path(), &serde_json::to_vec_pretty(file)?, FileAccess::Private)?)
    }

    fn lock(&self) -> io::Result<File> {
        private_folder(&self.folder)?;
        // A file of its own, because the log itself is replaced, and a lock belongs to the inode.
        let path = self.folder.join("quarantine.lock");
        let file = open_or_create(open_options(LinkPolicy::Follow).write(true), &path)?;
        file.lock()?;
        Ok(file)
    }
}

fn file_error(path: &Path, reason: &str) -> io::Error {
    io::Error::other(format!("{}: {reason}", path.display()))
}

#[cfg(test)]
mod tests;
