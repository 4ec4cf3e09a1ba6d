//! The `details` of a compaction record: the projection as items.

use ctxhost_engine_api::Role;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::lenient;
use super::record::Record;

/// The version of `details.ctxhost` that this code reads and writes.
pub(super) const DETAILS_VERSION: u32 = 1;

/// The `details` of a compaction by ctxhost, with the file lists where Pi expects them.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct CompactionDetails {
    pub(super) ctxhost: RecordedProjection,
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub(super) read_files: Value,
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub(super) modified_files: Value,
}

/// The projection of a compaction and its origin.
#[derive(Debug, Deserialize, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RecordedProjection {
    pub(super) version: u32,
    #[serde(default, deserialize_with = "lenient::or_default")]
    pub(super) engine: String,
    #[serde(default, deserialize_with = "lenient::or_default")]
    pub(super) engine_version: String,
    #[serde(default, deserialize_with = "lenient::or_default")]
    pub(super) trigger: String,
    #[serde(default, deserialize_with = "lenient::or_default")]
    pub(super) tokens_after: u64,
    pub(super) items: Vec<StoredItem>,
    /// The earlier compactions that the transcript before this one was made without.
    #[serde(
        default,
        deserialize_with = "lenient::or_default",
        skip_serializing_if = "Vec::is_empty"
    )]
    pub(super) ignored_compactions: Vec<String>,
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub(super) engine_details: Value,
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub(super) host_details: Value,
}

/// An item of a projection. Ids are those of the live transcript before the compaction; field names are part
/// of the format.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(untagged, rename_all_fields = "camelCase")]
pub enum StoredItem {
    /// An unchanged entry.
    Keep {
        /// Its id.
        keep: String,
    },
    /// A range of unchanged entries, from the first to the last.
    KeepRange {
        /// Their ids.
        keep_range: (String, String),
    },
    /// An entry with new text.
    ReplaceText {
        /// Its id.
        retell: String,
        /// The text.
        text: String,
    },
    /// An entry with new JSON.
    ReplaceRaw {
        /// Its id.
        rewrite: String,
        /// The JSON.
        raw: String,
    },
    /// An inserted message.
    Insert {
        /// Its role.
        insert: InsertRole,
        /// Its text.
        text: String,
    },
}

/// The role of an inserted message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum InsertRole {
    /// The user.
    User,
    /// The model.
    Assistant,
}

impl InsertRole {
    /// The insert role; `None` for roles that cannot be inserted.
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

/// The projection of a compaction; `None` if it has none and Pi's rule applies.
pub(super) fn read_projection(compaction: &Record) -> Option<RecordedProjection> {
    #[derive(Deserialize)]
    struct WireProjectionRecord {
        details: CompactionDetails,
    }
    let details = compaction.parse_fields::<WireProjectionRecord>()?.details;
    (details.ctxhost.version == DETAILS_VERSION).then_some(details.ctxhost)
}

/// The id of the nth message inserted by a compaction.
pub fn insert_id(compaction_id: &str, number: usize) -> String {
    format!("{compaction_id}#{number}")
}
