//! Why an engine is in quarantine.

use std::fmt;

use serde::Serialize;

/// Why an engine is in quarantine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct QuarantineRecord {
    /// The engine's id.
    pub id: String,
    /// The build that failed: the SHA-256 of its file in hex, or `bundled <version>`. `None` for an
    /// engine that never opened; the log keeps no record of those.
    pub bytes: Option<String>,
    /// The call that failed: `assemble`, `ingest`, `create`, …
    pub operation: String,
    /// The error message.
    pub reason: String,
    /// When it failed, in milliseconds since 1970.
    pub failed_at_ms: i64,
}

impl fmt::Display for QuarantineRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let QuarantineRecord { id, operation, reason, .. } = self;
        write!(f, "{id} failed in {operation}: {reason}")
    }
}
