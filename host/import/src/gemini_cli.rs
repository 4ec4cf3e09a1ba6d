//! Import of Gemini CLI chats: JSON lines of messages and changes, or one JSON document of older versions. Older
//! versions of Qwen Code wrote such documents too, with `qwen` as the type of replies.
//!
//! A message is written again whenever its calls get results. `$rewindTo` takes messages back, and
//! `$set.messages` replaces what the model sees: at the start, after a compression, and after a cancelled
//! request.

mod fold;
mod message;

use serde_json::Value;

use self::fold::ChatHistory;
use super::chat::ChatDocument;
use super::draft::ImportDraft;
use super::json_lines::{JsonRecord, records};
use super::transcript::{ImportError, ImportFormat, ImportedTranscript};

const PROVIDER: &str = "google";
const API: &str = "google-generative-ai";

/// Imports a chat.
pub(super) fn import(bytes: &[u8]) -> Result<ImportedTranscript, ImportError> {
    let mut draft = ImportDraft::new(ImportFormat::GeminiCli, PROVIDER, API);
    let mut history = ChatHistory::default();
    if let Some(document) = ChatDocument::document(bytes).filter(|chat| !chat.messages.is_empty()) {
        if let Ok(header) = serde_json::from_slice::<Value>(bytes) {
            identify(&mut draft, &header);
        }
        for message in document.messages {
            if let Some(message) = draft.accept(message) {
                history.add_message(message);
            }
        }
    } else {
        for record in records(bytes) {
            if let Some(record) = draft.accept(record) {
                add(&mut draft, &mut history, record);
            }
        }
    }
    history.write_to(&mut draft);
    draft.finish()
}

fn add(draft: &mut ImportDraft, history: &mut ChatHistory, mut record: JsonRecord) {
    let line = record.line;
    if let Some(target) = record.text("$rewindTo") {
        if !history.rewind_to(target) {
            draft.add_problem(line, "a rewind to a message that is not in the file");
        }
        return;
    }
    if record.text("id").is_some() {
        return history.add_message(record);
    }
    // Read first: the fields are taken out of the record below.
    let known_ms = record.timestamp_ms();
    let is_change = record.fields.contains_key("$set");
    let mut fields = if is_change {
        record.take("$set")
    } else {
        Value::Object(std::mem::take(&mut record.fields))
    };
    // Without `$set` only the header of a chat has a session id.
    if !fields.is_object() || (!is_change && fields.get("sessionId").is_none()) {
        return draft.add_problem(line, "neither a message nor a change");
    }
    identify(draft, &fields);
    if let Some(Value::Array(messages)) = fields.get_mut("messages").map(Value::take) {
        let mut context = Vec::new();
        for message in messages {
            match message {
                Value::Object(fields) => context.push(JsonRecord { line, fields }),
                _ => draft.add_problem(line, "a value where a message belongs"),
            }
        }
        history.set_context(context, known_ms);
    }
}

fn identify(draft: &mut ImportDraft, header: &Value) {
    let text = |name: &str| header.get(name).and_then(Value::as_str);
    let folder = header.get("directories").and_then(|folders| folders.get(0)?.as_str());
    draft.identify(text("sessionId"), folder);
}

#[cfg(test)]
mod tests;
