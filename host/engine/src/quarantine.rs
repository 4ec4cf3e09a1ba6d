//! Engines that failed and are not asked again, with the reason anybody can see.
//!
//! Without a book a quarantine ends with its slot, as a replay wants it. With one it is written down,
//! and other processes hold themselves to it; see [`failure_log`].

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

use serde::Serialize;

pub(super) mod failure_log;

use failure_log::FailureLog;

/// Why an engine is in quarantine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct QuarantineRecord {
    /// The engine.
    pub id: String,
    /// Which build of it failed: the SHA-256 of its file in hex, or `bundled <version>`. `None` for
    /// one that was never open, which no book keeps.
    pub bytes: Option<String>,
    /// The call that failed: `assemble`, `ingest`, `create`, …
    pub operation: String,
    /// What it said, as one sentence.
    pub reason: String,
    /// When, in milliseconds since 1970.
    pub failed_at_ms: i64,
}

impl fmt::Display for QuarantineRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let QuarantineRecord { id, operation, reason, .. } = self;
        write!(f, "{id} failed in {operation}: {reason}")
    }
}

/// The engines in quarantine. The first failure of an engine is the one that is kept.
#[derive(Debug, Default)]
pub struct Quarantine {
    records: Mutex<BTreeMap<String, QuarantineEntry>>,
    book: Option<Arc<FailureLog>>,
}

#[derive(Debug)]
struct QuarantineEntry {
    record: QuarantineRecord,
    /// It was written down, so that somebody else may release it.
    noted: Option<LogReceipt>,
}

/// What the book said when an engine was written down.
#[derive(Clone, Copy, Debug)]
struct LogReceipt {
    /// When it had been released last: that word was about earlier failures.
    released_at_ms: Option<i64>,
}

impl Quarantine {
    /// A quarantine that writes into a book; without one, what it knows ends with it.
    pub fn with_log(book: Option<Arc<FailureLog>>) -> Self {
        Quarantine { records: Mutex::default(), book }
    }

    /// Puts an engine in.
    pub fn put(&self, record: QuarantineRecord) {
        tracing::warn!(
            engine = record.id,
            operation = record.operation,
            reason = record.reason,
            "engine quarantined"
        );
        let mut records = self.records();
        if records.contains_key(&record.id) {
            return;
        }
        let noted = self.write_log(&record);
        records.insert(record.id.clone(), QuarantineEntry { record, noted });
    }

    /// Why an engine is in; `None` when it is not, or when somebody released it in the book since.
    pub fn record(&self, id: &str) -> Option<QuarantineRecord> {
        let mut records = self.records();
        let inmate = records.get(id)?;
        if inmate.noted.is_some_and(|noted| self.was_released(id, noted)) {
            tracing::warn!(engine = id, "engine released from quarantine");
            records.remove(id);
            return None;
        }
        Some(inmate.record.clone())
    }

    /// Lets an engine out, everywhere, and answers why it was in.
    pub fn release(&self, id: &str) -> Option<QuarantineRecord> {
        let inmate = self.records().remove(id)?;
        if let Some(book) = self.book.as_ref().filter(|_| inmate.noted.is_some())
            && let Err(error) = book.release(id)
        {
            tracing::warn!(engine = id, %error, "still in quarantine: its record cannot be struck out");
        }
        Some(inmate.record)
    }

    fn write_log(&self, record: &QuarantineRecord) -> Option<LogReceipt> {
        let book = self.book.as_ref().filter(|_| record.bytes.is_some())?;
        match book.record_failure(record) {
            Ok(released_at_ms) => Some(LogReceipt { released_at_ms }),
            Err(error) => {
                tracing::warn!(engine = record.id, %error, "quarantine not written down");
                None
            }
        }
    }

    /// A book that cannot be read releases nobody.
    fn was_released(&self, id: &str, noted: LogReceipt) -> bool {
        let released_at = self.book.as_ref().and_then(|book| book.released_at(id).ok()?);
        released_at > noted.released_at_ms
    }

    fn records(&self) -> MutexGuard<'_, BTreeMap<String, QuarantineEntry>> {
        self.records.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}
