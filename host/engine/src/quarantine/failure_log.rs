//! What engines did to the hosts of this machine, on disk, so that the next process knows.
//!
//! One file, `quarantine.json`, replaced as a whole under a lock. A record belongs to the bytes that
//! failed: another build of the same engine begins with a clean sheet.
//!
//! ```text
//!  failure    held for hold_ms, twice as long after each further one, at most max_hold_ms
//!  crash      held from the n-th on, until somebody releases it
//! ```

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::QuarantineRecord;
use crate::crash_marker;
use crate::environment::HostClock;
use crate::library::private_folder;
use ctxhost_files::{FileAccess, replace_file};

/// The newest form of the file that is understood.
const VERSION: u32 = 1;

/// How long an engine is held. Made of the settings of `[plugins]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QuarantineRules {
    /// After the first failure, in milliseconds; each further failure doubles it.
    pub hold_ms: u64,
    /// The longest, in milliseconds. A failure this old is forgotten.
    pub max_hold_ms: u64,
    /// So many crashes of a host hold an engine until it is released.
    pub crashes: u32,
}

impl Default for QuarantineRules {
    fn default() -> Self {
        QuarantineRules { hold_ms: 600_000, max_hold_ms: 86_400_000, crashes: 2 }
    }
}

/// What is known against one build of an engine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FailureRecord {
    /// The engine.
    pub id: String,
    /// SHA-256 of its file in hex, or `bundled <version>`.
    pub bytes: String,
    /// The call that failed last.
    pub operation: String,
    /// What it said, or how it took the host down.
    pub reason: String,
    /// When, in milliseconds since 1970.
    pub failed_at_ms: i64,
    /// Failures that were caught.
    pub failures: u32,
    /// Crashes of a host.
    pub crashes: u32,
    /// It does not serve before this, in milliseconds since 1970.
    pub held_until_ms: i64,
    /// It does not serve until it is released.
    pub held: bool,
}

impl FailureRecord {
    /// What happened, as one clause: `2 crashes, last in create: signal 6`.
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

    /// Whether it may not serve at a time.
    pub fn is_held_at(&self, now_ms: i64) -> bool {
        self.held || now_ms < self.held_until_ms
    }
}

/// The book of failures in a folder.
#[derive(Debug)]
pub struct FailureLog {
    folder: PathBuf,
    rules: QuarantineRules,
    clock: HostClock,
}

/// The file.
#[derive(Debug, Default, Serialize, Deserialize)]
#[serde(default)]
struct FailureLogFile {
    version: u32,
    records: Vec<FailureRecord>,
    /// When an engine was released last, in milliseconds since 1970: the word to processes that run and
    /// hold it. That a record is gone says less: an engine in other bytes may have taken its place.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    releases: BTreeMap<String, i64>,
}

impl FailureLogFile {
    fn remove_records(&mut self, goes: impl Fn(&FailureRecord) -> bool) -> Vec<FailureRecord> {
        let records = std::mem::take(&mut self.records);
        let (gone, stay) = records.into_iter().partition(goes);
        self.records = stay;
        gone
    }
}

impl FailureLog {
    /// The book in the folder `engines` of a state folder. Nothing is made before there is something
    /// to write.
    pub fn new(state: &Path, rules: QuarantineRules, clock: HostClock) -> Self {
        FailureLog { folder: state.join("engines"), rules, clock }
    }

    /// Everything that is known. Crashes that nobody has written down yet are.
    ///
    /// # Errors
    ///
    /// When the file cannot be read, or is no book.
    pub fn records(&self) -> io::Result<Vec<FailureRecord>> {
        crash_marker::collect_crashes(self);
        Ok(self.read()?.records)
    }

    /// What is known of one build.
    ///
    /// # Errors
    ///
    /// See [`FailureLog::records`].
    pub fn find(&self, id: &str, bytes: &str) -> io::Result<Option<FailureRecord>> {
        let pages = self.read()?;
        Ok(pages.records.into_iter().find(|record| record.id == id && record.bytes == bytes))
    }

    /// Why a build may not serve now. A book that cannot be read holds nobody, and says so in the log.
    pub fn active_hold(&self, id: &str, bytes: &str) -> Option<FailureRecord> {
        crash_marker::collect_crashes(self);
        let record = self.find(id, bytes).unwrap_or_else(|error| {
            tracing::error!(%error, "quarantine cannot be read, so it holds nobody");
            None
        });
        record.filter(|record| self.is_held(record))
    }

    /// Whether a record keeps its engine from serving now.
    pub fn is_held(&self, record: &FailureRecord) -> bool {
        record.is_held_at(self.clock.now_ms())
    }

    /// When an engine was released last, in milliseconds since 1970; `None` for never.
    ///
    /// # Errors
    ///
    /// When the file cannot be read, or is no book.
    pub fn released_at(&self, id: &str) -> io::Result<Option<i64>> {
        Ok(self.read()?.releases.get(id).copied())
    }

    /// A call of an engine failed. Answers when it had been released last, see
    /// [`FailureLog::released_at`]: who holds it from now on waits for a later word.
    ///
    /// # Errors
    ///
    /// When the file cannot be replaced.
    pub fn record_failure(&self, record: &QuarantineRecord) -> io::Result<Option<i64>> {
        let rules = self.rules;
        self.update_record(record, |kept, now_ms| {
            kept.failures += 1;
            let doubled = rules.hold_ms.checked_shl(kept.failures - 1).unwrap_or(u64::MAX);
            let hold_ms = doubled.max(rules.hold_ms).min(rules.max_hold_ms.max(rules.hold_ms));
            kept.held_until_ms = now_ms.saturating_add_unsigned(hold_ms);
        })
    }

    /// An engine took its host down.
    ///
    /// # Errors
    ///
    /// When the file cannot be replaced.
    pub fn record_crash(&self, record: &QuarantineRecord) -> io::Result<()> {
        let crashes = self.rules.crashes;
        let noted = self.update_record(record, |kept, _| {
            kept.crashes += 1;
            kept.held |= kept.crashes >= crashes;
        });
        noted.map(drop)
    }

    /// Strikes an engine out, in all builds, and answers what was known. Processes that run and hold it
    /// ask it again.
    ///
    /// # Errors
    ///
    /// When the file cannot be read or replaced.
    pub fn release(&self, id: &str) -> io::Result<Vec<FailureRecord>> {
        crash_marker::collect_crashes(self);
        // Without a book nobody was ever held by one.
        if !self.path().exists() {
            return Ok(Vec::new());
        }
        let _lock = self.lock()?;
        let mut pages = self.read()?;
        let gone = pages.remove_records(|record| record.id == id);
        let before = pages.releases.get(id).copied();
        // Later than the last one, whatever became of the clock since.
        let now_ms = self.clock.now_ms().max(before.map_or(i64::MIN, |at| at.saturating_add(1)));
        pages.releases.insert(id.to_owned(), now_ms);
        self.write(&mut pages)?;
        Ok(gone)
    }

    /// Lets an engine be opened again that failed, but not one that took hosts down: somebody swaps it in
    /// and knows what they do. Processes in which it broke go without it as before.
    ///
    /// # Errors
    ///
    /// When the file cannot be read or replaced.
    pub fn clear_failures(&self, id: &str) -> io::Result<Vec<FailureRecord>> {
        crash_marker::collect_crashes(self);
        self.remove_records(|record| record.id == id && record.crashes == 0)
    }

    /// Strikes out what is known of other builds of an engine than this one. Processes in which one of
    /// those broke go without it as before: they run the old bytes.
    ///
    /// # Errors
    ///
    /// When the file cannot be read or replaced.
    pub fn forget_other_builds(&self, id: &str, bytes: &str) -> io::Result<Vec<FailureRecord>> {
        crash_marker::collect_crashes(self);
        self.remove_records(|record| record.id == id && record.bytes != bytes)
    }

    /// Where processes note which engines they run.
    pub(crate) fn marker_folder(&self) -> PathBuf {
        self.folder.join("running")
    }

    /// The time, as this book has it.
    pub(crate) fn now_ms(&self) -> i64 {
        self.clock.now_ms()
    }

    fn remove_records(
        &self,
        goes: impl Fn(&FailureRecord) -> bool,
    ) -> io::Result<Vec<FailureRecord>> {
        if self.read()?.records.iter().all(|record| !goes(record)) {
            return Ok(Vec::new());
        }
        let _lock = self.lock()?;
        let mut pages = self.read()?;
        let gone = pages.remove_records(goes);
        self.write(&mut pages)?;
        Ok(gone)
    }

    fn update_record(
        &self,
        what: &QuarantineRecord,
        count: impl FnOnce(&mut FailureRecord, i64),
    ) -> io::Result<Option<i64>> {
        let Some(bytes) = &what.bytes else { return Ok(None) };
        let _lock = self.lock()?;
        let mut pages = self.read_or_reset()?;
        let records = &mut pages.records;
        let found = records.iter().position(|it| it.id == what.id && &it.bytes == bytes);
        let before = found.map(|at| records.remove(at)).filter(|it| !self.is_expired(it));
        let mut kept = before.unwrap_or_else(|| FailureRecord {
            id: what.id.clone(),
            bytes: bytes.clone(),
            operation: String::new(),
            reason: String::new(),
            failed_at_ms: 0,
            failures: 0,
            crashes: 0,
            held_until_ms: 0,
            held: false,
        });
        kept.operation.clone_from(&what.operation);
        kept.reason.clone_from(&what.reason);
        kept.failed_at_ms = what.failed_at_ms;
        count(&mut kept, what.failed_at_ms);
        records.push(kept);
        self.write(&mut pages)?;
        Ok(pages.releases.get(&what.id).copied())
    }

    /// Old sins count no more, unless they hold.
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
        let pages: FailureLogFile =
            serde_json::from_slice(&text).map_err(|error| file_error(&path, &error.to_string()))?;
        if pages.version > VERSION {
            return Err(file_error(&path, "was written by a newer ctxhost"));
        }
        Ok(pages)
    }

    /// A file that is no book must not keep failures from being written down: it is put aside.
    fn read_or_reset(&self) -> io::Result<FailureLogFile> {
        match self.read() {
            Ok(pages) => Ok(pages),
            Err(error) if error.to_string().contains("newer ctxhost") => Err(error),
            Err(error) => {
                let aside = self.path().with_extension("json.broken");
                tracing::error!(%error, aside = %aside.display(), "put aside");
                fs::rename(self.path(), aside)?;
                Ok(FailureLogFile::default())
            }
        }
    }

    fn write(&self, pages: &mut FailureLogFile) -> io::Result<()> {
        pages.version = VERSION;
        Ok(replace_file(&self.path(), &serde_json::to_vec_pretty(pages)?, FileAccess::Private)?)
    }

    /// The kernel's lock, which ends with whoever holds it. It is on a file of its own, because the
    /// book itself is replaced.
    fn lock(&self) -> io::Result<File> {
        private_folder(&self.folder)?;
        let path = self.folder.join("quarantine.lock");
        let file = File::options().create(true).truncate(false).write(true).open(path)?;
        file.lock()?;
        Ok(file)
    }
}

fn file_error(path: &Path, what: &str) -> io::Error {
    io::Error::other(format!("{}: {what}", path.display()))
}

#[cfg(test)]
mod tests;
