//! The ledger of names: the names of a session, how they were used, and which ones to repeat.
//!
//! The weight of a name grows with frequency and recency. Mentions by the user, the model or a call
//! count more than printed ones.

use std::collections::{HashMap, HashSet};

use ctxhost_engine_api::transcript::tokens::weighted_chars;
use ctxhost_engine_api::{Entry, EntryKind, Role};

use crate::calls::{SHORT_ARGUMENT_BYTES, for_each_argument_text};
use crate::files::{FileOperation, path_argument};
use crate::names::{NameKind, for_each_clean_name, for_each_name};
use crate::redact::SecretRanges;

/// Entries after which a mention counts half: about twenty steps of a coding agent.
// Measured on a recorded session: 20 to 40 are best; 120 loses two percent of the names that the
// next call uses.
const HALF_LIFE_ENTRIES: f32 = 40.0;

/// Bonus of a name in an entry that the prompt finds, equal to four mentions.
const BOOST_LOG2: f32 = 2.0;

/// Influence of the length of a name on its weight: 1 is weight per character.
const LENGTH_SHARE: f32 = 1.0;

/// Weights of a mention in the arguments of a call,
const USED_WEIGHT: f32 = 4.0;
/// in a text of the user or the model,
const STATED_WEIGHT: f32 = 2.0;
/// and in the output of a tool.
const PRINTED_WEIGHT: f32 = 1.0;

/// Tag of a rendered list.
pub const TAG: &str = "names";
/// Names that can be listed: twice as many as the largest list holds.
const CANDIDATES: usize = 16_384;
/// Names in a row that do not fit before a list counts as full.
const MAX_MISSES: usize = 64;

/// The names of one session.
#[derive(Clone, Debug, Default)]
pub struct NameLedger {
    numbers: HashMap<Box<str>, u32>,
    rows: Vec<NameRow>,
    /// The heaviest rows. Only a mention raises a weight, so a row that was removed returns with its
    /// next mention.
    candidates: Vec<u32>,
    /// Name numbers per entry.
    by_entry: Vec<Box<[u32]>>,
    /// Per entry, whether its text is known to have no secrets.
    clean_entries: Vec<bool>,
}

#[derive(Clone, Debug)]
struct NameRow {
    name: Box<str>,
    kind: NameKind,
    /// Last operation on it.
    operation: Option<FileOperation>,
    /// Binary logarithm of the weight, normalised to entry 0: equal decay keeps the order.
    weight_log2: f32,
    /// Binary logarithm of the length.
    length_log2: f32,
    is_candidate: bool,
}

impl NameRow {
    /// The weight per character.
    fn rank(&self) -> f32 {
        self.weight_log2 - LENGTH_SHARE * self.length_log2
    }
}

impl NameLedger {
    /// Reads the names of the next entry. Secrets are no names.
    pub fn read_entry(&mut self, entry: &Entry<'_>) {
        let is_output = entry.role() == Role::Tool || entry.kind() == EntryKind::Bash;
        // A tool prints names that the work does not need.
        let weight = if is_output { PRINTED_WEIGHT } else { STATED_WEIGHT };
        let mut names = self.begin_entry();
        for call in entry.tool_calls() {
            let operation = FileOperation::of_tool(&call.name);
            let path = path_argument(&call);
            for_each_argument_text(&call, |text| {
                let is_short = text.len() <= SHORT_ARGUMENT_BYTES;
                let weight = if is_short { USED_WEIGHT } else { STATED_WEIGHT };
                // Without its context a key looks like any other name, so arguments are redacted
                // first.
                _ = for_each_clean_name(text, |name, kind| {
                    // Only the path argument itself was read or changed.
                    let is_path =
                        path.as_deref().is_some_and(|path| path.trim_start_matches("./") == name);
                    names.add_mention(name, kind, weight, operation.filter(|_| is_path));
                });
            });
        }
        let is_clean = for_each_clean_name(entry.text(), |name, kind| {
            names.add_mention(name, kind, weight, None);
        });
        names.finish();
        self.clean_entries.push(is_clean);
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
            let rest = room.checked_sub(weighted_chars(&row.name) + 1);
            room = rest.unwrap_or(room);
            rest.is_some()
        };
        rows.into_iter().filter(fits).map(|row| &*row.name).collect()
    }

    /// The numbers of the known names in a text.
    pub fn name_numbers(&self, text: &str) -> Vec<u32> {
        let mut numbers = Vec::new();
        for_each_name(text, |name, _| numbers.extend(self.numbers.get(name)));
        numbers
    }

    /// Renders the heaviest names that are not in `shown`, in at most `most_chars` weighted
    /// characters; empty without any. Names in `boosted` get a bonus.
    pub fn render(&self, shown: &NameSet, boosted: &NameSet, most_chars: u64) -> String {
        let mut lists = NameLists::default();
        let mut room = most_chars.saturating_sub(BLOCK_CHARS);
        let mut misses = 0;
        for number in self.ranked(shown, boosted, most_chars) {
            let Some(row) = self.rows.get(number as usize) else { continue };
            if lists.is_listed(&row.name) {
                continue;
            }
            // A name that does not fit lets shorter ones pass.
            let Some(rest) = room.checked_sub(weighted_chars(&row.name) + 2) else {
                misses += 1;
                if misses > MAX_MISSES {
                    break;
                }
                continue;
            };
            room = rest;
            lists.add(row);
        }
        lists.render()
    }

    /// The heaviest names that can fit, heaviest first.
    fn ranked(&self, shown: &NameSet, boosted: &NameSet, most_chars: u64) -> Vec<u32> {
        let is_other =
            |number: &&u32| self.rows.get(**number as usize).is_some_and(|row| !row.is_candidate);
        // A bonus may lift a name above the candidates.
        let all = self.candidates.iter().chain(boosted.numbers.iter().filter(is_other));
        let mut ranked: Vec<(f32, u32)> = all
            .filter(|number| !shown.contains(**number))
            .filter_map(|number| {
                let bonus = if boosted.contains(*number) { BOOST_LOG2 } else { 0.0 };
                Some((self.rows.get(*number as usize)?.rank() + bonus, *number))
            })
            .collect();
        let order = |l: &(f32, u32), r: &(f32, u32)| r.0.total_cmp(&l.0).then(l.1.cmp(&r.1));
        // A name takes at least four characters with its comma, so more are never listed.
        let most = (most_chars / 4) as usize + 1;
        if ranked.len() > most {
            // Only the candidates that can fit are sorted.
            ranked.select_nth_unstable_by(most, order);
            ranked.truncate(most);
        }
        ranked.sort_unstable_by(order);
        ranked.into_iter().map(|(_, number)| number).collect()
    }

    /// Makes a row a candidate; the lightest candidates are removed from time to time.
    fn add_candidate(&mut self, number: u32) {
        self.candidates.push(number);
        if self.candidates.len() < 2 * CANDIDATES {
            return;
        }
        let NameLedger { candidates, rows, .. } = self;
        let rank = |number: &u32| rows.get(*number as usize).map_or(0.0, NameRow::rank);
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
        // Each name is stored twice: as a key and in its row.
        let names: usize = self.rows.iter().map(|row| 2 * row.name.len()).sum();
        let entries: usize = self.by_entry.iter().map(|names| size_of_val(&**names)).sum();
        let key = size_of::<(Box<str>, u32)>() + 1;
        names
            + entries
            + self.numbers.capacity() * key
            + self.rows.capacity() * size_of::<NameRow>()
            + self.by_entry.capacity() * size_of::<Box<[u32]>>()
            + self.clean_entries.capacity()
    }
}

/// A set of name numbers.
// A bit for each name: a request adds tens of thousands, for which hashing would take milliseconds.
#[derive(Clone, Debug, Default)]
pub struct NameSet {
    bits: Vec<u64>,
    numbers: Vec<u32>,
}

impl NameSet {
    /// Adds a name.
    pub fn insert(&mut self, number: u32) {
        let (word, bit) = NameSet::place(number);
        if self.bits.len() <= word {
            self.bits.resize(word + 1, 0);
        }
        if let Some(bits) = self.bits.get_mut(word).filter(|bits| **bits & bit == 0) {
            *bits |= bit;
            self.numbers.push(number);
        }
    }

    /// Whether a name is in it.
    pub fn contains(&self, number: u32) -> bool {
        let (word, bit) = NameSet::place(number);
        self.bits.get(word).is_some_and(|bits| bits & bit != 0)
    }

    fn place(number: u32) -> (usize, u64) {
        ((number / u64::BITS) as usize, 1 << (number % u64::BITS))
    }
}

impl Extend<u32> for NameSet {
    fn extend<T: IntoIterator<Item = u32>>(&mut self, numbers: T) {
        numbers.into_iter().for_each(|number| self.insert(number));
    }
}

impl FromIterator<u32> for NameSet {
    fn from_iter<T: IntoIterator<Item = u32>>(numbers: T) -> NameSet {
        let mut set = NameSet::default();
        set.extend(numbers);
        set
    }
}

/// The lines of a list of names.
#[derive(Default)]
struct NameLists<'n> {
    by_title: [Vec<&'n str>; TITLES.len()],
    /// The listed names and the endings of their paths.
    listed: HashSet<&'n str>,
}

/// Titles of the lines. One title for many names costs less than a word behind each.
const TITLES: [&str; 5] = ["changed", "read", "files", "symbols", "other"];

impl<'n> NameLists<'n> {
    /// Whether a name, or a path that ends with it, is listed.
    fn is_listed(&self, name: &str) -> bool {
        self.listed.contains(name)
    }

    fn add(&mut self, row: &'n NameRow) {
        let title = match (row.operation, row.kind) {
            (Some(FileOperation::Change), _) => 0,
            (Some(FileOperation::Read), _) => 1,
            (_, NameKind::File) => 2,
            (_, NameKind::Symbol) => 3,
            (_, NameKind::Address | NameKind::Code) => 4,
        };
        if let Some(list) = self.by_title.get_mut(title) {
            list.push(&row.name);
        }
        self.listed.insert(&row.name);
        let endings = row.name.match_indices('/').filter_map(|(at, _)| row.name.get(at + 1..));
        self.listed.extend(endings);
    }

    fn render(self) -> String {
        let lines: Vec<String> = TITLES
            .iter()
            .zip(self.by_title)
            .filter(|(_, list)| !list.is_empty())
            .map(|(title, list)| format!("{title}: {}", list.join(", ")))
            .collect();
        if lines.is_empty() {
            String::new()
        } else {
            format!("<{TAG}>\n{}\n</{TAG}>", lines.join("\n"))
        }
    }
}

/// Size of the tags and titles, in weighted characters.
const BLOCK_CHARS: u64 = 64;

/// Collects the names of one entry.
struct EntryNames<'a> {
    ledger: &'a mut NameLedger,
    at: f32,
    numbers: Vec<u32>,
}

impl EntryNames<'_> {
    /// Adds a mention. A name counts once per entry, by its heaviest mention.
    fn add_mention(
        &mut self,
        name: &str,
        kind: NameKind,
        weight: f32,
        operation: Option<FileOperation>,
    ) {
        let ledger = &mut *self.ledger;
        let number = match ledger.numbers.get(name) {
            Some(number) => *number,
            None => {
                let number = ledger.rows.len() as u32;
                ledger.numbers.insert(name.into(), number);
                ledger.rows.push(NameRow {
                    name: name.into(),
                    kind,
                    operation,
                    weight_log2: f32::NEG_INFINITY,
                    length_log2: (name.len() as f32).log2(),
                    is_candidate: false,
                });
                number
            }
        };
        let Some(row) = ledger.rows.get_mut(number as usize) else { return };
        row.operation = operation.or(row.operation);
        if self.numbers.contains(&number) {
            return;
        }
        self.numbers.push(number);
        // Older weights decay by growing newer ones, so that no row has to be updated.
        let now = weight.log2() + self.at / HALF_LIFE_ENTRIES;
        row.weight_log2 = sum_log2(row.weight_log2, now);
        if !std::mem::replace(&mut row.is_candidate, true) {
            ledger.add_candidate(number);
        }
    }

    /// Ends the names of the entry.
    fn finish(self) {
        self.ledger.by_entry.push(self.numbers.into());
    }
}

/// log2(2^left + 2^right)
fn sum_log2(left: f32, right: f32) -> f32 {
    let (small, large) = if left < right { (left, right) } else { (right, left) };
    // Relative to the larger one, so that the power cannot overflow.
    large + (small - large).exp2().ln_1p() / std::f32::consts::LN_2
}

#[cfg(test)]
mod tests {
    use super::*;

    fn note(ledger: &mut NameLedger, names: &[(&str, f32)]) {
        let mut entry = ledger.begin_entry();
        for (name, weight) in names {
            entry.add_mention(name, NameKind::File, *weight, None);
        }
        entry.finish();
    }

    #[test]
    fn what_is_used_often_and_late_comes_first() {
        let mut ledger = NameLedger::default();
        note(&mut ledger, &[("printed.rs", PRINTED_WEIGHT), ("used.rs", USED_WEIGHT)]);
        (0..400).for_each(|_| note(&mut ledger, &[]));
        note(&mut ledger, &[("late.rs", PRINTED_WEIGHT)]);
        let all = ledger.render(&NameSet::default(), &NameSet::default(), 1_000);
        assert_eq!(all, "<names>\nfiles: late.rs, used.rs, printed.rs\n</names>");
        let shown = ledger.entry_names(401).iter().copied().collect();
        assert!(!ledger.render(&shown, &NameSet::default(), 1_000).contains("late.rs"));
        assert_eq!(
            ledger.render(&NameSet::default(), &NameSet::default(), BLOCK_CHARS + 10),
            "<names>\nfiles: late.rs\n</names>"
        );
        assert_eq!(ledger.render(&NameSet::default(), &NameSet::default(), 10), "");
        assert_eq!(ledger.heaviest_names(0, 9), ["used.rs"]);
    }

    #[test]
    fn a_path_lists_its_endings_and_an_operation_gives_the_title() {
        let mut ledger = NameLedger::default();
        let mut entry = ledger.begin_entry();
        entry.add_mention("src/io/a.rs", NameKind::File, USED_WEIGHT, Some(FileOperation::Change));
        entry.add_mention("a.rs", NameKind::File, PRINTED_WEIGHT, None);
        entry.add_mention("parse_body", NameKind::Symbol, STATED_WEIGHT, None);
        entry.finish();
        let all = ledger.render(&NameSet::default(), &NameSet::default(), 1_000);
        assert_eq!(all, "<names>\nchanged: src/io/a.rs\nsymbols: parse_body\n</names>");
    }

    #[test]
    fn old_names_leave_the_candidates_and_return_when_mentioned() {
        let mut ledger = NameLedger::default();
        note(&mut ledger, &[("first.rs", PRINTED_WEIGHT)]);
        for number in 0..3 * CANDIDATES {
            note(&mut ledger, &[(&format!("f{number}.rs"), PRINTED_WEIGHT)]);
        }
        assert!(ledger.candidates.len() < 2 * CANDIDATES);
        assert!(!ledger.rows[0].is_candidate);
        let list =
            |ledger: &NameLedger| ledger.render(&NameSet::default(), &NameSet::default(), 200);
        assert!(!list(&ledger).contains("first.rs"));
        note(&mut ledger, &[("first.rs", USED_WEIGHT)]);
        assert!(list(&ledger).contains("first.rs"));
    }

    #[test]
    fn sums_of_logarithms() {
        assert!((sum_log2(3.0, 3.0) - 4.0).abs() < 1e-5);
        assert_eq!(sum_log2(f32::NEG_INFINITY, 2.0), 2.0);
    }
}
