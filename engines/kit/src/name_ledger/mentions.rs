//! The mentions of names in one entry: in the arguments of calls, in a text, and as facts and ids that a message states.

use std::borrow::Cow;

use ctxhost_engine_api::{Entry, EntryKind, Role};

use super::cut_text::{whole_argument_names, whole_names};
use super::name_lists::{listed_facts, listed_statements};
use crate::calls::{SHORT_ARGUMENT_BYTES, for_each_argument_text};
use crate::dialogue::is_request;
use crate::files::{FileOperation, path_argument};
use crate::summary::envelope::unwrap_summary;
use ctxhost_text::identifiers::{
    Identifier, IdentifierKind, for_each_clean_identifier, for_each_stated_fact, for_each_stated_id,
};
use ctxhost_text::injected_text::request_text;

/// Weights of a mention in the arguments of a call,
pub(super) const USED_WEIGHT: f32 = 4.0;
/// in a text of the user or the model,
pub(super) const STATED_WEIGHT: f32 = 2.0;
/// and in the output of a tool.
pub(super) const PRINTED_WEIGHT: f32 = 1.0;

/// Where a name is mentioned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MentionPlace {
    /// In a call, or in the output of a tool.
    Tool,
    /// In a message.
    Text,
    /// In a message of the user, as a fact.
    Fact,
    /// In a message of the model, as an id.
    Statement,
}

/// A name in an entry.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mention<'t> {
    pub(super) name: &'t str,
    pub(super) kind: IdentifierKind,
    pub(super) weight: f32,
    pub(super) operation: Option<FileOperation>,
    pub(super) place: MentionPlace,
}

impl<'t> Mention<'t> {
    pub(super) fn new(name: &Identifier<'t>, weight: f32, place: MentionPlace) -> Mention<'t> {
        Mention { name: name.text, kind: name.kind, weight, operation: None, place }
    }
}

/// Calls `found` with the mentions of an entry. Returns whether its text was read whole and has no secret.
pub(super) fn for_each_mention(entry: &Entry<'_>, mut found: impl FnMut(Mention<'_>)) -> bool {
    let is_output = entry.role() == Role::Tool || entry.kind() == EntryKind::Bash;
    // A tool prints names that the work does not need.
    let weight = if is_output { PRINTED_WEIGHT } else { STATED_WEIGHT };
    for call in entry.tool_calls() {
        let operation = FileOperation::of_tool(&call.name);
        let path = path_argument(&call);
        for_each_argument_text(&call, |text| {
            let is_short = text.len() <= SHORT_ARGUMENT_BYTES;
            let weight = if is_short { USED_WEIGHT } else { STATED_WEIGHT };
            // Without its context a key looks like any other name, so arguments are redacted first.
            _ = for_each_clean_identifier(&whole_argument_names(entry, text), |name| {
                // Only the path argument itself was read or changed.
                let is_path =
                    path.as_deref().is_some_and(|path| path.trim_start_matches("./") == name.text);
                let operation = operation.filter(|_| is_path);
                found(Mention { operation, ..Mention::new(&name, weight, MentionPlace::Tool) });
            });
        });
    }
    let place = if is_output { MentionPlace::Tool } else { MentionPlace::Text };
    let text = whole_names(entry);
    let is_clean =
        for_each_clean_identifier(&text, |name| found(Mention::new(&name, weight, place)));
    // A part that was not read may have one.
    let is_clean = is_clean && matches!(text, Cow::Borrowed(_));
    if is_request(entry) {
        for_each_stated_fact(&request_text(entry), |fact| {
            found(Mention::new(&fact, weight, MentionPlace::Fact))
        });
    }
    if entry.role() == Role::Assistant {
        for_each_stated_id(entry.text(), |id| {
            found(Mention::new(&id, weight, MentionPlace::Statement))
        });
    }
    if entry.kind() == EntryKind::CompactionSummary {
        // A list begins with the newest.
        let summary = unwrap_summary(entry.text());
        let facts: Vec<Identifier<'_>> = listed_facts(&summary).collect();
        facts.iter().rev().for_each(|fact| found(Mention::new(fact, weight, MentionPlace::Fact)));
        let ids: Vec<Identifier<'_>> = listed_statements(&summary).collect();
        ids.iter().rev().for_each(|id| found(Mention::new(id, weight, MentionPlace::Statement)));
    }
    is_clean
}

/// The mentions of an entry, for a reader that adds them to several ledgers.
// To find them takes far longer than to add them.
#[derive(Debug, Default)]
pub struct EntryMentions {
    /// All names, one after the other.
    names: String,
    mentions: Vec<StoredMention>,
    is_clean: bool,
}

#[derive(Debug)]
struct StoredMention {
    end: usize,
    kind: IdentifierKind,
    weight: f32,
    operation: Option<FileOperation>,
    place: MentionPlace,
}

impl EntryMentions {
    /// Reads the mentions of an entry. Secrets are no names.
    pub fn read(entry: &Entry<'_>) -> EntryMentions {
        let mut read = EntryMentions::default();
        let EntryMentions { names, mentions, .. } = &mut read;
        let is_clean = for_each_mention(entry, |mention| {
            names.push_str(mention.name);
            let Mention { kind, weight, operation, place, .. } = mention;
            mentions.push(StoredMention { end: names.len(), kind, weight, operation, place });
        });
        EntryMentions { is_clean, ..read }
    }

    pub(super) fn is_clean(&self) -> bool {
        self.is_clean
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = Mention<'_>> {
        let mut start = 0;
        self.mentions.iter().map(move |stored| {
            let name = self.names.get(start..stored.end).unwrap_or_default();
            start = stored.end;
            let StoredMention { kind, weight, operation, place, .. } = *stored;
            Mention { name, kind, weight, operation, place }
        })
    }
}
