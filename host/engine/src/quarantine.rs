//! The engines of a slot that failed and are not called again.
//!
//! Without a [`FailureLog`] the quarantine lasts as long as the slot, as a replay needs it. With one
//! it is also written to disk, and other processes observe it.

use std::collections::BTreeMap;
use std::sync::Arc;

pub(super) mod failure_log;
pub(super) mod record;

use failure_log::FailureLog;
use parking_lot::Mutex;
pub use record::QuarantineRecord;

/// The engines in quarantine, each with its first failure.
#[derive(Debug, Default)]
pub struct Quarantine {
    entries: Mutex<BTreeMap<String, QuarantineEntry>>,
    log: Option<Arc<FailureLog>>,
}

#[derive(Debug)]
struct QuarantineEntry {
    record: QuarantineRecord,
    /// Set where the failure is in the log, so that another process can release the engine.
    receipt: Option<LogReceipt>,
}

/// The state of the log when a failure was written to it.
#[derive(Clone, Copy, Debug)]
struct LogReceipt {
    /// The last release before this failure; it concerns earlier failures.
    released_at_ms: Option<i64>,
}

impl Quarantine {
    /// A quarantine that writes to `log`, if there is one.
    pub fn with_log(log: Option<Arc<FailureLog>>) -> Self {
        Quarantine { entries: Mutex::default(), log }
    }

    /// Quarantines an engine.
    pub fn put(&self, record: QuarantineRecord) {
        tracing::warn!(
            engine = record.id,
            operation = record.operation,
            reason = record.reason,
            "engine quarantined"
        );
        let mut entries = self.entries.lock();
        if entries.contains_key(&record.id) {
            return;
        }
        let receipt = self.write_log(&record);
        entries.insert(record.id.clone(), QuarantineEntry { record, receipt });
    }

    /// Why an engine is in quarantine; `None` where it is not, or was released in the log since.
    pub fn record(&self, id: &str) -> Option<QuarantineRecord> {
        let mut entries = self.entries.lock();
        let entry = entries.get(id)?;
        if entry.receipt.is_some_and(|receipt| self.was_released(id, receipt)) {
            tracing::warn!(engine = id, "engine released from quarantine");
            entries.remove(id);
            return None;
        }
        Some(entry.record.clone())
    }

    /// Releases an engine, in the log as well, and answers why it was quarantined.
    pub fn release(&self, id: &str) -> Option<QuarantineRecord> {
        let entry = self.entries.lock().remove(id)?;
        if let Some(log) = self.log.as_ref().filter(|_| entry.receipt.is_some())
            && let Err(error) = log.release(id)
        {
            tracing::warn!(engine = id, %error, "still in quarantine for other processes: its record cannot be removed");
        }
        Some(entry.record)
    }

    fn write_log(&self, record: &QuarantineRecord) -> Option<LogReceipt> {
        let log = self.log.as_ref().filter(|_| record.bytes.is_some())?;
        match log.record_failure(record) {
            Ok(released_at_ms) => Some(LogReceipt { released_at_ms }),
            Err(error) => {
                tracing::warn!(engine = record.id, %error, "cannot write the quarantine record");
                None
            }
        }
    }

    fn was_released(&self, id: &str, receipt: LogReceipt) -> bool {
        // An unreadable log releases no engine: `None` is smaller than every time.
        let released_at = self.log.as_ref().and_then(|log| log.released_at(id).ok()?);
        released_at > receipt.released_at_ms
    }
}
