//! What ctxhost writes into the `details` of a compaction: the projection, item by item.

use ctxhost_engine_api::Role;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::record::Record;

/// The version of `details.ctxhost` that this code writes and follows.
pub(super) const DETAILS_VERSION: u32 = 1;

/// The `details` of a compaction of ctxhost; the file lists stand where Pi looks for them.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CompactionDetails {
    pub(super) ctxhost: RecordedProjection,
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub(super) read_files: Value,
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub(super) modified_files: Value,
}

/// The projection that a compaction left, and who made it.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RecordedProjection {
    pub(super) version: u32,
    #[serde(default)]
    pub(super) engine: String,
    #[serde(default)]
    pub(super) engine_version: String,
    #[serde(default)]
    pub(super) trigger: String,
    #[serde(default)]
    pub(super) tokens_after: u64,
    pub(super) items: Vec<StoredItem>,
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub(super) engine_details: Value,
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub(super) host_details: Value,
}

/// One item of a projection. Ids are those of the live transcript before the compaction.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(untagged, rename_all_fields = "camelCase")]
pub(super) enum StoredItem {
    /// An entry as it was.
    Keep { keep: String },
    /// All entries from the first to the last, as they were.
    KeepRange { keep_range: (String, String) },
    /// An entry with other text.
    ReplaceText { retell: String, text: String },
    /// An entry with other JSON.
    ReplaceRaw { rewrite: String, raw: String },
    /// A message of the engine.
    Insert { insert: InsertRole, text: String },
}

/// In whose place an inserted message stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum InsertRole {
    User,
    Assistant,
}

impl InsertRole {
    /// The speaker of a role; other roles cannot be inserted.
    pub(super) fn from_role(role: Role) -> Option<InsertRole> {
        match role {
            Role::User => Some(InsertRole::User),
            Role::Assistant => Some(InsertRole::Assistant),
            _ => None,
        }
    }

    /// The role.
    pub(super) fn to_role(self) -> Role {
        match self {
            InsertRole::User => Role::User,
            InsertRole::Assistant => Role::Assistant,
        }
    }
}

/// The projection that a compaction recorded; `None` where Pi's own rule is all there is.
pub(super) fn read_items(compaction: &Record) -> Option<Vec<StoredItem>> {
    #[derive(Deserialize)]
    struct WireProjectionRecord {
        details: CompactionDetails,
    }
    let details = compaction.parse_fields::<WireProjectionRecord>()?.details;
    (details.ctxhost.version == DETAILS_VERSION).then_some(details.ctxhost.items)
}

/// The id of the nth message that a compaction inserted.
pub(super) fn insert_id(compaction_id: &str, number: usize) -> String {
    format!("{compaction_id}#{number}")
}
