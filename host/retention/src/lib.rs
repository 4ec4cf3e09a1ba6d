//! The survival ledger: what a compaction left said of what was said before it.
//!
//! ```text
//!  before   asks 3  paths 40  commands 25  ids 12  numbers 30  failures 4     counted in the live transcript
//!    │ compaction
//!  after    asks 3  paths 31  commands  6  ids 11  numbers  9  failures 2     still said anywhere in it
//! ```
//!
//! Counted by rule alone, so that two runs say the same. A fact is kept where it is still said
//! somewhere in the live transcript, letter for letter but for case and blanks: `matching` tells how that
//! is decided, `facts` what counts as one. Nothing here knows a session, a file or an engine. It is the
//! one place of the host that uses the engines' words for names and secrets: two ideas of what an
//! identifier is would make every figure worthless.

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

#[cfg(test)]
mod tests;

use std::collections::HashMap;

use ctxhost_engine_api::{EntryKind, Flags, PlanItem, Transcript};

pub use categories::{Category, CategoryShare, Shares};
pub use ctxhost_engine_kit::redact::{contains_secret, redact, replace_secrets};
pub use ledger::render_ledger;
pub use names::{names_in, texts_of};
pub use quality_gate::{GateFailure, GateRule, GateRuleError, QualityGate};

use facts::{Fact, Statement};

/// What a compaction kept, and what it lost.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RetentionReport {
    /// How much of each category is still said.
    pub shares: Shares,
    /// What is said no more, category by category, in the order in which it was said last.
    pub lost: Vec<LostFact>,
}

/// Something that is said no more.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct LostFact {
    /// What sort of thing.
    pub category: Category,
    /// What was said, on one line, without secrets; of something long its beginning.
    pub text: String,
    /// The id of the entry that said it last. An entry of the conversation goes before a summary.
    pub entry: String,
}

/// Counts what of `before` is still said in `after`. Costs what both are long.
pub fn measure_retention(before: &Transcript, after: &[PlanItem<'_>]) -> RetentionReport {
    let ledger = FactIndex::of(before);
    let is_kept = ledger.kept(after);
    let mut survival = RetentionReport::default();
    for (told, is_kept) in ledger.told.iter().zip(&is_kept) {
        let share = survival.shares.of_mut(told.fact.category);
        share.total += 1;
        share.kept += u64::from(*is_kept);
    }
    for category in Category::ALL {
        let lost = ledger.told.iter().zip(&is_kept).filter(|(_, is_kept)| !**is_kept);
        let mut lost: Vec<&FactMention<'_>> =
            lost.map(|(told, _)| told).filter(|told| told.fact.category == category).collect();
        lost.sort_by_key(|told| told.seq);
        survival.lost.extend(lost.into_iter().map(FactMention::lost));
    }
    survival
}

/// All that a transcript says, each fact once.
struct FactIndex<'a> {
    told: Vec<FactMention<'a>>,
    /// What each entry says, by its id.
    entries: HashMap<&'a str, EntryStatement<'a>>,
}

/// A fact, and the entry that said it last.
struct FactMention<'a> {
    fact: Fact,
    seq: u64,
    entry: &'a str,
    is_synthetic: bool,
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

/// What one entry says: the numbers of its facts.
struct EntryStatement<'a> {
    raw: &'a str,
    statement: Statement,
    facts: Vec<usize>,
}

impl<'a> FactIndex<'a> {
    fn of(before: &'a Transcript) -> FactIndex<'a> {
        let mut ledger = FactIndex { told: Vec::new(), entries: HashMap::new() };
        let mut numbers: HashMap<(Category, String), usize> = HashMap::new();
        for entry in before.iter() {
            let statement = Statement::from_item(&PlanItem::Kept(entry));
            let is_synthetic =
                entry.has(Flags::SYNTHETIC) || entry.kind() == EntryKind::CompactionSummary;
            let mut facts = Vec::new();
            for fact in statement.facts() {
                let next = ledger.told.len();
                let key = (fact.category, fact.key.clone());
                let number = *numbers.entry(key).or_insert(next);
                facts.push(number);
                let told = FactMention { fact, seq: entry.seq(), entry: entry.id(), is_synthetic };
                match ledger.told.get_mut(number) {
                    None => ledger.told.push(told),
                    Some(earlier) if is_synthetic && !earlier.is_synthetic => {}
                    Some(earlier) => *earlier = told,
                }
            }
            ledger
                .entries
                .insert(entry.id(), EntryStatement { raw: entry.raw(), statement, facts });
        }
        ledger
    }

    /// Whether each fact is still said.
    fn kept(&self, after: &[PlanItem<'_>]) -> Vec<bool> {
        let mut is_kept = vec![false; self.told.len()];
        let mut changed = Vec::new();
        let mut unchanged = Vec::new();
        for item in after {
            match self.unchanged(item) {
                Some(saying) => {
                    saying.facts.iter().for_each(|number| mark(&mut is_kept, *number));
                    unchanged.push(&saying.statement);
                }
                None => changed.push(Statement::from_item(item)),
            }
        }
        self.mark_numbers(&changed, &mut is_kept);
        let texts = unchanged.into_iter().chain(&changed).flat_map(Statement::texts);
        let open = (0..self.told.len()).filter(|number| is_kept.get(*number) == Some(&false));
        let open: Vec<(usize, &Fact)> =
            open.filter_map(|number| Some((number, &self.told.get(number)?.fact))).collect();
        for number in matching::find_mentions(&open, texts) {
            mark(&mut is_kept, number);
        }
        is_kept
    }

    fn unchanged(&self, item: &PlanItem<'_>) -> Option<&EntryStatement<'a>> {
        let PlanItem::Kept(entry) = item else { return None };
        self.entries.get(entry.id()).filter(|saying| saying.raw == entry.raw())
    }

    /// A measured number is compared as one, so that `12ms` still says `12 ms`.
    fn mark_numbers(&self, changed: &[Statement], is_kept: &mut [bool]) {
        let numbers: std::collections::HashSet<String> =
            changed.iter().flat_map(Statement::numbers).map(|fact| fact.key).collect();
        for (told, is_kept) in self.told.iter().zip(is_kept) {
            let is_number = told.fact.category == Category::Numbers;
            *is_kept |= is_number && numbers.contains(&told.fact.key);
        }
    }
}

fn mark(is_kept: &mut [bool], number: usize) {
    if let Some(is_kept) = is_kept.get_mut(number) {
        *is_kept = true;
    }
}
