//! Aligns a request with a conversation of which its client has changed messages anywhere: cut, joined, written as text,
//! summarized or left out.
//!
//! ```text
//!  known    q1 a1 q2 [c r] a2 q3 a3 q4         S = alignment: equal messages in order, and runs between them
//!  request  S     q2 t     a2 q3 a3 q4 a4 q5   runs: q1 a1 → S, c r → t
//! ```
//!
//! Only hashes are compared here. Whether a run is an edit of the other one, and whether the equal answers behind
//! the others prove the identity, is decided with the texts of the session.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use super::known_items::{KnownItem, KnownItems};
use super::matching::HistoryRewrite;
use super::seeded_hash::{RequestItems, SeededHash};
use super::splice::ItemSplice;
use super::traits::ItemAuthor;

/// The newest answers of which one must be in a request, byte for byte, before more of it is compared.
const NEWEST_ANSWERS: usize = 16;

/// Whole groups of known items, and the items that a request has in their place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChangedRun {
    /// Known items.
    pub known: Range<usize>,
    /// Items of the request.
    pub now: Range<usize>,
}

/// How good an alignment is: the equal items behind the last change, and all equal ones.
pub(crate) type AlignmentRank = (usize, usize);

impl KnownItems {
    /// How many of the newest answers a request may have.
    pub(super) fn newest_answers_in(&self, raw_hashes: &HashSet<SeededHash>) -> usize {
        let answers = self.items.iter().rev().filter(|known| known.is_from(ItemAuthor::Model));
        let answers = answers.take(NEWEST_ANSWERS);
        answers.filter(|known| known.raw.is_some_and(|raw| raw_hashes.contains(&raw))).count()
    }

    /// Aligns a request. The newest answer is in it, or in the last run. `None` if the request cannot be an edit of this
    /// conversation.
    pub(super) fn align(
        &self,
        request: &mut RequestItems<'_>,
        is_unanswered: bool,
    ) -> Option<(HistoryRewrite, AlignmentRank)> {
        let answered = self.answered_items();
        if answered == 0 {
            return None;
        }
        let equal = self.equal_items(request);
        let (mut changes, known_end, now_end) = self.changes_between(&equal);
        let equal = equal.iter().flatten().count();
        let mut found = None;
        if known_end >= answered {
            found = self.rewrite_changed(&changes, request, is_unanswered);
        }
        if found.is_none() && known_end < self.items.len() {
            // A client may have changed the newest messages as well, and appended the answer to them.
            let now = now_end..if known_end < answered {
                newest_answer(request)?
            } else {
                next_answer(request, now_end)?
            };
            if now.is_empty() {
                return None;
            }
            changes.push(ChangedRun { known: known_end..self.items.len(), now });
            found = self.rewrite_changed(&changes, request, is_unanswered);
        }
        let rewrite = found?;
        let changed = rewrite.changes.last().map_or(0, |run| run.now.end);
        let rank = (rewrite.kept.saturating_sub(changed), equal);
        Some((rewrite, rank))
    }

    /// For each known item, the item of the request that is equal to it. Both are in order.
    fn equal_items(&self, request: &mut RequestItems<'_>) -> Vec<Option<usize>> {
        let known: Vec<SeededHash> = self.items.iter().map(|known| known.canonical.hash).collect();
        // The byte hash spares parsing the item.
        let by_raw = self.items.iter().filter_map(|known| Some((known.raw?, known.canonical.hash)));
        let by_raw: HashMap<SeededHash, SeededHash> = by_raw.collect();
        let now: Vec<SeededHash> = (0..request.len())
            .filter_map(|at| {
                let raw = request.raw_hash(at)?;
                by_raw.get(&raw).copied().or_else(|| request.canonical_hash(at))
            })
            .collect();
        let mut equal = vec![None; known.len()];
        for (at, other) in longest_increasing(&unique_pairs(&known, &now)) {
            if let Some(slot) = equal.get_mut(at) {
                *slot = Some(other);
            }
        }
        extend_forwards(&known, &now, &mut equal);
        extend_backwards(&known, &now, &mut equal);
        equal
    }

    /// The runs between groups whose items are all equal, and the ends of the last such group.
    fn changes_between(&self, equal: &[Option<usize>]) -> (Vec<ChangedRun>, usize, usize) {
        let (mut changes, mut known_end, mut now_end) = (Vec::new(), 0, 0);
        for (items, _) in &self.groups {
            let Some(at) = equal.get(items.start).copied().flatten() else { continue };
            let are_equal =
                items.clone().zip(at..).all(|(known, now)| equal.get(known) == Some(&Some(now)));
            if !are_equal {
                continue;
            }
            if items.start > known_end || at > now_end {
                changes.push(ChangedRun { known: known_end..items.start, now: now_end..at });
            }
            (known_end, now_end) = (items.end, at + items.len());
        }
        (changes, known_end, now_end)
    }

    /// The rewrite with these changes; `None` if a client cannot have made them.
    fn rewrite_changed(
        &self,
        changes: &[ChangedRun],
        request: &mut RequestItems<'_>,
        is_unanswered: bool,
    ) -> Option<HistoryRewrite> {
        if !changes.iter().all(|run| self.is_possible(run, request)) {
            return None;
        }
        let changes: Vec<ChangedRun> =
            changes.iter().flat_map(|run| self.pairs_of(run, request)).collect();
        let splices: Vec<ItemSplice> =
            changes.iter().map(|run| ItemSplice::unparsed(run, request)).collect::<Option<_>>()?;
        let mut rest = KnownItems::default();
        rest.items.clone_from(&self.items);
        rest.groups.clone_from(&self.groups);
        rest.splice_items(&splices)?;
        let common = rest.common_items(request);
        let rewrite = if common == rest.len() {
            HistoryRewrite { kept: common, ..HistoryRewrite::default() }
        } else {
            rest.rewrite(request, common, is_unanswered)?
        };
        Some(HistoryRewrite { changes, is_aligned: true, is_proven_by_answers: true, ..rewrite })
    }

    /// Whether a client may have written the new items: they have no calls or results of their own, and what is added
    /// between known items is neither from the user nor from the model.
    fn is_possible(&self, run: &ChangedRun, request: &mut RequestItems<'_>) -> bool {
        let mut authors = run
            .now
            .clone()
            .map(|at| Some(request.canonical(at)?.traits?.author))
            .collect::<Vec<_>>();
        authors.dedup();
        if run.known.is_empty() && authors.iter().any(|author| *author != Some(ItemAuthor::Client))
        {
            return false;
        }
        let ids = run.now.clone().flat_map(|at| request.call_ids(at));
        let mut ids = ids.into_iter();
        ids.all(|id| self.tool_of(&id).is_some())
    }

    /// A run of as many messages of the same authors is as many changes.
    fn pairs_of(&self, run: &ChangedRun, request: &mut RequestItems<'_>) -> Vec<ChangedRun> {
        let author = |known: &KnownItem| Some(known.canonical.traits?.author);
        let is_pair = |(known, now): (usize, usize), request: &mut RequestItems<'_>| {
            let known = self.items.get(known).and_then(author);
            known.is_some()
                && known == request.canonical(now).and_then(|now| Some(now.traits?.author))
        };
        let first = self.groups.partition_point(|(items, _)| items.start < run.known.start);
        let groups = self.groups.iter().skip(first).map(|(items, _)| items);
        let groups = groups.take_while(|items| items.start < run.known.end);
        let are_pairs = run.known.len() == run.now.len()
            && groups.count() == run.known.len()
            && run.known.clone().zip(run.now.clone()).all(|pair| is_pair(pair, request));
        if !are_pairs {
            return vec![run.clone()];
        }
        let pairs = run.known.clone().zip(run.now.clone());
        pairs
            .map(|(known, now)| ChangedRun { known: known..known + 1, now: now..now + 1 })
            .collect()
    }

    /// The newest answer.
    pub fn newest_answer(&self) -> Option<usize> {
        self.answered_items().checked_sub(1)
    }

    /// Whether two results answer the same calls.
    pub fn is_same_call(&self, known: usize, request: &mut RequestItems<'_>, now: usize) -> bool {
        let known = self.items.get(known).and_then(|known| known.canonical.traits);
        let now = request.canonical(now).and_then(|now| now.traits);
        known.is_some() && known.map(|it| it.essence) == now.map(|it| it.essence)
    }

    /// Whether a client may have made an item of a known one without a change of its meaning.
    pub fn is_edit_of(&self, known: usize, request: &mut RequestItems<'_>, now: usize) -> bool {
        let known = self.items.get(known);
        known.is_some_and(|known| request.canonical(now).is_some_and(|now| known.may_become(now)))
    }

    /// The authors of known items.
    pub fn authors(&self, items: Range<usize>) -> Vec<Option<ItemAuthor>> {
        let items = self.items.get(items).unwrap_or_default();
        items.iter().map(|known| Some(known.canonical.traits?.author)).collect()
    }
}

/// Where the last answer of a request begins, if it does not end with it.
fn newest_answer(request: &mut RequestItems<'_>) -> Option<usize> {
    let is_model = |request: &mut RequestItems<'_>, at: usize| {
        request
            .canonical(at)
            .and_then(|item| item.traits)
            .is_some_and(|it| it.author == ItemAuthor::Model)
    };
    let last = (0..request.len()).rev().find(|at| is_model(request, *at))?;
    let before = (0..last).rev().take_while(|at| is_model(request, *at)).count();
    Some(last - before)
}

/// The next answer of a request from an item on.
fn next_answer(request: &mut RequestItems<'_>, from: usize) -> Option<usize> {
    (from..request.len()).find(|at| {
        let traits = request.canonical(*at).and_then(|item| item.traits);
        traits.is_some_and(|traits| traits.author == ItemAuthor::Model)
    })
}

/// The places of hashes that occur once in both lists, in the order of the first one.
fn unique_pairs(known: &[SeededHash], now: &[SeededHash]) -> Vec<(usize, usize)> {
    let places = |list: &[SeededHash]| {
        let mut places: HashMap<SeededHash, Option<usize>> = HashMap::with_capacity(list.len());
        for (at, hash) in list.iter().enumerate() {
            places.entry(*hash).and_modify(|place| *place = None).or_insert(Some(at));
        }
        places
    };
    let (in_known, in_now) = (places(known), places(now));
    let pair = |(at, hash): (usize, &SeededHash)| {
        in_known.get(hash).copied().flatten()?;
        Some((at, in_now.get(hash).copied().flatten()?))
    };
    known.iter().enumerate().filter_map(pair).collect()
}

/// The longest part of the pairs, which are sorted by the first number, in which the second ones increase as well.
fn longest_increasing(pairs: &[(usize, usize)]) -> Vec<(usize, usize)> {
    // The last pair of the best part of each length, and for each pair the one before it.
    let (mut ends, mut before): (Vec<usize>, Vec<Option<usize>>) = (Vec::new(), Vec::new());
    let second = |at: &usize| pairs.get(*at).map(|(_, second)| *second);
    for (at, (_, now)) in pairs.iter().enumerate() {
        let length = ends.partition_point(|end| second(end) < Some(*now));
        before.push(length.checked_sub(1).and_then(|at| ends.get(at)).copied());
        match ends.get_mut(length) {
            Some(end) => *end = at,
            None => ends.push(at),
        }
    }
    let mut part = Vec::with_capacity(ends.len());
    let mut next = ends.last().copied();
    while let Some(at) = next {
        part.extend(pairs.get(at));
        next = before.get(at).copied().flatten();
    }
    part.reverse();
    part
}

/// Adds equal items that follow equal ones, and those at the start.
fn extend_forwards(known: &[SeededHash], now: &[SeededHash], equal: &mut [Option<usize>]) {
    let mut next = Some(0);
    for (at, hash) in known.iter().enumerate() {
        let Some(slot) = equal.get_mut(at) else { return };
        if slot.is_none() && next.and_then(|next| now.get(next)) == Some(hash) {
            *slot = next;
        }
        next = slot.map(|place| place + 1);
    }
}

/// Adds equal items that precede equal ones.
fn extend_backwards(known: &[SeededHash], now: &[SeededHash], equal: &mut [Option<usize>]) {
    let mut used = vec![false; now.len()];
    for place in equal.iter().flatten() {
        if let Some(used) = used.get_mut(*place) {
            *used = true;
        }
    }
    let mut next: Option<usize> = None;
    for at in (0..known.len()).rev() {
        let Some(slot) = equal.get_mut(at) else { continue };
        if slot.is_none() {
            let place = next.and_then(|next| next.checked_sub(1));
            let is_free = place.is_some_and(|place| used.get(place) == Some(&false));
            if is_free && place.and_then(|place| now.get(place)) == known.get(at) {
                *slot = place;
            }
        }
        next = *slot;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hashes(text: &str) -> Vec<SeededHash> {
        text.chars().map(|it| SeededHash::new(7, &it.to_string())).collect()
    }

    fn aligned(known: &str, now: &str) -> String {
        let (known, now) = (hashes(known), hashes(now));
        let mut equal = vec![None; known.len()];
        for (at, other) in longest_increasing(&unique_pairs(&known, &now)) {
            equal[at] = Some(other);
        }
        extend_forwards(&known, &now, &mut equal);
        extend_backwards(&known, &now, &mut equal);
        let places: Vec<usize> = equal.iter().flatten().copied().collect();
        assert!(places.windows(2).all(|pair| pair[0] < pair[1]), "{places:?}");
        equal.iter().map(|it| it.map_or('-', |at| char::from(b'0' + at as u8))).collect()
    }

    #[test]
    fn equal_items_are_found_in_order() {
        for (known, now, places) in [
            ("abcd", "abcdef", "0123"),
            ("abcd", "aXcde", "0-23"),
            ("abcd", "Scde", "--12"),
            ("abcd", "cde", "--01"),
            // Items that occur twice are found beside others.
            ("aobocodo", "aobocodoe", "01234567"),
            ("aobocodo", "Xocodoe", "---12345"),
            ("oooo", "ooo", "012-"),
        ] {
            assert_eq!(aligned(known, now), places, "{known} {now}");
        }
    }
}
