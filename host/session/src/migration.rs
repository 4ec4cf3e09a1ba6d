//! Migration of lines of versions 1 and 2 to version 3.
//!
//! * Version 1 has no ids. Each record follows the one before it, and a compaction names its first kept entry
//!   by its number among all records, with the header as number 0.
//! * Version 2 uses the role `hookMessage` for messages of extensions, version 3 the role `custom`.

use std::borrow::Cow;
use std::collections::HashSet;

use super::identity;
use super::json_fields::{JsonFields, json_string, json_string_or_null};

/// Migrates the records of one file in order.
#[derive(Debug)]
pub(super) struct FormatMigration {
    from_version: u32,
    /// Ids by record number; the header has none.
    ids: Vec<Option<String>>,
    taken: HashSet<String>,
}

impl FormatMigration {
    /// A migration from this version; from version 3 on it changes nothing.
    pub(super) fn new(from_version: u32) -> FormatMigration {
        FormatMigration { from_version, ids: vec![None], taken: HashSet::new() }
    }

    /// Migrates the line of the next record.
    pub(super) fn migrate_line<'a>(&mut self, line: &'a str) -> Cow<'a, str> {
        if self.from_version > 2 {
            return Cow::Borrowed(line);
        }
        let Some(mut fields) = JsonFields::parse(line) else { return Cow::Borrowed(line) };
        let given_ids = self.from_version == 1;
        if given_ids {
            self.give_ids(line, &mut fields);
        }
        let renamed = rename_hook_message(&mut fields);
        if given_ids || renamed { Cow::Owned(fields.to_line()) } else { Cow::Borrowed(line) }
    }

    fn give_ids(&mut self, line: &str, fields: &mut JsonFields) {
        // Not a record in version 3 either: it gets no id, but has a number, as in Pi.
        if matches!(fields.get("type"), None | Some(r#""session""#)) {
            return self.ids.push(None);
        }
        let number = self.ids.len().to_string();
        let id = identity::record_id(&[&number, line], |id| self.taken.contains(id));
        let parent = self.ids.iter().rev().find_map(Option::as_deref);
        fields.set_after("type", "id", json_string(&id));
        fields.set_after("id", "parentId", json_string_or_null(parent));
        if let Some(index) = fields.remove("firstKeptEntryIndex") {
            let kept = index.parse().ok().and_then(|at: usize| self.ids.get(at)?.as_deref());
            fields.set("firstKeptEntryId", json_string(kept.unwrap_or(&id)));
        }
        self.taken.insert(id.clone());
        self.ids.push(Some(id));
    }
}

fn rename_hook_message(fields: &mut JsonFields) -> bool {
    let Some(mut message) = fields.get("message").and_then(JsonFields::parse) else { return false };
    if message.get("role") != Some(r#""hookMessage""#) {
        return false;
    }
    message.set("role", json_string("custom"));
    fields.set("message", message.to_line());
    true
}
