//! A live transcript as one number, so that two of them can be told to be the same.

use std::borrow::Cow;

use ctxhost_engine_api::Transcript;
use sha2::{Digest as _, Sha256};

use super::json_fields::JsonFields;

/// The SHA-256 of what a transcript says, in hex.
///
/// Role, kind, flags and JSON of every entry count. Ids do not, nor do the parent and the time of a
/// record: they say where it stands in the file, and a record that is told again has others.
pub fn transcript_digest(view: &Transcript) -> String {
    let mut hash = Sha256::new();
    for entry in view.iter() {
        let content = content_of(entry.raw());
        hash.update([entry.role().code(), entry.kind().code()]);
        hash.update(entry.flags().0.to_le_bytes());
        hash.update((content.len() as u64).to_le_bytes());
        hash.update(content.as_bytes());
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The JSON of a message byte for byte; of a record that is none, without what places it.
fn content_of(raw: &str) -> Cow<'_, str> {
    let record = JsonFields::parse(raw).filter(|fields| fields.get("role").is_none());
    let Some(mut fields) = record else { return Cow::Borrowed(raw) };
    for placing in ["id", "parentId", "timestamp"] {
        fields.remove(placing);
    }
    Cow::Owned(fields.to_line())
}
