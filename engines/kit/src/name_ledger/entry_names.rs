//! Collects the names of one entry.

use super::{HALF_LIFE_ENTRIES, NameLedger, NameRow};
use crate::files::FileOperation;
use crate::identifiers::Identifier;

/// Collects the names of one entry.
pub(super) struct EntryNames<'a> {
    pub(super) ledger: &'a mut NameLedger,
    pub(super) at: f32,
    pub(super) numbers: Vec<u32>,
    /// Whether the names are those of a call or an output.
    pub(super) is_tool: bool,
}

impl EntryNames<'_> {
    /// Adds a mention. A name counts once per entry, by its heaviest mention.
    pub(super) fn add_mention(
        &mut self,
        identifier: &Identifier<'_>,
        weight: f32,
        operation: Option<FileOperation>,
    ) {
        // Dates and amounts fill outputs; those of the user are facts.
        if !identifier.kind.is_noise_in_output() {
            self.add(identifier, weight, operation);
        }
    }

    /// Adds a fact that the user stated.
    pub(super) fn add_fact(&mut self, fact: &Identifier<'_>, weight: f32) {
        let number = self.add(fact, weight, None);
        let ledger = &mut *self.ledger;
        if let Some(row) = ledger.rows.get_mut(number as usize) {
            row.is_fact = true;
            ledger.facts.push(number);
        }
    }

    /// Adds a name, and returns its number.
    pub(super) fn add(
        &mut self,
        identifier: &Identifier<'_>,
        weight: f32,
        operation: Option<FileOperation>,
    ) -> u32 {
        let name = identifier.text;
        let ledger = &mut *self.ledger;
        let number = match ledger.find_number(name) {
            Some(number) => number,
            None => {
                let number = ledger.rows.len() as u32;
                ledger.numbers.insert(name, number);
                ledger.rows.push(NameRow {
                    name: name.into(),
                    kind: identifier.kind,
                    operation,
                    weight_log2: f32::NEG_INFINITY,
                    length_log2: (name.len() as f32).log2(),
                    is_candidate: false,
                    is_fact: false,
                    is_used: false,
                });
                number
            }
        };
        let Some(row) = ledger.rows.get_mut(number as usize) else { return number };
        row.operation = operation.or(row.operation);
        row.is_used |= self.is_tool;
        if self.numbers.contains(&number) {
            return number;
        }
        self.numbers.push(number);
        // Older weights decay by growing newer ones, so that no row has to be updated.
        let now = weight.log2() + self.at / HALF_LIFE_ENTRIES;
        row.weight_log2 = sum_log2(row.weight_log2, now);
        if !std::mem::replace(&mut row.is_candidate, true) {
            ledger.add_candidate(number);
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
