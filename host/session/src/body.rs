//! The content of a record before it has an id, a parent and a time.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use super::clock;
use super::error::SessionError;
use super::json_fields::{JsonFields, json_string, push_string, to_single_line};
use super::record::{Record, RecordKind};

/// The room for the names of the first four fields, with their quotes and separators.
const HEAD_BYTES: usize = r#"{"type":"","id":"","parentId":null,"timestamp":,"#.len();

/// The content of a record to be appended.
#[derive(Clone, Debug)]
pub struct RecordBody {
    kind: RecordKind,
    fields: JsonFields,
}

impl RecordBody {
    /// A message from its JSON, which is stored byte for byte except line breaks between tokens.
    ///
    /// # Errors
    ///
    /// [`SessionError::Body`] if it is not a JSON object with a `role`.
    pub fn message(json: &str) -> Result<RecordBody, SessionError> {
        #[derive(Deserialize)]
        struct WireRole<'a> {
            #[serde(borrow)]
            role: &'a RawValue,
        }
        // Any role is accepted: those unknown to this version are stored too, but are not in context.
        let is_named = |wire: WireRole<'_>| wire.role.get().starts_with('"');
        // serde also accepts an array for a struct, by position.
        let is_object = json.trim_start().starts_with('{');
        if !is_object || !serde_json::from_str(json).is_ok_and(is_named) {
            return Err(body_error("a message must be a JSON object with a role"));
        }
        Ok(RecordBody::new(RecordKind::Message).with_field("message", to_single_line(json)))
    }

    /// A message that serializes to a JSON object with a `role`.
    ///
    /// # Errors
    ///
    /// As [`message`](Self::message).
    pub fn from_message(message: &impl Serialize) -> Result<RecordBody, SessionError> {
        let json = serde_json::to_string(message).map_err(|error| body_error(error.to_string()))?;
        // Written by a serializer, so it is valid; a role in front needs no search.
        if json.starts_with(r#"{"role":""#) {
            return Ok(
                RecordBody::new(RecordKind::Message).with_field("message", to_single_line(json))
            );
        }
        RecordBody::message(&json)
    }

    /// Replaces its message by the result of `change`, if there is one.
    ///
    /// # Errors
    ///
    /// As [`message`](Self::message).
    pub fn with_message(
        self,
        change: impl FnOnce(&str) -> Option<String>,
    ) -> Result<RecordBody, SessionError> {
        match self.fields.get("message").and_then(change) {
            Some(json) => RecordBody::message(&json),
            None => Ok(self),
        }
    }

    /// The JSON of its message, if it has one.
    pub fn message_raw(&self) -> Option<&str> {
        self.fields.get("message")
    }

    /// Any record from a JSON object with its `type` and own fields.
    ///
    /// # Errors
    ///
    /// [`SessionError::Body`] if it is no such object, is a header, or has an id, a parent or a time, which the
    /// session assigns.
    pub fn from_value(value: &Value) -> Result<RecordBody, SessionError> {
        let object = value.as_object().ok_or_else(|| body_error("not a JSON object"))?;
        let kind = object.get("type").and_then(Value::as_str);
        let kind = kind.ok_or_else(|| body_error("no type"))?;
        if kind == "session" {
            return Err(body_error("a session can have only one header"));
        }
        if kind == "message" {
            return RecordBody::from_message(object.get("message").unwrap_or(&Value::Null));
        }
        let mut body = RecordBody::new(RecordKind::from_name(kind));
        for (name, value) in object.iter().filter(|(name, _)| *name != "type") {
            if matches!(name.as_str(), "id" | "parentId" | "timestamp") {
                return Err(body_error(format!("`{name}` is assigned by the session, omit it")));
            }
            body.fields.set(name.clone(), value.to_string());
        }
        Ok(body)
    }

    /// The content of another record, with its fields byte for byte.
    pub(super) fn from_record(record: &Record) -> Result<RecordBody, SessionError> {
        let unreadable = || body_error("its line is not a JSON object");
        let mut fields = JsonFields::parse(record.line()).ok_or_else(unreadable)?;
        for given in ["type", "id", "parentId", "timestamp"] {
            fields.remove(given);
        }
        Ok(RecordBody { kind: record.kind().clone(), fields })
    }

    /// Replaces the id of its target record, if that was renamed.
    pub(super) fn with_renamed_target(mut self, renamed: &HashMap<String, String>) -> RecordBody {
        let target = self.fields.get("targetId").and_then(|json| serde_json::from_str(json).ok());
        if let Some(id) = target.and_then(|old: String| renamed.get(&old)) {
            self.fields.set("targetId", json_string(id));
        }
        self
    }

    /// A change of the model.
    pub fn model_change(provider: &str, model_id: &str) -> RecordBody {
        RecordBody::new(RecordKind::ModelChange)
            .with_field("provider", json_string(provider))
            .with_field("modelId", json_string(model_id))
    }

    /// A change of the thinking level.
    pub fn thinking_level_change(level: &str) -> RecordBody {
        RecordBody::new(RecordKind::ThinkingLevelChange)
            .with_field("thinkingLevel", json_string(level))
    }

    /// State of an extension; never in context.
    pub fn custom(custom_type: &str, data: &impl Serialize) -> RecordBody {
        let data = serde_json::to_string(data).unwrap_or_else(|_| "null".to_owned());
        RecordBody::new(RecordKind::Custom)
            .with_field("customType", json_string(custom_type))
            .with_field("data", data)
    }

    /// A message of an extension, in context as a user message.
    pub fn custom_message(custom_type: &str, content: &str, display: bool) -> RecordBody {
        RecordBody::new(RecordKind::CustomMessage)
            .with_field("customType", json_string(custom_type))
            .with_field("content", json_string(content))
            .with_field("display", display.to_string())
    }

    /// The summary of a branch abandoned at `from_id`.
    pub fn branch_summary(from_id: &str, summary: &str) -> RecordBody {
        RecordBody::new(RecordKind::BranchSummary)
            .with_field("fromId", json_string(from_id))
            .with_field("summary", json_string(summary))
    }

    /// A compaction that was made elsewhere: its summary, and nothing of what was before.
    pub fn returned_summary(summary: &str) -> RecordBody {
        RecordBody::new(RecordKind::Compaction)
            .with_field("summary", json_string(summary))
            .with_field("firstKeptEntryId", json_string(""))
            .with_field("tokensBefore", "0".to_owned())
    }

    /// Replaces the content of an earlier record by this JSON; `None` hides the record from the context.
    pub fn context_edit(target_id: &str, content: Option<&str>) -> RecordBody {
        let body =
            RecordBody::new(RecordKind::ContextEdit).with_field("targetId", json_string(target_id));
        match content {
            Some(json) => {
                body.with_field("replacement", format!(r#"{{"content":{}}}"#, to_single_line(json)))
            }
            None => body,
        }
    }

    /// A name for an earlier record; `None` removes it.
    pub fn label(target_id: &str, label: Option<&str>) -> RecordBody {
        let body =
            RecordBody::new(RecordKind::Label).with_field("targetId", json_string(target_id));
        match label {
            Some(label) => body.with_field("label", json_string(label)),
            None => body,
        }
    }

    /// A name for the session.
    pub fn session_info(name: &str) -> RecordBody {
        RecordBody::new(RecordKind::SessionInfo).with_field("name", json_string(name))
    }

    /// A body without fields.
    pub(super) fn new(kind: RecordKind) -> RecordBody {
        RecordBody { kind, fields: JsonFields::default() }
    }

    /// Adds a field.
    pub(super) fn with_field(mut self, name: &'static str, json: String) -> RecordBody {
        self.fields.set(name, json);
        self
    }

    /// Its content as the seed of an id.
    pub(super) fn id_seed(&self) -> String {
        self.fields.to_line_after(self.kind.name())
    }

    /// Builds the record.
    pub(super) fn into_record(
        self,
        id: &str,
        parent_id: Option<&str>,
        time: &RecordTime,
    ) -> Record {
        let head_bytes = HEAD_BYTES + self.kind.name().len() + id.len() + time.json.len();
        let parent_bytes = parent_id.map_or(0, str::len);
        let mut line = String::with_capacity(head_bytes + parent_bytes + self.fields.max_bytes());
        // In the order in which Pi writes these fields.
        line.push_str(r#"{"type":"#);
        push_string(&mut line, self.kind.name());
        line.push_str(r#","id":"#);
        push_string(&mut line, id);
        line.push_str(r#","parentId":"#);
        match parent_id {
            Some(parent) => push_string(&mut line, parent),
            None => line.push_str("null"),
        }
        line.push_str(r#","timestamp":"#);
        line.push_str(&time.json);
        self.fields.push_to(&mut line, ",");
        line.push('}');
        let message_bytes =
            self.fields.last().filter(|(name, _)| *name == "message").map(|(_, json)| json.len());
        drop(self.fields);
        let record = Record::from_parts(line, id, parent_id, self.kind, time.ms);
        // The range is known here: parsing tens of thousands of new records for it would be slow.
        let Some(bytes) = message_bytes else { return record };
        let end = record.line().len() - "}".len();
        record.with_message_at(end - bytes..end)
    }
}

/// The time of new records, which a batch formats once.
pub(super) struct RecordTime {
    pub(super) ms: i64,
    json: String,
}

impl RecordTime {
    pub(super) fn new(ms: i64) -> RecordTime {
        RecordTime { ms, json: json_string(&clock::format_iso(ms)) }
    }
}

fn body_error(reason: impl Into<String>) -> SessionError {
    SessionError::Body { reason: reason.into() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_serialized_message_is_stored_like_its_json() {
        let line = |body: Result<RecordBody, SessionError>| {
            body.unwrap().into_record("1", None, &RecordTime::new(0)).line().to_owned()
        };
        let check = |message: &dyn Fn() -> Result<RecordBody, SessionError>, json: &str| {
            assert_eq!(line(message()), line(RecordBody::message(json)), "{json}");
        };
        for message in [
            json!({ "role": "user", "content": "one\ntwo" }),
            json!({ "content": [{ "type": "text", "text": "text" }], "role": "user" }),
        ] {
            check(&|| RecordBody::from_message(&message), &message.to_string());
        }
        let raw = RawValue::from_string("{\"role\":\"user\",\n\"content\":\"\"}".into()).unwrap();
        check(&|| RecordBody::from_message(&raw), raw.get());
        for wrong in [json!([]), json!({ "content": "text" }), json!({ "role": 7 })] {
            assert!(RecordBody::from_message(&wrong).is_err(), "{wrong}");
        }
    }
}
