//! Finds the number of a name by its hash; the name itself is in its row alone.

use std::collections::HashMap;
use std::hash::BuildHasher;

use foldhash::quality::FixedState;

use super::NameRow;
use ctxhost_text::hash::BuildIdentityHasher;

/// The numbers of names.
#[derive(Clone, Debug, Default)]
pub(super) struct NameNumbers {
    by_hash: HashMap<u64, u32, BuildIdentityHasher>,
    /// Names with the hash of an earlier one.
    others: HashMap<Box<str>, u32>,
}

impl NameNumbers {
    /// The number of a name, which is in one of the rows.
    pub(super) fn get(&self, name: &str, rows: &[NameRow]) -> Option<u32> {
        self.get_hashed(hash_of(name), name, rows)
    }

    fn get_hashed(&self, hash: u64, name: &str, rows: &[NameRow]) -> Option<u32> {
        let number = *self.by_hash.get(&hash)?;
        let is_same = rows.get(number as usize).is_some_and(|row| *row.name == *name);
        if is_same { Some(number) } else { self.others.get(name).copied() }
    }

    /// Adds a name that is not known yet.
    pub(super) fn insert(&mut self, name: &str, number: u32) {
        self.insert_hashed(hash_of(name), name, number);
    }

    fn insert_hashed(&mut self, hash: u64, name: &str, number: u32) {
        if *self.by_hash.entry(hash).or_insert(number) != number {
            self.others.insert(name.into(), number);
        }
    }

    /// Memory use in bytes, including allocations.
    pub(super) fn size_bytes(&self) -> usize {
        let others: usize = self.others.keys().map(|name| name.len()).sum();
        self.by_hash.capacity() * (size_of::<(u64, u32)>() + 1)
            + self.others.capacity() * (size_of::<(Box<str>, u32)>() + 1)
            + others
    }
}

/// The hash of a name. A request looks up thousands of paths and their parts.
fn hash_of(name: &str) -> u64 {
    FixedState::default().hash_one(name)
}

#[cfg(test)]
mod tests {
    use super::super::NameLedger;
    use super::super::mentions::{Mention, MentionPlace};
    use super::*;
    use ctxhost_text::identifiers::{Identifier, IdentifierKind};

    #[test]
    fn names_with_the_same_hash_have_numbers_of_their_own() {
        let mut ledger = NameLedger::default();
        let mut entry = ledger.begin_entry();
        for text in ["first.rs", "second.rs"] {
            let kind = IdentifierKind::File;
            let identifier = Identifier { text, kind, start: 0 };
            entry.add_mention(Mention::new(&identifier, 1.0, MentionPlace::Text));
        }
        entry.finish();
        let mut numbers = NameNumbers::default();
        numbers.insert_hashed(7, "first.rs", 0);
        numbers.insert_hashed(7, "second.rs", 1);
        let number_of = |hash, name| numbers.get_hashed(hash, name, &ledger.rows);
        assert_eq!(number_of(7, "first.rs"), Some(0));
        assert_eq!(number_of(7, "second.rs"), Some(1));
        assert_eq!(number_of(7, "third.rs"), None);
        assert_eq!(number_of(8, "first.rs"), None);
    }
}
