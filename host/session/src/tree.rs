//! The tree of records: who follows whom, and where the session stands.

use std::collections::HashMap;

use super::record::Record;

/// Positions of records, by id and by parent.
///
/// A parent always stands before its child, so no walk can run in a circle.
#[derive(Clone, Debug, Default)]
pub(super) struct RecordTree {
    positions: HashMap<String, usize>,
    parents: Vec<Option<usize>>,
    leaf: Option<usize>,
}

impl RecordTree {
    /// Whether an id is taken.
    pub(super) fn contains(&self, id: &str) -> bool {
        self.positions.contains_key(id)
    }

    /// The position of a record.
    pub(super) fn position(&self, id: &str) -> Option<usize> {
        self.positions.get(id).copied()
    }

    /// Where the session stands: the next record follows this one.
    pub(super) fn leaf(&self) -> Option<usize> {
        self.leaf
    }

    /// Goes to a record, or before the first one.
    pub(super) fn set_leaf(&mut self, position: Option<usize>) {
        self.leaf = position;
    }

    /// Adds the next record behind `parent` and goes there.
    pub(super) fn push(&mut self, record: &Record, parent: Option<usize>) {
        let position = self.parents.len();
        self.positions.insert(record.id().to_owned(), position);
        self.parents.push(parent);
        self.leaf = Some(position);
    }

    /// Positions from the root to where the session stands.
    pub(super) fn path(&self) -> Vec<usize> {
        self.path_to(self.leaf)
    }

    /// Positions from the root to a record.
    pub(super) fn path_to(&self, position: Option<usize>) -> Vec<usize> {
        let mut path: Vec<usize> = self.backwards_from(position).collect();
        path.reverse();
        path
    }

    /// Positions from where the session stands back to the root.
    pub(super) fn path_backwards(&self) -> impl Iterator<Item = usize> {
        self.backwards_from(self.leaf)
    }

    fn backwards_from(&self, position: Option<usize>) -> impl Iterator<Item = usize> {
        std::iter::successors(position, |at| self.parents.get(*at).copied().flatten())
    }

    /// Positions from a record back to the root.
    pub(super) fn path_backwards_from(&self, position: usize) -> impl Iterator<Item = usize> {
        std::iter::successors(Some(position), |at| self.parents.get(*at).copied().flatten())
    }

    /// Positions of the records that nothing follows, in file order.
    pub(super) fn leaves(&self) -> Vec<usize> {
        let mut is_parent = vec![false; self.parents.len()];
        for parent in self.parents.iter().flatten() {
            if let Some(mark) = is_parent.get_mut(*parent) {
                *mark = true;
            }
        }
        let leaf = |(at, is_parent): (usize, bool)| (!is_parent).then_some(at);
        is_parent.into_iter().enumerate().filter_map(leaf).collect()
    }
}
