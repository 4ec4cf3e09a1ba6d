//! The ledger of names: the names of a session, how they were used, and which ones to repeat.
//!
//! The weight of a name grows with frequency and recency. Mentions by the user, the model or a call
//! count more than printed ones.

pub(crate) mod cut_text;
mod entry_names;
mod mentions;
mod name_lists;
mod name_numbers;
mod name_set;
mod part_names;
mod path_parts;

use ctxhost_engine_api::Entry;

use crate::best_first::{BestFirst, key_of, number_of};
use crate::files::FileOperation;
use ctxhost_text::identifiers::{IdentifierKind, for_each_name};
use ctxhost_text::redact::SecretRanges;

use entry_names::EntryNames;
use mentions::for_each_mention;
use name_lists::{BLOCK_CHARS, NameLists, split_at_list};
use name_numbers::NameNumbers;
use path_parts::{PathParts, parts_of_path};

pub use mentions::EntryMentions;
pub use name_lists::{NameList, TAG};
pub use name_set::NameSet;

/// Entries after which a mention counts half: about twenty steps of a coding agent.
// Measured on a recorded session: 20 to 40 are best; 120 loses two percent of the names that the
// next call uses.
const HALF_LIFE_ENTRIES: f32 = 40.0;

/// Bonus of a name in an entry that the prompt finds, equal to four mentions.
const BOOST_LOG2: f32 = 2.0;

/// Influence of the length of a name on its weight: 1 is weight per character.
const LENGTH_SHARE: f32 = 1.0;

/// Share of a list for the facts that the user stated, before all other names.
// The other half stays for the names that the next call uses, however much a user writes.
const FACT_ROOM_DIVISOR: u64 = 2;
/// Share of the rest for the ids that the model stated.
// Less than half: much of what a model states is on its way into a call, where it is ranked by its use.
const STATEMENT_ROOM_DIVISOR: u64 = 4;
/// Names that can be listed: twice as many as the largest list holds.
const CANDIDATES: usize = 16_384;
/// Names that do not fit before a list counts as full.
const MAX_MISSES: usize = 64;

/// The names of one session.
#[derive(Clone, Debug, Default)]
pub struct NameLedger {
    numbers: NameNumbers,
    rows: Vec<NameRow>,
    /// The weight per character of each row, as its binary logarithm. Every list reads those of all candidates, for
    /// which the rows lie too far apart.
    ranks: Vec<f32>,
    /// The heaviest rows. Only a mention raises a weight, so a row that was removed returns with its
    /// next mention.
    candidates: Vec<u32>,
    /// Facts that the user stated, in the order of their statement; repeated with each.
    facts: Vec<u32>,
    /// Ids that the model stated, likewise.
    statements: Vec<u32>,
    /// Name numbers per entry.
    by_entry: Vec<Box<[u32]>>,
    /// Per entry, whether its text is known to have no secrets.
    clean_entries: Vec<bool>,
    parts: PathParts,
}

#[derive(Clone, Debug)]
struct NameRow {
    name: Box<str>,
    kind: IdentifierKind,
    /// Last operation on it.
    operation: Option<FileOperation>,
    /// Binary logarithm of the weight, normalised to entry 0: equal decay keeps the order.
    weight_log2: f32,
    /// Binary logarithm of the length.
    length_log2: f32,
    /// Size in weighted characters.
    chars: u32,
    is_candidate: bool,
    /// Whether the user stated it.
    is_fact: bool,
    /// Whether the model stated it as an id.
    is_statement: bool,
    /// Whether a tool used or printed it.
    is_used: bool,
}

impl NameRow {
    /// Whether it is listed as a fact of the user. A file that tools work on is ranked by its use.
    fn is_listed_fact(&self) -> bool {
        self.is_fact && !(self.is_used && self.kind == IdentifierKind::File)
    }

    /// Whether nothing is lost where this path stands without a part of it. Titles hand on facts, ids and what a
    /// tool did.
    fn shows(&self, part: &NameRow) -> bool {
        let has_title = part.is_listed_fact() || part.is_statement;
        let is_used = part.operation.is_some() && self.operation.is_none();
        part.kind == IdentifierKind::File && !has_title && !is_used
    }

    /// Size in a list with its comma, in weighted characters.
    fn list_chars(&self) -> u64 {
        u64::from(self.chars) + 2
    }
}

impl NameLedger {
    /// Reads the names of the next entry. Secrets are no names.
    pub fn read_entry(&mut self, entry: &Entry<'_>) {
        let mut names = self.begin_entry();
        let is_clean = for_each_mention(entry, |mention| names.add_mention(mention));
        names.finish();
        self.clean_entries.push(is_clean);
    }

    /// Adds the names of the next entry, which were read before.
    pub fn add_entry(&mut self, mentions: &EntryMentions) {
        let mut names = self.begin_entry();
        mentions.iter().for_each(|mention| names.add_mention(mention));
        names.finish();
        self.clean_entries.push(mentions.is_clean());
    }

    /// Starts the names of the next entry.
    fn begin_entry(&mut self) -> EntryNames<'_> {
        EntryNames { at: self.by_entry.len() as f32, ledger: self, numbers: Vec::new() }
    }

    /// The name numbers of an entry.
    pub fn entry_names(&self, seq: u64) -> &[u32] {
        self.by_entry.get(seq as usize).map_or(&[], |names| names)
    }

    /// The secrets of an entry's text. A text that was read whole and had none is not searched again.
    pub fn secrets_of<'t>(&self, seq: u64, text: &'t str) -> SecretRanges<'t> {
        let is_clean = self.clean_entries.get(seq as usize).is_some_and(|is_clean| *is_clean);
        if is_clean { SecretRanges::none(text) } else { SecretRanges::new(text) }
    }

    /// The heaviest names of an entry that fit `most_chars`.
    pub fn heaviest_names(&self, seq: u64, most_chars: u64) -> Vec<&str> {
        let mut rows: Vec<&NameRow> = self
            .entry_names(seq)
            .iter()
            .filter_map(|number| self.rows.get(*number as usize))
            .collect();
        rows.sort_by(|left, right| right.weight_log2.total_cmp(&left.weight_log2));
        let mut room = most_chars;
        let fits = |row: &&NameRow| {
            let rest = room.checked_sub(u64::from(row.chars) + 1);
            room = rest.unwrap_or(room);
            rest.is_some()
        };
        rows.into_iter().filter(fits).map(|row| &*row.name).collect()
    }

    /// Whether the user stated a fact.
    pub fn has_facts(&self) -> bool {
        !self.facts.is_empty()
    }

    /// The number of a name, if it is known.
    pub fn find_number(&self, name: &str) -> Option<u32> {
        self.numbers.get(name, &self.rows)
    }

    /// The numbers of the known names in a text.
    pub fn name_numbers(&self, text: &str) -> Vec<u32> {
        let mut numbers = Vec::new();
        let mut rest = text;
        loop {
            let (before, listed, behind) = split_at_list(rest);
            for_each_name(before, |name| numbers.extend(self.find_number(name.text)));
            numbers.extend(listed.filter_map(|name| self.find_number(name)));
            if behind.is_empty() {
                return numbers;
            }
            rest = behind;
        }
    }

    /// Renders the names that are neither in `shown` nor `withheld`, in at most `most_chars` weighted characters; empty
    /// without any. The user's facts come first, the newest before older ones, in a share of the room; then
    /// the ids that the model stated, likewise; then the heaviest names. Names in `boosted` get a bonus. A path
    /// shows its parts, so that they are not listed beside it.
    pub fn render(
        &self,
        shown: &NameSet,
        withheld: impl IntoIterator<Item = u32>,
        boosted: &NameSet,
        most_chars: u64,
    ) -> NameList {
        let room = most_chars.saturating_sub(BLOCK_CHARS);
        if room == 0 {
            return NameList::default();
        }
        let mut lists = NameLists::default();
        withheld.into_iter().for_each(|number| _ = lists.leave_out(number));
        for number in &shown.numbers {
            let parts = self.parts.get(*number);
            if let Some(row) = self.rows.get(*number as usize).filter(|_| !parts.is_empty()) {
                self.add_parts(row, parts, &mut lists);
            }
        }
        let fact_room = room / FACT_ROOM_DIVISOR;
        let is_fact = |number: &u32| {
            let row = self.rows.get(*number as usize);
            !shown.contains(*number) && row.is_some_and(NameRow::is_listed_fact)
        };
        let facts = self.facts.iter().rev().copied().filter(is_fact);
        let left = self.fill(facts, fact_room, &mut lists);
        let room = room - (fact_room - left);
        let statement_room = room / STATEMENT_ROOM_DIVISOR;
        let statements = self.statements.iter().rev().copied();
        let statements = statements.filter(|number| !shown.contains(*number));
        let left = self.fill(statements, statement_room, &mut lists);
        let room = room - (statement_room - left);
        // A name takes at least four characters with its comma, so more are never listed.
        let most = (most_chars / 4) as usize + 1;
        let ranked = self.ranked(shown, boosted).take(most);
        self.fill(ranked, room, &mut lists);
        lists.render()
    }

    /// Adds the rows that fit, and returns the room that is left.
    fn fill<'n>(
        &'n self,
        numbers: impl Iterator<Item = u32>,
        mut room: u64,
        lists: &mut NameLists<'n>,
    ) -> u64 {
        let mut misses = 0;
        for number in numbers {
            let Some(row) = self.rows.get(number as usize) else { continue };
            if lists.is_done(number) {
                continue;
            }
            // A name that does not fit lets shorter ones pass.
            let Some(rest) = room.checked_sub(row.list_chars()) else {
                misses += 1;
                if misses > MAX_MISSES {
                    break;
                }
                continue;
            };
            room = rest;
            lists.add(number, row);
            room += self.add_parts(row, &self.find_parts(row), lists);
        }
        room
    }

    /// Leaves the parts of a path out of a list, and returns the room of those that were listed.
    fn add_parts(&self, path: &NameRow, parts: &[u32], lists: &mut NameLists<'_>) -> u64 {
        let known = parts.iter().filter_map(|part| Some((*part, self.rows.get(*part as usize)?)));
        let removed = known.filter(|(number, part)| path.shows(part) && lists.leave_out(*number));
        removed.map(|(_, part)| part.list_chars()).sum()
    }

    /// Looks up the parts of a path and keeps their numbers: for all names that a request shows, that takes too long.
    fn keep_parts(&mut self, number: u32) {
        let Some(row) = self.rows.get(number as usize) else { return };
        self.parts.set(number, &self.find_parts(row));
    }

    /// The numbers of the files and folders that a path begins or ends with.
    fn find_parts(&self, path: &NameRow) -> Vec<u32> {
        let parts = parts_of_path(&path.name).filter(|_| path.kind == IdentifierKind::File);
        parts.filter_map(|part| self.find_number(part)).collect()
    }

    /// The candidates that are not in `shown`, heaviest first.
    fn ranked(&self, shown: &NameSet, boosted: &NameSet) -> impl Iterator<Item = u32> {
        let is_other =
            |number: &&u32| self.rows.get(**number as usize).is_some_and(|row| !row.is_candidate);
        // A bonus may lift a name above the candidates.
        let all = self.candidates.iter().chain(boosted.numbers.iter().filter(is_other));
        let keys = all.filter(|number| !shown.contains(**number)).filter_map(|number| {
            let bonus = if boosted.contains(*number) { BOOST_LOG2 } else { 0.0 };
            // Of equal ranks the earlier name comes first.
            Some(key_of(self.ranks.get(*number as usize)? + bonus, !*number))
        });
        BestFirst::new(keys).map(|key| !number_of(key))
    }

    /// Makes a row a candidate; the lightest candidates are removed from time to time.
    fn add_candidate(&mut self, number: u32) {
        self.candidates.push(number);
        if self.candidates.len() < 2 * CANDIDATES {
            return;
        }
        let NameLedger { candidates, rows, ranks, .. } = self;
        let rank = |number: &u32| ranks.get(*number as usize).copied().unwrap_or_default();
        candidates
            .select_nth_unstable_by(CANDIDATES, |l, r| rank(r).total_cmp(&rank(l)).then(l.cmp(r)));
        for number in candidates.split_off(CANDIDATES) {
            if let Some(row) = rows.get_mut(number as usize) {
                row.is_candidate = false;
            }
        }
    }

    /// Memory use in bytes, including allocations.
    pub fn size_bytes(&self) -> usize {
        let names: usize = self.rows.iter().map(|row| row.name.len()).sum();
        let entries: usize = self.by_entry.iter().map(|names| size_of_val(&**names)).sum();
        names
            + entries
            + self.numbers.size_bytes()
            + self.parts.size_bytes()
            + self.rows.capacity() * size_of::<NameRow>()
            + self.ranks.capacity() * size_of::<f32>()
            + self.by_entry.capacity() * size_of::<Box<[u32]>>()
            + self.clean_entries.capacity()
            + (self.facts.capacity() + self.statements.capacity()) * size_of::<u32>()
    }
}

#[cfg(test)]
mod tests;
