//! Compactions that another agent made, recorded with the context that they left.

use serde_json::Value;

use super::body::RecordBody;
use super::json_fields::json_string;
use super::projection_items::{CompactionDetails, DETAILS_VERSION, RecordedProjection, StoredItem};
use super::record::RecordKind;
use super::{Session, SessionError};

/// A compaction of another agent.
#[derive(Clone, Debug)]
pub struct ForeignCompaction {
    /// The summary, for Pi.
    pub summary: String,
    /// The first record of the kept tail, for Pi; `None` without a tail.
    pub first_kept_id: Option<String>,
    /// The context after it.
    pub items: Vec<StoredItem>,
    /// Size of the context before it.
    pub tokens_before: u64,
    /// Size of the context after it.
    pub tokens_after: u64,
    /// The agent.
    pub agent: String,
    /// Its version.
    pub agent_version: String,
    /// What started the compaction.
    pub trigger: String,
    /// The time in milliseconds since 1970.
    pub timestamp_ms: i64,
}

impl Session {
    /// Appends a compaction of another agent, and returns the id of its record. Whether its items apply to the live
    /// transcript is not checked.
    ///
    /// # Errors
    ///
    /// As [`append`](Self::append).
    pub fn append_foreign_compaction(
        &mut self,
        compaction: ForeignCompaction,
    ) -> Result<String, SessionError> {
        let details = CompactionDetails {
            ctxhost: RecordedProjection {
                version: DETAILS_VERSION,
                engine: compaction.agent,
                engine_version: compaction.agent_version,
                trigger: compaction.trigger,
                tokens_after: compaction.tokens_after,
                items: compaction.items,
                ignored_compactions: Vec::new(),
                engine_details: Value::Null,
                host_details: Value::Null,
            },
            read_files: Value::Null,
            modified_files: Value::Null,
        };
        let details = serde_json::to_string(&details)
            .map_err(|error| SessionError::Plan { reason: error.to_string() })?;
        let body = RecordBody::new(RecordKind::Compaction)
            .with_field("summary", json_string(&compaction.summary))
            .with_field("tokensBefore", compaction.tokens_before.to_string())
            .with_field("details", details);
        let id = self.next_id(&body.id_seed(), compaction.timestamp_ms);
        // Its own id keeps no tail, as Pi defines it.
        let first_kept = json_string(compaction.first_kept_id.as_deref().unwrap_or(&id));
        let body = body.with_field("firstKeptEntryId", first_kept);
        self.append_as(id, body, compaction.timestamp_ms)
    }
}
