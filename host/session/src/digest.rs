//! Digest of a live transcript, to compare two of them.

use std::borrow::Cow;

use ctxhost_engine_api::Transcript;
use sha2::{Digest as _, Sha256};

use super::json_fields::JsonFields;

/// The SHA-256 of the content of a transcript, in hex.
///
/// It covers role, kind, flags and JSON of every entry, but not ids, parents and times of records, which
/// differ in copies made by an undo.
pub fn transcript_digest(view: &Transcript) -> String {
    let mut hash = Sha256::new();
    for entry in view.iter() {
        let content = content_of(entry.raw());
        hash.update([entry.role().code(), entry.kind().code()]);
        hash.update(entry.flags().0.to_le_bytes());
        // With the length, so that content cannot imitate the fields of the next entry.
        hash.update((content.len() as u64).to_le_bytes());
        hash.update(content.as_bytes());
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The JSON of a message byte for byte; of other records, without id, parent and time.
fn content_of(raw: &str) -> Cow<'_, str> {
    // Entries of other records than messages have their whole line as JSON.
    let record = JsonFields::parse(raw).filter(|fields| fields.get("role").is_none());
    let Some(mut fields) = record else { return Cow::Borrowed(raw) };
    for placing in ["id", "parentId", "timestamp"] {
        fields.remove(placing);
    }
    Cow::Owned(fields.to_line())
}
