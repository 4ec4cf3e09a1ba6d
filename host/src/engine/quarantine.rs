//! Engines that failed and are not asked again, with the reason anybody can see.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard};

use serde::Serialize;

/// Why an engine is in quarantine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct QuarantineRecord {
    /// The engine.
    pub id: String,
    /// The call that failed: `assemble`, `ingest`, `create`, …
    pub operation: String,
    /// What it said, as one sentence.
    pub reason: String,
    /// When, in milliseconds since 1970.
    pub failed_at_ms: i64,
}

/// The engines in quarantine. The first failure of an engine is the one that is kept.
#[derive(Debug, Default)]
pub struct Quarantine {
    records: Mutex<BTreeMap<String, QuarantineRecord>>,
}

impl Quarantine {
    /// Puts an engine in.
    pub fn put(&self, record: QuarantineRecord) {
        tracing::warn!(
            engine = record.id,
            operation = record.operation,
            reason = record.reason,
            "engine quarantined"
        );
        self.records().entry(record.id.clone()).or_insert(record);
    }

    /// Why an engine is in; `None` when it is not.
    pub fn reason(&self, id: &str) -> Option<QuarantineRecord> {
        self.records().get(id).cloned()
    }

    /// Lets an engine out and answers why it was in.
    pub fn lift(&self, id: &str) -> Option<QuarantineRecord> {
        self.records().remove(id)
    }

    fn records(&self) -> MutexGuard<'_, BTreeMap<String, QuarantineRecord>> {
        self.records.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}
