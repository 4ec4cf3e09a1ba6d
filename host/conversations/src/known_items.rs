//! The known items of a conversation: their hashes, and the session entries that they became.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use ctxhost_engine_api::{Entry, EntryKind, Message, Role, Transcript};
use xxhash_rust::xxh3::xxh3_64;

use super::index::IndexEntry;
use super::items_record::{ItemEdits, RecordedEdits, WireKnownItems, record};
use super::new_group::{EntryTraits, NewGroup};
use super::seeded_hash::{CanonicalItem, PrefixHasher, PrefixHashes, RequestItems, SeededHash};
use super::splice::ItemSplice;
use super::thinking_record::ContentHashes;
use super::traits::ItemTraits;
use ctxhost_dialects::inbound::{EntryLocation, ParsedEntry};
use ctxhost_history::ForkPoint;
use ctxhost_session::{Record, RecordBody, RecordKind, Session, parse_context_edit};

/// The custom type of the records that store known items.
pub(crate) const RECORD: &str = "ctxhost.thread";

/// What an item takes in memory beside its text: its hashes, its entry and the parts of that, as measured with
/// 100,000 empty messages.
const ITEM_BYTES: u64 = 1_536;

/// What a token of text takes in memory: four bytes in the transcript, and as many beside it.
const TOKEN_BYTES: u64 = 8;

/// A known item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KnownItem {
    /// The hash of its bytes as they were sent last; `None` after a restart.
    pub(super) raw: Option<SeededHash>,
    /// The hash of its canonical form.
    pub(super) canonical: CanonicalItem,
    /// Its first hash, if its client has replaced it since.
    pub(super) original: Option<SeededHash>,
}

/// The items of a conversation and their session entries.
#[derive(Clone, Debug, Default)]
pub struct KnownItems {
    pub(super) items: Vec<KnownItem>,
    pub(super) groups: Vec<(Range<usize>, usize)>,
    /// The entry ids, in order.
    pub(super) entries: Vec<String>,
    pub(super) locations: HashMap<String, EntryLocation>,
    /// Tool names by call id.
    tools: HashMap<String, String>,
    /// Estimated tokens of the entries as the client sent them.
    pub(super) client_tokens: u64,
    /// The entry of the last user request.
    last_user_entry: Option<String>,
    /// The item that is the client's own summary.
    pub(super) summary: Option<usize>,
    /// Entries whose text the client has replaced, with the hash of the new text.
    pub(super) client_edits: HashMap<String, u64>,
    /// Entries that have lost their thinking.
    pub(super) without_thinking: ContentHashes,
}

impl KnownItems {
    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// The number of items.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// Per group: its range of items and the number of its entries.
    pub fn groups(&self) -> &[(Range<usize>, usize)] {
        &self.groups
    }

    /// The entry ids, in order.
    pub fn entries(&self) -> &[String] {
        &self.entries
    }

    /// The number of entries.
    pub fn entry_count(&self) -> usize {
        self.entries.len()
    }

    /// The canonical hash of the first item.
    pub fn first_item(&self) -> Option<SeededHash> {
        self.items.first().map(|known| known.canonical.hash)
    }

    /// The location of an entry in a request.
    pub fn location(&self, id: &str) -> Option<EntryLocation> {
        self.locations.get(id).copied()
    }

    /// The tool name of a call.
    pub fn tool_of(&self, call_id: &str) -> Option<String> {
        self.tools.get(call_id).cloned()
    }

    /// The size of the conversation in memory, as estimated.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let items = (self.items.len() as u64).saturating_mul(ITEM_BYTES);
        items.saturating_add(self.client_tokens.saturating_mul(TOKEN_BYTES))
    }

    /// Estimated tokens of the entries as the client sent them.
    pub fn client_tokens(&self) -> u64 {
        self.client_tokens
    }

    /// The entry of the last user request.
    pub fn last_user_entry(&self) -> Option<&str> {
        self.last_user_entry.as_deref()
    }

    /// Whether its client continues from its own summary.
    pub fn has_summary(&self) -> bool {
        self.summary.is_some()
    }

    /// Sets the item that is the client's own summary.
    pub fn set_summary(&mut self, item: Option<usize>) {
        self.summary = item.or(self.summary);
    }

    /// The number of items up to the last model answer (all if there is none), and their hashes.
    pub(super) fn prefix(&self) -> (usize, PrefixHashes) {
        let items =
            // Only what was answered: an unanswered tail may be replaced in the next request.
            Some(self.answered_items()).filter(|items| *items > 0).unwrap_or(self.items.len());
        (items, self.hashes_of_first(items))
    }

    /// Whether its first items match an index entry.
    pub(super) fn has_prefix(&self, entry: &IndexEntry) -> bool {
        entry.items <= self.items.len()
            && self.hashes_of_first(entry.items).stable == entry.prefix.stable
    }

    /// The index entry: the items up to the last model answer, since later ones may still change.
    pub(super) fn index_entry(&self, home_key: SeededHash, id: &str) -> IndexEntry {
        let (items, prefix) = self.prefix();
        IndexEntry { items, prefix, home_key, id: id.to_owned() }
    }

    fn hashes_of_first(&self, items: usize) -> PrefixHashes {
        let mut prefix = PrefixHasher::default();
        self.items.iter().take(items).for_each(|known| prefix.add(known.canonical));
        prefix.hashes()
    }

    /// Updates the byte hashes of known items.
    pub fn update_raw_hashes(&mut self, request: &RequestItems<'_>) {
        for (at, known) in self.items.iter_mut().enumerate() {
            // A client may write the same item with other white space; the newest form is compared first.
            known.raw = request.raw_hash(at).or(known.raw);
        }
    }

    /// Adds groups whose entries were appended under these ids.
    pub fn extend(
        &mut self,
        request: &mut RequestItems<'_>,
        groups: Vec<NewGroup>,
        ids: &[String],
    ) {
        self.locations.reserve(ids.len());
        let mut ids = ids.iter();
        for group in groups {
            let from = self.items.len();
            let location = self.groups.len();
            let count = group.entries.len();
            for at in from..from + group.item_count {
                let Some(canonical) = request.canonical(at) else { return };
                self.items.push(KnownItem { raw: request.raw_hash(at), canonical, original: None });
            }
            for (entry, (traits, id)) in group.entries.into_iter().zip(&mut ids).enumerate() {
                self.track_entry(traits, id);
                self.locations.insert(id.clone(), EntryLocation { group: location, entry });
                self.entries.push(id.clone());
            }
            self.groups.push((from..self.items.len(), count));
        }
    }

    /// Adds the tokens of the newest entries of a live transcript.
    pub fn add_tokens(&mut self, view: &Transcript, entries: usize) {
        let end = view.len() as u64;
        self.client_tokens += view.tokens(end.saturating_sub(entries as u64)..end);
    }

    /// The first groups only, and the fork point after them; `None` if they have no entries.
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
            without_thinking: self.without_thinking.clone(),
        };
        Some((cut, self.end_of_entries(entries, session)?))
    }

    /// The fork point after some entries, and after the compactions before the next one.
    fn end_of_entries(&self, entries: usize, session: &Session) -> Option<ForkPoint> {
        let Some(next) = self.entries.get(entries) else { return Some(ForkPoint::Leaf) };
        let branch = session.branch();
        let at = branch.iter().position(|record| record.id() == next)?;
        Some(ForkPoint::Record(branch.get(at.checked_sub(1)?)?.id().to_owned()))
    }

    /// A fork point without the records of known items before it: each fork writes one of all items, and a fork of a fork would
    /// copy those of all forks before it.
    #[must_use]
    pub fn before_own_records(point: ForkPoint, session: &Session) -> ForkPoint {
        let branch = session.branch();
        let end = match &point {
            ForkPoint::Record(id) => branch.iter().position(|record| record.id() == id),
            _ => branch.len().checked_sub(1),
        };
        let before = end.and_then(|end| branch.get(..=end)).unwrap_or_default().iter().rev();
        let other = before.into_iter().find(|record| record.custom_data(RECORD).is_none());
        other.map_or(point, |record| ForkPoint::Record(record.id().to_owned()))
    }

    /// Adds token counts and the last user request from the records of the session.
    #[must_use]
    pub fn with_measurements(mut self, session: &Session) -> KnownItems {
        let records = self.entries.iter().filter_map(|id| session.record(id));
        let entries: Vec<_> = records.filter_map(Record::to_entry).collect();
        self.client_tokens = entries.iter().map(|entry| entry.tokens).sum();
        let is_user =
            |role: Role, kind: EntryKind| role == Role::User && kind == EntryKind::Message;
        let last_user = entries.into_iter().rev().find(|entry| is_user(entry.role, entry.kind));
        self.last_user_entry = last_user.map(|entry| entry.id);
        self
    }

    /// The record of all known items.
    pub fn record(&self) -> RecordBody {
        let canonicals = self.items.iter().map(|known| known.canonical);
        let groups = self.groups.iter().map(|(items, entries)| (items.len(), *entries));
        record(0, canonicals, groups, self.summary, RecordedEdits::default())
    }

    /// A record that adds nothing: it completes the edits before it.
    pub fn empty_record(&self) -> RecordBody {
        let nothing = RecordedEdits::default();
        record(self.items.len(), [], std::iter::empty(), self.summary, nothing)
    }

    /// The record of new groups, replaced items, and items left out or spliced before.
    pub fn record_with(
        &self,
        request: &mut RequestItems<'_>,
        groups: &[NewGroup],
        edits: &ItemEdits,
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
        let edits = RecordedEdits {
            replaced: edits.replaced.iter().filter_map(word).collect(),
            removed: edits.removed.iter().map(|items| (items.start, items.end)).collect(),
            spliced: edits.spliced.iter().map(ItemSplice::to_wire).collect(),
        };
        record(from, canonicals, groups, self.summary, edits)
    }

    /// The group of an item: its items and its entry ids.
    pub fn group_at(&self, item: usize) -> Option<(Range<usize>, &[String])> {
        let group = self.groups.partition_point(|(items, _)| items.end <= item);
        let is_before =
            |id: &String| self.locations.get(id).is_some_and(|location| location.group < group);
        let from = self.entries.partition_point(is_before);
        let (items, count) = self.groups.get(group).filter(|(items, _)| items.contains(&item))?;
        Some((items.clone(), self.entries.get(from..from + count)?))
    }

    /// Replaces items, and records the new texts of their entries.
    pub fn replace(
        &mut self,
        request: &mut RequestItems<'_>,
        items: &[usize],
        text_hashes: Vec<(String, u64)>,
    ) {
        for at in items {
            let (Some(known), Some(canonical)) = (self.items.get_mut(*at), request.canonical(*at))
            else {
                continue;
            };
            known.original = known.original.or(Some(known.canonical.hash));
            (known.raw, known.canonical) = (request.raw_hash(*at), canonical);
        }
        self.client_edits.extend(text_hashes);
    }

    /// Keeps only the items before `kept`, which must be a group's end. Returns the ids of the removed entries.
    pub fn truncate(&mut self, kept: usize) -> Vec<String> {
        self.items.truncate(kept);
        self.groups.retain(|(items, _)| items.end <= kept);
        let removed =
            self.entries.split_off(self.entries_of(self.groups.len()).min(self.entries.len()));
        for id in &removed {
            self.locations.remove(id);
        }
        self.summary = self.summary.filter(|item| *item < kept);
        removed
    }

    /// Whether an entry has the text that the client has replaced it with, or is what the client sent without thinking.
    pub fn has_client_text(&self, entry: &Entry<'_>) -> bool {
        let edited = self.client_edits.get(entry.id());
        edited.is_some_and(|hash| *hash == text_hash(entry.text()))
            || self.is_without_thinking(entry)
    }

    /// Reads the known items from the records of a session. Also returns the last record before an incomplete
    /// request, during which the process was killed. `None` if the session is not a gateway conversation.
    pub(crate) fn read(session: &Session) -> Option<(KnownItems, String)> {
        let mut known_items = KnownItems::default();
        let (mut entries, mut written, mut last) = (Vec::<&Record>::new(), 0, None);
        // An edit counts only with the record after it, which completes the request.
        let mut is_amended = false;
        let mut removed = HashSet::new();
        for record in session.branch() {
            match record.kind() {
                RecordKind::Message | RecordKind::CustomMessage => entries.push(record),
                RecordKind::Compaction if is_returned_summary(record) => entries.push(record),
                RecordKind::ContextEdit => {
                    is_amended = true;
                    match edit_of(record) {
                        Some((target, Some(text))) => {
                            known_items.client_edits.insert(target, text_hash(&text));
                        }
                        Some((target, None)) => {
                            removed.insert(target);
                        }
                        None => {}
                    }
                }
                RecordKind::Custom => {
                    known_items.restore_removed_thinking(record);
                    if let Some(data) = record.custom_data(RECORD) {
                        known_items.apply_record(serde_json::from_value(data).ok()?)?;
                        // Batched: there may be tens of thousands.
                        entries.retain(|entry| !removed.contains(entry.id()));
                        removed.clear();
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
                    known_items.track_entry(EntryTraits::of_message(message), &id);
                }
                known_items.locations.insert(id.clone(), EntryLocation { group, entry });
                known_items.entries.push(id);
            }
        }
        Some((known_items.with_measurements(session), last))
    }

    fn apply_record(&mut self, wire: WireKnownItems) -> Option<()> {
        self.apply_removed(&wire.removed)?;
        let splices = wire.spliced.into_iter().map(ItemSplice::from_wire);
        self.splice_items(&splices.collect::<Option<Vec<_>>>()?)?;
        // A record out of order: the session is damaged or not ours.
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

    /// Adds the calls of entries that a client has replaced.
    pub fn add_calls(&mut self, entries: Vec<ParsedEntry>) {
        let traits = entries.into_iter().map(EntryTraits::of_entry);
        self.tools.extend(traits.flat_map(|entry| entry.tools));
    }

    fn track_entry(&mut self, entry: EntryTraits, id: &str) {
        if entry.is_user_request {
            self.last_user_entry = Some(id.to_owned());
        }
        self.tools.extend(entry.tools);
    }

    pub(super) fn entries_of(&self, groups: usize) -> usize {
        self.groups.iter().take(groups).map(|(_, entries)| entries).sum()
    }
}

/// A hash of an entry's text.
pub fn text_hash(text: &str) -> u64 {
    xxh3_64(text.as_bytes())
}

/// Whether a compaction is not of this session's engine: the client has sent its summary.
fn is_returned_summary(record: &Record) -> bool {
    record.compaction().is_some_and(|compaction| compaction.engine.is_empty())
}

/// The target of an edit record and its new text; no text if the target was removed.
fn edit_of(record: &Record) -> Option<(String, Option<String>)> {
    let (target, content) = parse_context_edit(record)?;
    Some((target, content.map(|content| text_of_content(&content))))
}

/// The text in a message's content.
pub fn text_of_content(content: &str) -> String {
    let message = format!(r#"{{"role":"user","content":{content}}}"#);
    Message::parse(&message, "").text()
}
