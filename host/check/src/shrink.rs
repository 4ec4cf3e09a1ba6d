//! The smallest history that still breaks the same rule: halves first, then single entries, then long texts.
//!
//! Every try is a child of its own, so that a history at which the engine takes its process with it can
//! become smaller, too.

use std::time::Instant;

use super::history::HistoryCut;
use super::settings::{SHRINK_STEPS, SHRINK_TIME};

/// Looks for the largest cut after which `fails` still answers a fault. `len` entries, `is_long` for those
/// whose text could become shorter.
pub(super) fn shrink(
    len: usize,
    is_long: impl Fn(usize) -> bool,
    fails: impl FnMut(&HistoryCut) -> bool,
) -> HistoryCut {
    let mut search =
        ShrinkSearch { fails, steps: 0, began: Instant::now(), cut: HistoryCut::default() };
    let mut size = len.div_ceil(2);
    while size > 0 && search.has_budget() {
        let before = search.cut.clone();
        search.leave_out(len, size);
        // A pass that took something away may have made room for another of its size.
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
    began: Instant,
    cut: HistoryCut,
}

impl<F: FnMut(&HistoryCut) -> bool> ShrinkSearch<F> {
    fn has_budget(&self) -> bool {
        self.steps < SHRINK_STEPS && self.began.elapsed() < SHRINK_TIME
    }

    /// Tries to do without runs of `size` entries of those that are left, the newest first: what a
    /// history ends in is seldom what it needs.
    fn leave_out(&mut self, len: usize, size: usize) {
        let left: Vec<usize> = (0..len).filter(|at| !self.cut.without.contains(at)).collect();
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
    fn what_is_not_needed_goes() {
        let needed = [3, 17];
        let cut = shrink(40, |at| at == 17, |cut| needed.iter().all(|n| !cut.without.contains(n)));
        let left: Vec<usize> = (0..40).filter(|at| !cut.without.contains(at)).collect();
        assert_eq!((left, cut.short), (vec![3, 17], vec![17]));
    }

    #[test]
    fn a_fault_that_needs_no_history_has_none() {
        assert_eq!(shrink(5, |_| true, |_| true).without, [0, 1, 2, 3, 4]);
    }

    #[test]
    fn what_needs_everything_keeps_everything() {
        let cut = shrink(9, |_| false, |cut| cut.without.is_empty());
        assert_eq!(cut, HistoryCut::default());
    }
}
