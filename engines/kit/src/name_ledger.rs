//! The ledger of names: the names of a session, how they were used, and which ones to repeat.
//!
//! The weight of a name grows with frequency and recency. Mentions by the user, the model or a call
//! count more than printed ones.

use std::collections::{HashMap, HashSet};

use ctxhost_engine_api::transcript::tokens::weighted_chars;

use crate::names::{NameKind, for_each_name};

/// Entries after which a mention counts half: about twenty steps of a coding agent.
// Measured on a recorded session: 20 to 40 are best; 120 loses two percent of the names that the
// next call uses.
const HALF_LIFE_ENTRIES: f32 = 40.0;

/// Bonus of a name in an entry that the prompt finds, equal to four mentions.
const BOOST_LOG2: f32 = 2.0;

/// Influence of the length of a name on its weight: 1 is weight per character.
const LENGTH_SHARE: f32 = 1.0;

/// Weights of a mention in the arguments of a call,
pub const USED_WEIGHT: f32 = 4.0;
/// in a text of the user or the model,
pub const STATED_WEIGHT: f32 = 2.0;
/// and in the output of a tool.
pub const PRINTED_WEIGHT: f32 = 1.0;

/// The names of one session.
#[derive(Debug, Default)]
pub struct NameLedger {
    numbers: HashMap<Box<str>, u32>,
    rows: Vec<NameRow>,
    /// Name numbers per entry.
    by_entry: Vec<Box<[u32]>>,
}

#[derive(Debug)]
struct NameRow {
    name: Box<str>,
    kind: NameKind,
    /// Last operation on it: `read`, `changed` or empty.
    operation: &'static str,
    /// Binary logarithm of the weight, normalised to entry 0: equal decay keeps the order.
    weight_log2: f32,
}

impl NameLedger {
    /// Starts the names of the next entry.
    pub fn begin_entry(&mut self) -> EntryNames<'_> {
        EntryNames { at: self.by_entry.len() as f32, ledger: self, numbers: Vec::new() }
    }

    /// The name numbers of an entry.
    pub fn entry_names(&self, seq: u64) -> &[u32] {
        self.by_entry.get(seq as usize).map_or(&[], |names| names)
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
    /// characters; empty without any. Names in `asked` get a bonus.
    pub fn render(&self, shown: &HashSet<u32>, boosted: &HashSet<u32>, most_chars: u64) -> String {
        let mut numbers: Vec<u32> =
            (0..self.rows.len() as u32).filter(|number| !shown.contains(number)).collect();
        let weight = |number: &u32| {
            let row = self.rows.get(*number as usize);
            let boosted = if boosted.contains(number) { BOOST_LOG2 } else { 0.0 };
            row.map_or(0.0, |row| {
                row.weight_log2 + boosted - LENGTH_SHARE * (row.name.len() as f32).log2()
            })
        };
        // A name takes at least three characters with its comma, so more are never shown.
        let most = (most_chars / 4) as usize + 1;
        if numbers.len() > most {
            // Only the candidates that can fit are sorted.
            numbers.select_nth_unstable_by(most, |l, r| {
                weight(r).total_cmp(&weight(l)).then(l.cmp(r))
            });
            numbers.truncate(most);
        }
        numbers.sort_by(|l, r| weight(r).total_cmp(&weight(l)).then(l.cmp(r)));
        let mut room = most_chars.saturating_sub(BLOCK_CHARS);
        let mut lists: [Vec<String>; 3] = Default::default();
        let mut listed = String::new();
        for row in numbers.iter().filter_map(|number| self.rows.get(*number as usize)) {
            // A longer path already contains the file name.
            if listed.contains(&*row.name) {
                continue;
            }
            let item = if row.operation.is_empty() {
                row.name.to_string()
            } else {
                format!("{} ({})", row.name, row.operation)
            };
            // A name that does not fit lets shorter ones pass.
            let Some(rest) = room.checked_sub(weighted_chars(&item) + 2) else { continue };
            room = rest;
            listed.push_str(&item);
            listed.push(' ');
            let at = match row.kind {
                NameKind::File => 0,
                NameKind::Symbol => 1,
                NameKind::Address | NameKind::Code => 2,
            };
            if let Some(list) = lists.get_mut(at) {
                list.push(item);
            }
        }
        let titles = ["files", "symbols", "other"];
        let lines: Vec<String> = titles
            .iter()
            .zip(lists)
            .filter(|(_, list)| !list.is_empty())
            .map(|(title, list)| format!("{title}: {}", list.join(", ")))
            .collect();
        if lines.is_empty() {
            String::new()
        } else {
            format!("<names>\n{}\n</names>", lines.join("\n"))
        }
    }
}

/// Size of the tags and titles, in weighted characters.
const BLOCK_CHARS: u64 = 48;

/// Collects the names of one entry.
#[derive(Debug)]
pub struct EntryNames<'a> {
    ledger: &'a mut NameLedger,
    at: f32,
    numbers: Vec<u32>,
}

impl EntryNames<'_> {
    /// Adds a mention. A name counts once per entry, by its heaviest mention.
    pub fn add_mention(
        &mut self,
        name: &str,
        kind: NameKind,
        weight: f32,
        operation: &'static str,
    ) {
        let ledger = &mut *self.ledger;
        let number = match ledger.numbers.get(name) {
            Some(number) => *number,
            None => {
                let number = ledger.rows.len() as u32;
                ledger.numbers.insert(name.into(), number);
                let weight_log2 = f32::NEG_INFINITY;
                ledger.rows.push(NameRow { name: name.into(), kind, operation, weight_log2 });
                number
            }
        };
        let Some(row) = ledger.rows.get_mut(number as usize) else { return };
        if !operation.is_empty() {
            row.operation = operation;
        }
        if self.numbers.contains(&number) {
            return;
        }
        self.numbers.push(number);
        // Older weights decay by growing newer ones, so that no row has to be updated.
        let now = weight.log2() + self.at / HALF_LIFE_ENTRIES;
        row.weight_log2 = sum_log2(row.weight_log2, now);
    }

    /// Ends the names of the entry.
    pub fn finish(self) {
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
            entry.add_mention(name, NameKind::File, *weight, "");
        }
        entry.finish();
    }

    #[test]
    fn what_is_used_often_and_late_comes_first() {
        let mut ledger = NameLedger::default();
        note(&mut ledger, &[("printed.rs", PRINTED_WEIGHT), ("used.rs", USED_WEIGHT)]);
        (0..400).for_each(|_| note(&mut ledger, &[]));
        note(&mut ledger, &[("late.rs", PRINTED_WEIGHT)]);
        let all = ledger.render(&HashSet::new(), &HashSet::new(), 1_000);
        assert_eq!(all, "<names>\nfiles: late.rs, used.rs, printed.rs\n</names>");
        let shown = ledger.entry_names(401).iter().copied().collect();
        assert!(!ledger.render(&shown, &HashSet::new(), 1_000).contains("late.rs"));
        assert_eq!(
            ledger.render(&HashSet::new(), &HashSet::new(), BLOCK_CHARS + 10),
            "<names>\nfiles: late.rs\n</names>"
        );
        assert_eq!(ledger.render(&HashSet::new(), &HashSet::new(), 10), "");
        assert_eq!(ledger.heaviest_names(0, 9), ["used.rs"]);
    }

    #[test]
    fn sums_of_logarithms() {
        assert!((sum_log2(3.0, 3.0) - 4.0).abs() < 1e-5);
        assert_eq!(sum_log2(f32::NEG_INFINITY, 2.0), 2.0);
    }
}
