//! What is known of a conversation's items: their names, and which entries they have become.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use ctxhost_engine_api::{EntryKind, Message, Role, Transcript};
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::xxh3_64;

use super::index::IndexEntry;
use super::seeded_hash::{CanonicalItem, PrefixHasher, PrefixHashes, RequestItems, SeededHash};
use super::traits::ItemTraits;
use ctxhost_dialects::inbound::{EntryLocation, ItemGroup, ParsedEntry};
use ctxhost_dialects::message::UserMessage;
use ctxhost_dialects::{ChatBlock, ChatMessage};
use ctxhost_history::ForkPoint;
use ctxhost_session::{Record, RecordBody, RecordKind, Session, injected_text, parse_context_edit};

/// The custom type of the records that say what is known of items.
pub const RECORD: &str = "ctxhost.thread";

/// One item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownItem {
    /// The name of its bytes as they came last; `None` behind a restart.
    pub(super) raw: Option<SeededHash>,
    /// What it says.
    pub(super) canonical: CanonicalItem,
    /// The name of what it said at first, where its client has replaced it since.
    pub(super) original: Option<SeededHash>,
}

/// The items of a conversation and the entries of its session.
#[derive(Clone, Debug, Default)]
pub struct KnownItems {
    pub(super) items: Vec<KnownItem>,
    pub(super) groups: Vec<(Range<usize>, usize)>,
    /// The records that the items became, in order.
    entries: Vec<String>,
    locations: HashMap<String, EntryLocation>,
    /// The tools that calls asked for, by the ids of the calls.
    tools: HashMap<String, String>,
    /// What the entries take, as entries count.
    client_tokens: u64,
    /// The entry with which the person spoke last.
    last_user_entry: Option<String>,
    /// The item that is a summary of the client's own, from which it goes on.
    summary: Option<usize>,
    /// The entries that say something else now because their client does, and a name of what.
    client_edits: HashMap<String, u64>,
}

#[derive(Deserialize, Serialize)]
struct WireKnownItems {
    /// How many items were known before.
    from: usize,
    /// The meanings of the items behind those.
    items: Vec<String>,
    /// What stays the same of them, one word each; none in records of before December 2026.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    traits: Vec<String>,
    /// Known items that their client has replaced: which, their meaning now, and what stays the same of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    replaced: Vec<(usize, String, String)>,
    /// Of each unit, how many items it is made of, and how many entries it became.
    #[serde(rename = "units")]
    groups: Vec<(usize, usize)>,
    /// Which item is a summary of the client's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    summary: Option<usize>,
}

impl KnownItems {
    /// Whether nothing is known yet.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// How many items are known.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// The items of each unit, and how many entries it became.
    pub fn groups(&self) -> &[(Range<usize>, usize)] {
        &self.groups
    }

    /// The ids of the entries, in order.
    pub fn entries(&self) -> &[String] {
        &self.entries
    }

    /// How many entries there are.
    pub fn entry_count(&self) -> usize {
        self.entries.len()
    }

    /// Where the entry of this id stands in a request.
    pub fn location(&self, id: &str) -> Option<EntryLocation> {
        self.locations.get(id).copied()
    }

    /// The tool that a call asked for.
    pub fn tool_of(&self, call_id: &str) -> Option<String> {
        self.tools.get(call_id).cloned()
    }

    /// What the entries take, as they were said.
    pub fn client_tokens(&self) -> u64 {
        self.client_tokens
    }

    /// The entry with which the person spoke last.
    pub fn last_user_entry(&self) -> Option<&str> {
        self.last_user_entry.as_deref()
    }

    /// Whether its client goes on from a summary of its own.
    pub fn has_summary(&self) -> bool {
        self.summary.is_some()
    }

    /// Its client goes on from the summary in this item.
    pub fn set_summary(&mut self, item: Option<usize>) {
        self.summary = item.or(self.summary);
    }

    /// How it begins: how many items there are up to the last answer of the model (all, where there is none), and a
    /// names of them.
    pub(super) fn prefix(&self) -> (usize, PrefixHashes) {
        let items =
            Some(self.answered_items()).filter(|items| *items > 0).unwrap_or(self.items.len());
        (items, self.hashes_of_first(items))
    }

    /// Whether it begins as an entry says.
    pub(super) fn has_prefix(&self, entry: &IndexEntry) -> bool {
        entry.items <= self.items.len()
            && self.hashes_of_first(entry.items).stable == entry.prefix.stable
    }

    fn hashes_of_first(&self, items: usize) -> PrefixHashes {
        let mut prefix = PrefixHasher::default();
        self.items.iter().take(items).for_each(|known| prefix.add(known.canonical));
        prefix.hashes()
    }

    /// Known items came with these bytes now.
    pub fn update_raw_hashes(&mut self, request: &RequestItems<'_>) {
        for (at, known) in self.items.iter_mut().enumerate() {
            known.raw = request.raw_hash(at).or(known.raw);
        }
    }

    /// Takes in units behind those that are known, whose entries were appended under these ids.
    pub fn extend(&mut self, request: &mut RequestItems<'_>, groups: &[ItemGroup], ids: &[String]) {
        let mut ids = ids.iter();
        for group in groups {
            let from = self.items.len();
            let location = self.groups.len();
            for at in from..from + group.item_count {
                let Some(canonical) = request.canonical(at) else { return };
                self.items.push(KnownItem { raw: request.raw_hash(at), canonical, original: None });
            }
            for (entry, (said, id)) in group.entries.iter().zip(&mut ids).enumerate() {
                self.index_entry(said, id);
                self.locations.insert(id.clone(), EntryLocation { group: location, entry });
                self.entries.push(id.clone());
            }
            self.groups.push((from..self.items.len(), group.entries.len()));
        }
    }

    /// Counts what the newest entries of a live transcript take.
    pub fn add_tokens(&mut self, view: &Transcript, entries: usize) {
        let end = view.len() as u64;
        self.client_tokens += view.tokens(end.saturating_sub(entries as u64)..end);
    }

    /// Only the first units of it, which have entries, and where they end in the session.
    pub fn cut(&self, groups: usize, session: &Session) -> Option<(KnownItems, ForkPoint)> {
        let entries = self.entries_of(groups).checked_sub(1)? + 1;
        let items = self.groups.get(groups.checked_sub(1)?)?.0.end;
        let locations = self.locations.iter().filter(|(_, location)| location.group < groups);
        let cut = KnownItems {
            items: self.items.get(..items)?.to_vec(),
            groups: self.groups.get(..groups)?.to_vec(),
            entries: self.entries.get(..entries)?.to_vec(),
            locations: locations.map(|(id, location)| (id.clone(), *location)).collect(),
            tools: self.tools.clone(),
            client_tokens: 0,
            last_user_entry: None,
            summary: self.summary.filter(|item| *item < items),
            client_edits: self.client_edits.clone(),
        };
        Some((cut, self.end_of_entries(entries, session)?))
    }

    /// Behind so many entries of a session, and behind the compactions that were made before the next.
    fn end_of_entries(&self, entries: usize, session: &Session) -> Option<ForkPoint> {
        let Some(next) = self.entries.get(entries) else { return Some(ForkPoint::Leaf) };
        let branch = session.branch();
        let at = branch.iter().position(|record| record.id() == next)?;
        Some(ForkPoint::Record(branch.get(at.checked_sub(1)?)?.id().to_owned()))
    }

    /// The same, with what the records of its session say of sizes and speakers.
    #[must_use]
    pub fn with_measurements(mut self, session: &Session) -> KnownItems {
        let records = self.entries.iter().filter_map(|id| session.record(id));
        let entries: Vec<_> = records.filter_map(Record::to_entry).collect();
        self.client_tokens = entries.iter().map(|entry| entry.tokens).sum();
        let is_user =
            |role: Role, kind: EntryKind| role == Role::User && kind == EntryKind::Message;
        let spoke = entries.into_iter().rev().find(|entry| is_user(entry.role, entry.kind));
        self.last_user_entry = spoke.map(|entry| entry.id);
        self
    }

    /// The record of all that is known.
    pub fn record(&self) -> RecordBody {
        let canonicals = self.items.iter().map(|known| known.canonical);
        let groups = self.groups.iter().map(|(items, entries)| (items.len(), *entries));
        record(0, canonicals, groups, self.summary, Vec::new())
    }

    /// The record of units that come behind what is known, and of known items that were replaced.
    pub fn record_with(
        &self,
        request: &mut RequestItems<'_>,
        groups: &[ItemGroup],
        replaced: &[usize],
    ) -> RecordBody {
        let from = self.items.len();
        let items: usize = groups.iter().map(|group| group.item_count).sum();
        let canonicals: Vec<CanonicalItem> =
            (from..from + items).filter_map(|at| request.canonical(at)).collect();
        let groups = groups.iter().map(|group| (group.item_count, group.entries.len()));
        let word = |at: &usize| {
            let canonical = self.items.get(*at)?.canonical;
            Some((*at, canonical.hash.to_hex(), canonical.traits.map(ItemTraits::to_word)?))
        };
        let replaced = replaced.iter().filter_map(word).collect();
        record(from, canonicals, groups, self.summary, replaced)
    }

    /// The entries of the unit that an item belongs to: the items of it, and their ids.
    pub fn group_at(&self, item: usize) -> Option<(Range<usize>, &[String])> {
        let group = self.groups.partition_point(|(items, _)| items.end <= item);
        let is_before = |id: &String| self.locations.get(id).is_some_and(|it| it.group < group);
        let from = self.entries.partition_point(is_before);
        let (items, count) = self.groups.get(group).filter(|(items, _)| items.contains(&item))?;
        Some((items.clone(), self.entries.get(from..from + count)?))
    }

    /// Takes in that a client has replaced items, and what their entries say now.
    pub fn replace(
        &mut self,
        request: &mut RequestItems<'_>,
        items: &[usize],
        said: Vec<(String, u64)>,
    ) {
        for at in items {
            let (Some(known), Some(canonical)) = (self.items.get_mut(*at), request.canonical(*at))
            else {
                continue;
            };
            known.original = known.original.or(Some(known.canonical.hash));
            (known.raw, known.canonical) = (request.raw_hash(*at), canonical);
        }
        self.client_edits.extend(said);
    }

    /// Leaves only the items before `kept`, where a unit ends; answers the ids of the entries that go.
    pub fn truncate(&mut self, kept: usize) -> Vec<String> {
        self.items.truncate(kept);
        self.groups.retain(|(items, _)| items.end <= kept);
        let gone =
            self.entries.split_off(self.entries_of(self.groups.len()).min(self.entries.len()));
        for id in &gone {
            self.locations.remove(id);
        }
        self.summary = self.summary.filter(|item| *item < kept);
        gone
    }

    /// Whether an entry says what its client says now, though that is not what it said at first.
    pub fn has_client_text(&self, id: &str, text: &str) -> bool {
        self.client_edits.get(id) == Some(&text_hash(text))
    }

    /// What the records of a session say, and the last record before such as nobody knows of: those of a
    /// request that a process died over. `None` for a session that is no conversation of a gateway.
    pub fn read(session: &Session) -> Option<(KnownItems, String)> {
        let mut known_items = KnownItems::default();
        let (mut entries, mut written, mut last) = (Vec::<&Record>::new(), 0, None);
        // What a client took back is only known with the record that follows.
        let mut is_amended = false;
        let mut left_out = HashSet::new();
        for record in session.branch() {
            match record.kind() {
                RecordKind::Message | RecordKind::CustomMessage => entries.push(record),
                RecordKind::ContextEdit => {
                    is_amended = true;
                    match edit_of(record) {
                        Some((target, Some(text))) => {
                            known_items.client_edits.insert(target, text_hash(&text));
                        }
                        Some((target, None)) => {
                            left_out.insert(target);
                        }
                        None => {}
                    }
                }
                RecordKind::Custom => {
                    if let Some(data) = record.custom_data(RECORD) {
                        known_items.apply_record(serde_json::from_value(data).ok()?)?;
                        // All at once: there may be tens of thousands.
                        entries.retain(|entry| !left_out.contains(entry.id()));
                        left_out.clear();
                        written = entries.len();
                        is_amended = false;
                        last = Some(record.id().to_owned());
                    }
                }
                _ => {}
            }
            if last.is_some() && entries.len() == written && !is_amended {
                last = Some(record.id().to_owned());
            }
        }
        let last = last?;
        if known_items.entries_of(known_items.groups.len()) != written {
            return None;
        }
        let mut ids = entries.iter().take(written);
        for (group, (_, count)) in known_items.groups.clone().into_iter().enumerate() {
            for (entry, record) in ids.by_ref().take(count).enumerate() {
                let id = record.id().to_owned();
                if let Some(message) =
                    record.message_raw().and_then(|raw| serde_json::from_str(raw).ok())
                {
                    known_items.index_entry(&ParsedEntry::Message(message), &id);
                }
                known_items.locations.insert(id.clone(), EntryLocation { group, entry });
                known_items.entries.push(id);
            }
        }
        Some((known_items.with_measurements(session), last))
    }

    fn apply_record(&mut self, wire: WireKnownItems) -> Option<()> {
        if wire.from > self.items.len() {
            return None;
        }
        self.items.truncate(wire.from);
        self.summary = wire.summary.or(self.summary.filter(|item| *item < wire.from));
        self.groups.retain(|(items, _)| items.end <= wire.from);
        for (at, hex) in wire.items.iter().enumerate() {
            let traits = wire.traits.get(at).and_then(|word| ItemTraits::from_word(word));
            let canonical = CanonicalItem { hash: SeededHash::from_hex(hex)?, traits };
            self.items.push(KnownItem { raw: None, canonical, original: None });
        }
        for (at, hex, word) in &wire.replaced {
            let known = self.items.get_mut(*at)?;
            known.original = known.original.or(Some(known.canonical.hash));
            known.canonical = CanonicalItem {
                hash: SeededHash::from_hex(hex)?,
                traits: ItemTraits::from_word(word),
            };
        }
        let mut from = self.groups.last().map_or(0, |(items, _)| items.end);
        for (items, entries) in wire.groups {
            self.groups.push((from..from + items, entries));
            from += items;
        }
        (from == self.items.len()).then_some(())
    }

    fn index_entry(&mut self, said: &ParsedEntry, id: &str) {
        match said {
            ParsedEntry::Message(ChatMessage::User(user)) if is_user_request(user) => {
                self.last_user_entry = Some(id.to_owned());
            }
            ParsedEntry::Message(ChatMessage::Assistant(answer)) => {
                let calls = answer.content.iter().filter_map(|block| match block {
                    ChatBlock::ToolCall(call) => Some((call.id.clone(), call.name.clone())),
                    _ => None,
                });
                self.tools.extend(calls);
            }
            ParsedEntry::Message(ChatMessage::User(_) | ChatMessage::ToolResult(_))
            | ParsedEntry::Note(_) => {}
        }
    }

    pub(super) fn entries_of(&self, groups: usize) -> usize {
        self.groups.iter().take(groups).map(|(_, entries)| entries).sum()
    }
}

/// Whether a person asks for something in a message of the person's role.
pub fn is_user_request(user: &UserMessage) -> bool {
    let is_injected = |block: &ChatBlock| match block {
        ChatBlock::Text { text, .. } => injected_text::is_injected(text),
        _ => false,
    };
    user.content.is_empty() || !user.content.iter().all(is_injected)
}

/// A name for what an entry says.
pub fn text_hash(text: &str) -> u64 {
    xxh3_64(text.as_bytes())
}

/// The record that a record of an edit names, and what it says now; no text where it is left out.
fn edit_of(record: &Record) -> Option<(String, Option<String>)> {
    let (target, content) = parse_context_edit(record)?;
    Some((target, content.map(|content| text_of_content(&content))))
}

/// The text in the content of a message.
pub fn text_of_content(content: &str) -> String {
    let message = format!(r#"{{"role":"user","content":{content}}}"#);
    Message::parse(&message, "").text()
}

fn record(
    from: usize,
    canonicals: impl IntoIterator<Item = CanonicalItem>,
    groups: impl Iterator<Item = (usize, usize)>,
    summary: Option<usize>,
    replaced: Vec<(usize, String, String)>,
) -> RecordBody {
    let canonicals: Vec<CanonicalItem> = canonicals.into_iter().collect();
    let items = canonicals.iter().map(|canonical| canonical.hash.to_hex()).collect();
    // All or none: a word belongs to the item of its number.
    let traits = canonicals.iter().map(|canonical| canonical.traits.map(ItemTraits::to_word));
    let traits = traits.collect::<Option<Vec<_>>>().unwrap_or_default();
    let groups = groups.collect();
    let wire = WireKnownItems { from, items, traits, replaced, groups, summary };
    RecordBody::custom(RECORD, &wire)
}
