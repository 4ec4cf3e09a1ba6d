//! The record of what a session has lost of its thinking.
//!
//! It follows the edits that remove the thinking. An entry that they left as it is here is rendered from what the client
//! sent; what a compaction has changed since is rendered from the session.

use std::collections::HashMap;

use ctxhost_engine_api::Entry;
use ctxhost_session::{Record, RecordBody, RecordKind};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use xxhash_rust::xxh3::xxh3_64;

use super::known_items::KnownItems;

/// The custom type of the records.
const RECORD: &str = "ctxhost.thinking";

/// Entries without their thinking, with a hash of their content.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContentHashes(HashMap<String, u64>);

#[derive(Deserialize, Serialize)]
struct WireRemoval {
    /// The estimated tokens of the thinking.
    tokens: u64,
    /// Entry ids and hashes, these as hexadecimal numbers.
    entries: Vec<(String, String)>,
}

impl ContentHashes {
    /// Adds an entry with the JSON of its content.
    pub fn add(&mut self, id: &str, content: &str) {
        self.0.insert(id.to_owned(), xxh3_64(content.as_bytes()));
    }

    /// The record of them.
    pub fn record(&self, tokens: u64) -> RecordBody {
        let mut entries: Vec<(String, String)> =
            self.0.iter().map(|(id, hash)| (id.clone(), format!("{hash:x}"))).collect();
        // The same bytes for the same entries.
        entries.sort_unstable();
        RecordBody::custom(RECORD, &WireRemoval { tokens, entries })
    }

    fn from_record(record: &Record) -> Option<ContentHashes> {
        // Most custom records are long lists of hashes, which need not be parsed.
        let may_be_one = *record.kind() == RecordKind::Custom && record.line().contains(RECORD);
        let data = may_be_one.then(|| record.custom_data(RECORD)).flatten()?;
        let wire: WireRemoval = serde_json::from_value(data).ok()?;
        let hash = |(id, hex): (String, String)| Some((id, u64::from_str_radix(&hex, 16).ok()?));
        Some(ContentHashes(wire.entries.into_iter().filter_map(hash).collect()))
    }

    fn has(&self, entry: &Entry<'_>) -> bool {
        #[derive(Deserialize)]
        struct WireMessage<'a> {
            #[serde(borrow)]
            content: &'a RawValue,
        }
        let Some(hash) = self.0.get(entry.id()) else { return false };
        let message = serde_json::from_str::<WireMessage<'_>>(entry.raw());
        message.is_ok_and(|message| xxh3_64(message.content.get().as_bytes()) == *hash)
    }
}

/// Whether thinking was removed from the session by this record.
pub fn is_thinking_removal(record: &Record) -> bool {
    ContentHashes::from_record(record).is_some()
}

impl KnownItems {
    /// Whether an entry is what the client sent, without its thinking.
    pub(super) fn is_without_thinking(&self, entry: &Entry<'_>) -> bool {
        self.without_thinking.has(entry)
    }

    /// Adds entries without their thinking.
    pub fn add_removed_thinking(&mut self, contents: ContentHashes) {
        for id in contents.0.keys() {
            // Its content counts, not its text alone: an answer of calls has none.
            self.client_edits.remove(id);
        }
        self.without_thinking.0.extend(contents.0);
    }

    /// Adds what a record of the session says.
    pub(super) fn restore_removed_thinking(&mut self, record: &Record) {
        if let Some(contents) = ContentHashes::from_record(record) {
            self.add_removed_thinking(contents);
        }
    }
}

#[cfg(test)]
mod tests {
    use ctxhost_session::{Session, SessionHeader};

    use super::*;

    #[test]
    fn a_changed_content_is_not_what_the_client_sent() {
        let call = r#"[{"type":"toolCall","id":"a","name":"write","arguments":{"text":"long"}}]"#;
        let mut session = Session::in_memory(SessionHeader::new(Some("s"), "/", 0));
        let message = format!(
            r#"{{"role":"assistant","content":[{{"type":"thinking","thinking":"hm"}},{}"#,
            call.trim_start_matches('[')
        );
        let id = session.append(RecordBody::message(&(message + "}")).unwrap()).unwrap();
        let mut contents = ContentHashes::default();
        contents.add(&id, call);
        let mut check = |content: &str, expected: bool| {
            session.append(RecordBody::context_edit(&id, Some(content))).unwrap();
            let removal = session.append(contents.record(7)).unwrap();
            let mut known_items = KnownItems::default();
            known_items.restore_removed_thinking(session.record(&removal).unwrap());
            let view = session.live(0).snapshot();
            assert_eq!(
                known_items.is_without_thinking(&view.get(0).unwrap()),
                expected,
                "{content}"
            );
            assert!(is_thinking_removal(session.record(&removal).unwrap()));
        };
        check(call, true);
        check(&call.replace("long", "l…"), false);
    }
}
