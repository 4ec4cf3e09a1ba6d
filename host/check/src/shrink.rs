//! Shrinks a history that breaks a rule: removes halves, then smaller runs, then single entries, then shortens
//! texts.
//!
//! Every attempt runs in a child, so that histories at which the engine aborts can be shrunk.

use std::time::Instant;

use super::history::HistoryCut;
use super::settings::{SHRINK_STEPS, SHRINK_TIME};

/// Finds a large cut for which `fails` is true, in a history of `len` entries. `is_long` selects entries whose
/// text can be shortened.
pub(super) fn shrink(
    len: usize,
    is_long: impl Fn(usize) -> bool,
    fails: impl FnMut(&HistoryCut) -> bool,
) -> HistoryCut {
    let mut search =
        ShrinkSearch { fails, steps: 0, start: Instant::now(), cut: HistoryCut::default() };
    let mut size = len.div_ceil(2);
    while size > 0 && search.has_budget() {
        let before = search.cut.clone();
        search.leave_out(len, size);
        // A successful pass over single entries is repeated: removing one entry can make another removable.
        if search.cut == before || size > 1 {
            size /= 2;
        }
    }
    for at in (0..len).filter(|&at| is_long(at)) {
        if !search.cut.without.contains(&at) && search.has_budget() {
            search.try_with(|cut| cut.short.push(at));
        }
    }
    search.cut
}

struct ShrinkSearch<F> {
    fails: F,
    steps: usize,
    start: Instant,
    cut: HistoryCut,
}

impl<F: FnMut(&HistoryCut) -> bool> ShrinkSearch<F> {
    fn has_budget(&self) -> bool {
        self.steps < SHRINK_STEPS && self.start.elapsed() < SHRINK_TIME
    }

    /// Tries to remove runs of `size` entries.
    fn leave_out(&mut self, len: usize, size: usize) {
        // Positions refer to the uncut history, so that cuts can be combined.
        let left: Vec<usize> = (0..len).filter(|at| !self.cut.without.contains(at)).collect();
        // The newest first: the end of a history is seldom needed to reproduce a fault.
        for run in left.chunks(size).rev() {
            if !self.has_budget() {
                return;
            }
            self.try_with(|cut| cut.without.extend(run));
        }
    }

    fn try_with(&mut self, change: impl FnOnce(&mut HistoryCut)) {
        let mut cut = self.cut.clone();
        change(&mut cut);
        cut.without.sort_unstable();
        self.steps += 1;
        if (self.fails)(&cut) {
            self.cut = cut;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unneeded_entries_are_removed() {
        let needed = [3, 17];
        let cut = shrink(40, |at| at == 17, |cut| needed.iter().all(|n| !cut.without.contains(n)));
        let left: Vec<usize> = (0..40).filter(|at| !cut.without.contains(at)).collect();
        assert_eq!((left, cut.short), (vec![3, 17], vec![17]));
    }

    #[test]
    fn a_fault_without_history_removes_everything() {
        assert_eq!(shrink(5, |_| true, |_| true).without, [0, 1, 2, 3, 4]);
    }

    #[test]
    fn a_needed_history_is_not_cut() {
        let cut = shrink(9, |_| false, |cut| cut.without.is_empty());
        assert_eq!(cut, HistoryCut::default());
    }
}
