//! Which names only replaced rules have: counted, so that a rule costs the same however many there are.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;

/// Names of replaced rules that no valid rule has.
#[derive(Debug)]
pub(super) struct WithdrawnNames<N> {
    /// Number of valid rules with each name.
    valid: HashMap<N, u32>,
    withdrawn: HashSet<N>,
}

impl<N: Clone + Eq + Hash> WithdrawnNames<N> {
    pub(super) fn withdrawn(&self) -> &HashSet<N> {
        &self.withdrawn
    }

    /// Adds a name of a valid rule.
    pub(super) fn add_valid(&mut self, name: N) {
        self.withdrawn.remove(&name);
        *self.valid.entry(name).or_default() += 1;
    }

    /// Takes a name of a rule that is replaced from the valid ones.
    pub(super) fn withdraw(&mut self, name: N) {
        match self.valid.get_mut(&name) {
            Some(count) if *count > 1 => *count -= 1,
            _ => {
                self.valid.remove(&name);
                self.withdrawn.insert(name);
            }
        }
    }
}

impl<N> Default for WithdrawnNames<N> {
    fn default() -> WithdrawnNames<N> {
        WithdrawnNames { valid: HashMap::new(), withdrawn: HashSet::new() }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_name_is_withdrawn_where_rules_had_it_and_no_valid_one_has_it(
            rules in prop::collection::vec((prop::collection::btree_set(0u8..6, 0..4), any::<bool>()), 0..12),
        ) {
            let mut names = WithdrawnNames::default();
            for (rule, _) in &rules {
                rule.iter().for_each(|name| names.add_valid(*name));
            }
            let replaced = |is_replaced: bool| rules.iter().filter(move |rule| rule.1 == is_replaced);
            for (rule, _) in replaced(true) {
                rule.iter().for_each(|name| names.withdraw(*name));
            }
            let names_of = |is_replaced| -> HashSet<u8> { replaced(is_replaced).flat_map(|rule| rule.0.clone()).collect() };
            let expected: HashSet<u8> = names_of(true).difference(&names_of(false)).copied().collect();
            prop_assert_eq!(names.withdrawn(), &expected);
        }
    }
}
