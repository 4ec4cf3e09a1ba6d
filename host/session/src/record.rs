//! One record of a session: its exact line, and what the tree needs to know of it.

use std::ops::Range;

use ctxhost_engine_api::transcript::log::NewEntry;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;

use super::{clock, entry};

/// Makes the enum and both ways of its names, so that the two can never disagree.
macro_rules! record_kinds {
    ($( $(#[$doc:meta])* $variant:ident = $name:literal, )*) => {
        /// What sort of record a line is.
        #[derive(Clone, Debug, PartialEq, Eq, Hash)]
        pub enum RecordKind {
            $( $(#[$doc])* $variant, )*
            /// A type that this version does not know. Kept as it is, never in context.
            Unknown(String),
        }

        impl RecordKind {
            /// The type names that this version knows.
            pub const KNOWN: &'static [&'static str] = &[$( $name, )*];

            /// The kind of a type name.
            pub fn from_name(name: &str) -> RecordKind {
                match name {
                    $( $name => RecordKind::$variant, )*
                    other => RecordKind::Unknown(other.to_owned()),
                }
            }

            /// The type name, as in the file.
            pub fn name(&self) -> &str {
                match self {
                    $( RecordKind::$variant => $name, )*
                    RecordKind::Unknown(name) => name,
                }
            }
        }
    };
}

record_kinds! {
    /// A message of a person, a model, a tool, a shell command or an extension.
    Message = "message",
    /// A compaction: from here on the live transcript begins anew.
    Compaction = "compaction",
    /// The summary of a branch that was left.
    BranchSummary = "branch_summary",
    /// State of an extension; never in context.
    Custom = "custom",
    /// A message that an extension put in.
    CustomMessage = "custom_message",
    /// An earlier record is left out of the context or has other content from here on.
    ContextEdit = "context_edit",
    /// Another model answers from here on.
    ModelChange = "model_change",
    /// Another thinking level from here on.
    ThinkingLevelChange = "thinking_level_change",
    /// What a call outside the conversation cost.
    Usage = "usage",
    /// A name for an earlier record.
    Label = "label",
    /// A name for the session.
    SessionInfo = "session_info",
}

/// The field of a message that holds the id of the letter that it was.
pub const INBOX_ID_KEY: &str = "inboxId";

/// How the custom types of ctxhost's own records begin.
pub(super) const HOST_TYPE_PREFIX: &str = "ctxhost.";

/// One record.
#[derive(Clone, Debug)]
pub struct Record {
    line: String,
    id: String,
    parent_id: Option<String>,
    kind: RecordKind,
    timestamp_ms: i64,
    /// Where the JSON of its message stands in the line, where that is known; else it is looked for.
    message: Option<Range<usize>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WireRecord {
    #[serde(rename = "type")]
    kind: Option<String>,
    id: Option<String>,
    #[serde(default, deserialize_with = "present")]
    parent_id: Option<Option<String>>,
    #[serde(default)]
    timestamp: Value,
}

#[derive(Deserialize)]
struct WireRecordMessage<'a> {
    #[serde(borrow)]
    message: Option<&'a RawValue>,
}

/// Tells a field that is `null` from one that is not there.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<String>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

/// A record as parsed, and whether its line said anything about a parent.
#[derive(Debug)]
pub(super) struct ParsedRecord {
    pub(super) record: Record,
    pub(super) names_parent: bool,
}

/// Whether a line is a record of a session, of whatever version, and of nothing else.
pub(super) fn is_session_record(line: &str) -> bool {
    serde_json::from_str::<serde_json::Map<String, Value>>(line)
        .is_ok_and(|fields| has_session_record_fields(&fields))
}

/// The same of the fields of a line.
pub(super) fn has_session_record_fields(fields: &serde_json::Map<String, Value>) -> bool {
    let text = |name| fields.get(name).and_then(Value::as_str);
    let is_known = text("type").is_some_and(|kind| RecordKind::KNOWN.contains(&kind));
    let has_id = text("id").is_some_and(|id| !id.is_empty()) && fields.contains_key("parentId");
    // Version 1 had no ids.
    let is_first_version = || {
        !fields.contains_key("id")
            && fields.get("message").is_some_and(|it| it.get("role").is_some())
    };
    is_known && (has_id || is_first_version())
}

impl Record {
    /// The record of a line, or what is wrong with it.
    pub(super) fn parse(line: &str) -> Result<ParsedRecord, String> {
        let wire: WireRecord = serde_json::from_str(line).map_err(|error| error.to_string())?;
        let kind = wire.kind.ok_or("it has no type")?;
        if kind == "session" {
            return Err("it is a second header".to_owned());
        }
        let id = wire.id.filter(|id| !id.is_empty()).ok_or("it has no id")?;
        let record = Record {
            line: line.to_owned(),
            id,
            parent_id: wire.parent_id.clone().flatten(),
            kind: RecordKind::from_name(&kind),
            timestamp_ms: clock::parse_ms(&wire.timestamp).unwrap_or(0),
            message: None,
        };
        Ok(ParsedRecord { record, names_parent: wire.parent_id.is_some() })
    }

    /// The record of a line that says just this.
    pub(super) fn from_parts(
        line: String,
        id: &str,
        parent_id: Option<&str>,
        kind: RecordKind,
        timestamp_ms: i64,
    ) -> Record {
        let parent_id = parent_id.map(str::to_owned);
        Record { line, id: id.to_owned(), parent_id, kind, timestamp_ms, message: None }
    }

    /// The same record, whose message stands there in its line.
    pub(super) fn with_message_at(self, place: Range<usize>) -> Record {
        Record { message: Some(place), ..self }
    }

    /// The id, unique in the session.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The id of the record it follows, as the line says; `None` for a first one.
    pub fn parent_id(&self) -> Option<&str> {
        self.parent_id.as_deref()
    }

    /// What sort of record it is.
    pub fn kind(&self) -> &RecordKind {
        &self.kind
    }

    /// When it was written, in milliseconds since 1970; 0 when the line does not say.
    pub fn timestamp_ms(&self) -> i64 {
        self.timestamp_ms
    }

    /// When it was written, as ISO 8601 in UTC.
    pub fn iso_time(&self) -> String {
        clock::format_iso(self.timestamp_ms)
    }

    /// The exact line, without its line break.
    pub fn line(&self) -> &str {
        &self.line
    }

    /// The JSON of its `message`, exactly as in the line.
    pub fn message_raw(&self) -> Option<&str> {
        if let Some(place) = &self.message {
            return self.line.get(place.clone());
        }
        let wire: WireRecordMessage<'_> = serde_json::from_str(&self.line).ok()?;
        wire.message.map(RawValue::get)
    }

    /// The state that it keeps for the extension of this custom type; `None` for any other record.
    pub fn custom_data(&self, custom_type: &str) -> Option<Value> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct WireCustom {
            custom_type: String,
            data: Value,
        }
        let is_custom = self.kind == RecordKind::Custom;
        let wire = is_custom.then(|| self.parse_fields::<WireCustom>()).flatten()?;
        (wire.custom_type == custom_type).then_some(wire.data)
    }

    /// The id of the letter that it was, where it waited in the inbox of the session.
    pub fn inbox_id(&self) -> Option<String> {
        #[derive(Deserialize)]
        struct WireInboxId {
            #[serde(rename = "inboxId")]
            id: String,
        }
        // Most records were no letters, and parsing each would make opening a long session slow.
        let may_be = self.line.contains(INBOX_ID_KEY);
        let message = may_be.then(|| self.message_raw()).flatten()?;
        serde_json::from_str::<WireInboxId>(message).ok().map(|delivered| delivered.id)
    }

    /// Whether it keeps state of ctxhost itself.
    pub(super) fn is_host_state(&self) -> bool {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct WireType<'a> {
            #[serde(borrow)]
            custom_type: std::borrow::Cow<'a, str>,
        }
        let wire = (self.kind == RecordKind::Custom)
            .then(|| self.parse_fields::<WireType<'_>>())
            .flatten();
        wire.is_some_and(|wire| wire.custom_type.starts_with(HOST_TYPE_PREFIX))
    }

    /// The model that this record names: a change of model, or the author of a message.
    pub(super) fn model(&self) -> Option<(String, String)> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct WireModel {
            provider: String,
            #[serde(alias = "model")]
            model_id: String,
        }
        let json = match self.kind {
            RecordKind::ModelChange => self.line(),
            RecordKind::Message => self.message_raw()?,
            _ => return None,
        };
        let wire: WireModel = serde_json::from_str(json).ok()?;
        Some((wire.provider, wire.model_id))
    }

    /// The fields of the line that a reader names, parsed.
    pub(super) fn parse_fields<'a, T: Deserialize<'a>>(&'a self) -> Option<T> {
        serde_json::from_str(&self.line).ok()
    }

    /// What it puts into the context; `None` for a record that is not in context.
    ///
    /// Whether an entry is the first task is known to the session only:
    /// see [`Session::entry`](super::Session::entry).
    pub fn to_entry(&self) -> Option<NewEntry> {
        entry::from_record(self)
    }
}
