//! The tree of records: parents and the leaf.

use std::collections::HashMap;

use super::record::Record;

/// Positions of records, by id and by parent.
///
/// Parents precede their children, so there are no cycles.
#[derive(Clone, Debug, Default)]
pub(super) struct RecordTree {
    positions: HashMap<String, usize>,
    parents: Vec<Option<usize>>,
    leaf: Option<usize>,
}

impl RecordTree {
    /// Whether there is a record with this id.
    pub(super) fn contains(&self, id: &str) -> bool {
        self.positions.contains_key(id)
    }

    /// The position of a record.
    pub(super) fn position(&self, id: &str) -> Option<usize> {
        self.positions.get(id).copied()
    }

    /// The record that the next one follows.
    pub(super) fn leaf(&self) -> Option<usize> {
        self.leaf
    }

    /// Sets the leaf; `None` is before the first record.
    pub(super) fn set_leaf(&mut self, position: Option<usize>) {
        self.leaf = position;
    }

    /// Adds the next record below `parent` and makes it the leaf.
    pub(super) fn push(&mut self, record: &Record, parent: Option<usize>) {
        let position = self.parents.len();
        self.positions.insert(record.id().to_owned(), position);
        self.parents.push(parent);
        self.leaf = Some(position);
    }

    /// Positions from the root to the leaf.
    pub(super) fn path(&self) -> Vec<usize> {
        self.path_to(self.leaf)
    }

    /// Positions from the root to a record.
    pub(super) fn path_to(&self, position: Option<usize>) -> Vec<usize> {
        let mut path: Vec<usize> =
            position.into_iter().flat_map(|at| self.path_backwards_from(at)).collect();
        path.reverse();
        path
    }

    /// Positions from the leaf back to the root.
    pub(super) fn path_backwards(&self) -> impl Iterator<Item = usize> {
        self.leaf.into_iter().flat_map(|at| self.path_backwards_from(at))
    }

    /// Positions from a record back to the root.
    pub(super) fn path_backwards_from(&self, position: usize) -> impl Iterator<Item = usize> {
        std::iter::successors(Some(position), |at| self.parents.get(*at).copied().flatten())
    }

    /// Positions of records without children, in file order.
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
