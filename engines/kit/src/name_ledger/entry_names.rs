//! Collects the names of one entry.

use ctxhost_engine_api::transcript::tokens::weighted_chars;

use super::mentions::{Mention, MentionPlace, PRINTED_WEIGHT};
use super::{HALF_LIFE_ENTRIES, LENGTH_SHARE, NameLedger, NameRow};

/// Collects the names of one entry.
pub(super) struct EntryNames<'a> {
    pub(super) ledger: &'a mut NameLedger,
    pub(super) at: f32,
    pub(super) numbers: Vec<u32>,
}

impl EntryNames<'_> {
    /// Adds a mention. A name counts once per entry, by its heaviest mention.
    pub(super) fn add_mention(&mut self, mention: Mention<'_>) {
        let is_stated = matches!(mention.place, MentionPlace::Fact | MentionPlace::Statement);
        // Dates and amounts fill outputs; those of the user are facts.
        if !is_stated && mention.kind.is_noise_in_output() {
            return;
        }
        let number = self.add(mention);
        let ledger = &mut *self.ledger;
        let Some(row) = ledger.rows.get_mut(number as usize) else { return };
        match mention.place {
            MentionPlace::Fact => {
                row.is_fact = true;
                ledger.facts.push(number);
            }
            MentionPlace::Statement => {
                row.is_statement = true;
                ledger.statements.push(number);
            }
            MentionPlace::Tool | MentionPlace::Text => {}
        }
    }

    /// Adds a name, and returns its number.
    fn add(&mut self, mention: Mention<'_>) -> u32 {
        let Mention { name, kind, weight, operation, place } = mention;
        let ledger = &mut *self.ledger;
        let known = ledger.find_number(name);
        let is_new = known.is_none();
        let number = match known {
            Some(number) => number,
            None => {
                let number = ledger.rows.len() as u32;
                ledger.numbers.insert(name, number);
                ledger.ranks.push(f32::NEG_INFINITY);
                ledger.rows.push(NameRow {
                    name: name.into(),
                    kind,
                    operation,
                    weight_log2: f32::NEG_INFINITY,
                    length_log2: (name.len() as f32).log2(),
                    chars: weighted_chars(name) as u32,
                    is_candidate: false,
                    is_fact: false,
                    is_statement: false,
                    is_used: false,
                });
                number
            }
        };
        let Some(row) = ledger.rows.get_mut(number as usize) else { return number };
        row.operation = operation.or(row.operation);
        row.is_used |= place == MentionPlace::Tool;
        if self.numbers.contains(&number) {
            return number;
        }
        self.numbers.push(number);
        // Older weights decay by growing newer ones, so that no row has to be updated.
        let now = weight.log2() + self.at / HALF_LIFE_ENTRIES;
        row.weight_log2 = sum_log2(row.weight_log2, now);
        if let Some(rank) = ledger.ranks.get_mut(number as usize) {
            *rank = row.weight_log2 - LENGTH_SHARE * row.length_log2;
        }
        if !std::mem::replace(&mut row.is_candidate, true) {
            ledger.add_candidate(number);
        }
        // Listings print thousands of paths again and again.
        if is_new || weight > PRINTED_WEIGHT {
            ledger.keep_parts(number);
        }
        number
    }

    /// Ends the names of the entry.
    pub(super) fn finish(self) {
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

    #[test]
    fn sums_of_logarithms() {
        assert!((sum_log2(3.0, 3.0) - 4.0).abs() < 1e-5);
        assert_eq!(sum_log2(f32::NEG_INFINITY, 2.0), 2.0);
    }
}
