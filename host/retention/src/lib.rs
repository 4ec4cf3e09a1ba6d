//! Measures what a compaction retained: which facts of the transcript before it are still stated
//! after it.
//!
//! ```text
//!  before   asks 3  paths 40  commands 25  ids 12  numbers 30  failures 4     counted in the live transcript
//!    │ compaction
//!  after    asks 3  paths 31  commands  6  ids 11  numbers  9  failures 2     still stated anywhere in it
//! ```
//!
//! Facts are counted by rules, so that two runs agree. A fact is retained where the live transcript
//! still states it, compared without case and white space: `matching` compares, `facts` defines the
//! facts. No session, file or engine is involved. This is the one crate of the host that uses the
//! engines' definitions of names and secrets: with two definitions of an identifier the figures
//! would be worthless.

#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

mod categories;
mod facts;
mod ledger;
mod matching;
mod names;
mod quality_gate;
mod secrets;

#[cfg(test)]
mod tests;

use std::collections::HashMap;

use ctxhost_engine_api::{EntryKind, Flags, PlanItem, Transcript};

pub use categories::{Category, CategoryShare, Shares};
pub use ctxhost_text::redact::{contains_secret, redact, replace_secrets};
pub use ledger::render_ledger;
pub use matching::normalize;
pub use names::{names_and_symbols_in, names_in, texts_of};
pub use quality_gate::{GateFailure, GateRule, GateRuleError, QualityGate};
pub use secrets::{
    KnownSecrets, is_bare_value, is_secret_field, looks_random, replace_flag_secrets,
};

use facts::{Fact, Statement};

/// What a compaction retained and what it lost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RetentionReport {
    /// The retained share of each category.
    pub shares: Shares,
    /// The lost facts, category by category, in the order of their last mention.
    pub lost: Vec<LostFact>,
    /// The secrets of the earlier transcript, to be replaced in what is shown with the report.
    pub secrets: KnownSecrets,
}

/// A lost fact.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct LostFact {
    /// Its category.
    pub category: Category,
    /// Its text on one line, without secrets; the beginning of a long one.
    pub text: String,
    /// The id of the last entry that mentions it. Entries of the conversation take precedence over
    /// summaries.
    pub entry: String,
}

/// Counts the facts of `before` that `after` still states, in time linear in both.
pub fn measure_retention(before: &Transcript, after: &[PlanItem<'_>]) -> RetentionReport {
    let mut index = FactIndex::new(before);
    index.redact_known();
    let is_kept = index.find_kept(after);
    let mut report = RetentionReport::default();
    for (mention, is_kept) in index.mentions.iter().zip(&is_kept) {
        if mention.is_secret {
            continue;
        }
        let share = report.shares.of_mut(mention.fact.category);
        share.total += 1;
        share.kept += u64::from(*is_kept);
    }
    for category in Category::ALL {
        let lost = index.mentions.iter().zip(&is_kept).filter(|(_, is_kept)| !**is_kept);
        let mut lost: Vec<&FactMention<'_>> = lost
            .map(|(mention, _)| mention)
            .filter(|mention| mention.fact.category == category && !mention.is_secret)
            .collect();
        lost.sort_by_key(|mention| mention.seq);
        report.lost.extend(lost.into_iter().map(FactMention::lost));
    }
    report.secrets = index.secrets;
    report
}

/// The facts of a transcript, each once.
struct FactIndex<'a> {
    mentions: Vec<FactMention<'a>>,
    /// The statement of each entry, by id.
    entries: HashMap<&'a str, EntryStatement<'a>>,
    /// The secrets of all entries.
    secrets: KnownSecrets,
}

/// A fact and the last entry that mentions it.
struct FactMention<'a> {
    fact: Fact,
    seq: u64,
    entry: &'a str,
    is_synthetic: bool,
    /// Whether the fact is a name that is a secret elsewhere.
    is_secret: bool,
}

impl FactMention<'_> {
    fn lost(&self) -> LostFact {
        LostFact {
            category: self.fact.category,
            text: self.fact.text.clone(),
            entry: self.entry.to_owned(),
        }
    }
}

/// The statement of one entry, with the indices of its facts.
struct EntryStatement<'a> {
    raw: &'a str,
    statement: Statement,
    facts: Vec<usize>,
}

impl<'a> FactIndex<'a> {
    fn new(before: &'a Transcript) -> FactIndex<'a> {
        let mut index = FactIndex {
            mentions: Vec::new(),
            entries: HashMap::new(),
            secrets: KnownSecrets::default(),
        };
        let mut numbers: HashMap<(Category, String), usize> = HashMap::new();
        for entry in before.iter() {
            let statement = Statement::from_item(&PlanItem::Kept(entry), &mut index.secrets);
            let is_synthetic =
                entry.has(Flags::SYNTHETIC) || entry.kind() == EntryKind::CompactionSummary;
            let mut facts = Vec::new();
            for fact in statement.facts() {
                let next = index.mentions.len();
                let key = (fact.category, fact.key.clone());
                let number = *numbers.entry(key).or_insert(next);
                facts.push(number);
                let (seq, entry) = (entry.seq(), entry.id());
                let mention = FactMention { fact, seq, entry, is_synthetic, is_secret: false };
                match index.mentions.get_mut(number) {
                    None => index.mentions.push(mention),
                    // A summary repeats facts; the original entry is the better reference.
                    Some(earlier) if is_synthetic && !earlier.is_synthetic => {}
                    Some(earlier) => *earlier = mention,
                }
            }
            index.entries.insert(entry.id(), EntryStatement { raw: entry.raw(), statement, facts });
        }
        index
    }

    /// Removes secrets from facts whose own text does not show that they are: a later message names the value of a
    /// field.
    fn redact_known(&mut self) {
        for mention in &mut self.mentions {
            if !self.secrets.are_in(&mention.fact.text) {
                continue;
            }
            mention.is_secret = matches!(mention.fact.category, Category::Paths | Category::Ids);
            mention.fact.text = self.secrets.redact(&mention.fact.text);
        }
    }

    /// Whether each fact is still stated.
    fn find_kept(&self, after: &[PlanItem<'_>]) -> Vec<bool> {
        let mut is_kept = vec![false; self.mentions.len()];
        let mut changed = Vec::new();
        let mut unchanged = Vec::new();
        for item in after {
            match self.unchanged(item) {
                Some(statement) => {
                    statement.facts.iter().for_each(|number| mark(&mut is_kept, *number));
                    unchanged.push(&statement.statement);
                }
                None => {
                    changed.push(Statement::from_item(item, &mut KnownSecrets::default()));
                }
            }
        }
        self.mark_numbers(&changed, &mut is_kept);
        let texts = unchanged.into_iter().chain(&changed).flat_map(Statement::texts);
        // Facts of unchanged entries are found without a search, which is the common case.
        let open = (0..self.mentions.len()).filter(|number| is_kept.get(*number) == Some(&false));
        let open: Vec<(usize, &Fact)> =
            open.filter_map(|number| Some((number, &self.mentions.get(number)?.fact))).collect();
        for number in matching::find_mentions(&open, texts) {
            mark(&mut is_kept, number);
        }
        is_kept
    }

    fn unchanged(&self, item: &PlanItem<'_>) -> Option<&EntryStatement<'a>> {
        let PlanItem::Kept(entry) = item else { return None };
        self.entries.get(entry.id()).filter(|statement| statement.raw == entry.raw())
    }

    /// Marks numbers by value and unit, so that `12ms` still states `12 ms`.
    fn mark_numbers(&self, changed: &[Statement], is_kept: &mut [bool]) {
        let numbers: std::collections::HashSet<String> =
            changed.iter().flat_map(Statement::numbers).map(|fact| fact.key).collect();
        for (mention, is_kept) in self.mentions.iter().zip(is_kept) {
            let is_number = mention.fact.category == Category::Numbers;
            *is_kept |= is_number && numbers.contains(&mention.fact.key);
        }
    }
}

fn mark(is_kept: &mut [bool], number: usize) {
    if let Some(is_kept) = is_kept.get_mut(number) {
        *is_kept = true;
    }
}
