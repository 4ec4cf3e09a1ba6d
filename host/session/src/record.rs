//! One record of a session: its exact line and the parsed fields that every record has.

use std::ops::Range;

use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;

use super::{clock, readable};

/// Generates the enum and both conversions of its names, so that they cannot disagree.
macro_rules! record_kinds {
    ($( $(#[$doc:meta])* $variant:ident = $name:literal, )*) => {
        /// The type of a record.
        #[derive(Clone, Debug, PartialEq, Eq, Hash)]
        pub enum RecordKind {
            $( $(#[$doc])* $variant, )*
            /// A type unknown to this version. Preserved, never in context.
            Unknown(String),
        }

        impl RecordKind {
            /// The type names known to this version.
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
    /// A message of a user, a model, a tool, a shell command or an extension.
    Message = "message",
    /// A compaction, which redefines the live transcript.
    Compaction = "compaction",
    /// The summary of an abandoned branch.
    BranchSummary = "branch_summary",
    /// State of an extension; never in context.
    Custom = "custom",
    /// A message inserted by an extension.
    CustomMessage = "custom_message",
    /// Hides an earlier record from the context or replaces its content.
    ContextEdit = "context_edit",
    /// A change of the model.
    ModelChange = "model_change",
    /// A change of the thinking level.
    ThinkingLevelChange = "thinking_level_change",
    /// The usage of a call outside the conversation.
    Usage = "usage",
    /// A name for an earlier record.
    Label = "label",
    /// A name for the session.
    SessionInfo = "session_info",
}

/// The field of a message that holds its id in the inbox.
pub const INBOX_ID_KEY: &str = "inboxId";

/// The prefix of the custom types of records written by the host.
pub(super) const HOST_TYPE_PREFIX: &str = "ctxhost.";

/// One record.
#[derive(Clone, Debug)]
pub struct Record {
    line: String,
    /// What its fields are read from, if that is not the line.
    readable: Option<Box<str>>,
    id: String,
    parent_id: Option<String>,
    kind: RecordKind,
    timestamp_ms: i64,
    /// Range of the `message` JSON in what is read, if known; otherwise that is parsed for it.
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

/// Distinguishes `null` from a missing field.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<String>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

/// A parsed record, and whether its line has a `parentId`.
#[derive(Debug)]
pub(super) struct ParsedRecord {
    pub(super) record: Record,
    pub(super) names_parent: bool,
}

/// [`has_session_record_fields`] for a line.
pub(super) fn is_session_record(line: &str) -> bool {
    serde_json::from_str::<serde_json::Map<String, Value>>(line)
        .is_ok_and(|fields| has_session_record_fields(&fields))
}

/// Whether the fields of a line are those of a session record of any version, and of no other format.
pub fn has_session_record_fields(fields: &serde_json::Map<String, Value>) -> bool {
    let text = |name| fields.get(name).and_then(Value::as_str);
    let is_known = text("type").is_some_and(|kind| RecordKind::KNOWN.contains(&kind));
    let has_id = text("id").is_some_and(|id| !id.is_empty()) && fields.contains_key("parentId");
    // Version 1 had no ids.
    let is_first_version = || {
        !fields.contains_key("id")
            && fields.get("message").is_some_and(|message| message.get("role").is_some())
    };
    is_known && (has_id || is_first_version())
}

impl Record {
    /// Parses a line, or returns what is wrong with it.
    pub(super) fn parse(line: &str) -> Result<ParsedRecord, String> {
        let readable = readable::to_readable(line).map(String::into_boxed_str);
        let json = readable.as_deref().unwrap_or(line);
        let wire: WireRecord = serde_json::from_str(json).map_err(|error| error.to_string())?;
        let kind = wire.kind.ok_or("it has no type")?;
        if kind == "session" {
            return Err("it is a second header".to_owned());
        }
        let id = wire.id.filter(|id| !id.is_empty()).ok_or("it has no id")?;
        let record = Record {
            line: line.to_owned(),
            readable,
            id,
            parent_id: wire.parent_id.clone().flatten(),
            kind: RecordKind::from_name(&kind),
            timestamp_ms: clock::parse_ms(&wire.timestamp).unwrap_or(0),
            message: None,
        };
        Ok(ParsedRecord { record, names_parent: wire.parent_id.is_some() })
    }

    /// A record whose line is known to have these fields.
    pub(super) fn from_parts(
        line: String,
        id: &str,
        parent_id: Option<&str>,
        kind: RecordKind,
        timestamp_ms: i64,
    ) -> Record {
        let parent_id = parent_id.map(str::to_owned);
        let (readable, message) = (None, None);
        Record { line, readable, id: id.to_owned(), parent_id, kind, timestamp_ms, message }
    }

    /// Sets the range of its `message` JSON in the line.
    pub(super) fn with_message_at(self, range: Range<usize>) -> Record {
        Record { message: Some(range), ..self }
    }

    /// The id, unique in the session.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The id of its parent as written in the line; `None` for a root.
    pub fn parent_id(&self) -> Option<&str> {
        self.parent_id.as_deref()
    }

    /// Its type.
    pub fn kind(&self) -> &RecordKind {
        &self.kind
    }

    /// When it was written, in milliseconds since 1970; 0 if the line has no time.
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

    /// The JSON of its fields: the line, unless a reader would refuse a part of it (see [`readable`]).
    pub(super) fn json(&self) -> &str {
        self.readable.as_deref().unwrap_or(&self.line)
    }

    /// The JSON of its `message`, as in the line unless a reader would refuse a part of it.
    pub fn message_raw(&self) -> Option<&str> {
        if let Some(range) = &self.message {
            return self.json().get(range.clone());
        }
        let wire: WireRecordMessage<'_> = serde_json::from_str(self.json()).ok()?;
        wire.message.map(RawValue::get)
    }

    /// The extension state under this custom type; `None` for any other record.
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

    /// Its id in the inbox, if the message was queued.
    pub fn inbox_id(&self) -> Option<String> {
        #[derive(Deserialize)]
        struct WireInboxId {
            #[serde(rename = "inboxId")]
            id: String,
        }
        // Most records were not queued, and parsing each would make opening a long session slow.
        let may_have_id = self.line.contains(INBOX_ID_KEY);
        let message = may_have_id.then(|| self.message_raw()).flatten()?;
        serde_json::from_str::<WireInboxId>(message).ok().map(|wire| wire.id)
    }

    /// Whether it holds state of the host.
    pub(super) fn is_host_state(&self) -> bool {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct WireType<'a> {
            #[serde(borrow)]
            // A name with escapes cannot be borrowed from the line.
            custom_type: std::borrow::Cow<'a, str>,
        }
        let wire = (self.kind == RecordKind::Custom)
            .then(|| self.parse_fields::<WireType<'_>>())
            .flatten();
        wire.is_some_and(|wire| wire.custom_type.starts_with(HOST_TYPE_PREFIX))
    }

    /// Provider and model id of a model change or of an assistant message.
    pub(super) fn model(&self) -> Option<(String, String)> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct WireModel {
            provider: String,
            // Assistant messages call it `model`.
            #[serde(alias = "model")]
            model_id: String,
        }
        let json = match self.kind {
            RecordKind::ModelChange => self.json(),
            RecordKind::Message => self.message_raw()?,
            _ => return None,
        };
        let wire: WireModel = serde_json::from_str(json).ok()?;
        Some((wire.provider, wire.model_id))
    }

    /// Parses its fields as `T`.
    pub(super) fn parse_fields<'a, T: Deserialize<'a>>(&'a self) -> Option<T> {
        serde_json::from_str(self.json()).ok()
    }
}
