//! Matches a request whose client has left out a part of its history: tool calls with their results, or thinking.
//!
//! ```text
//!  known    q1 [c r] a1  q2 [c r] [c r] a2  q3 c r
//!  request  q1       a1  q2             a2  q3 c r a3 q4
//! ```
//!
//! The engine gets what the client still sends; the session keeps the rest. Each question and each
//! final answer must remain. As tool calls are what distinguishes runs of one task, the answers that remain must prove
//! the identity.

use std::collections::HashSet;
use std::ops::Range;

use super::known_items::{KnownItem, KnownItems};
use super::matching::HistoryRewrite;
use super::seeded_hash::{RequestItems, SeededHash};
use super::traits::ItemAuthor;
use ctxhost_dialects::inbound::EntryLocation;
use ctxhost_session::{Record, RecordBody, RecordKind, Session, parse_context_edit};

/// What a request lacks of the known items.
#[derive(Debug, Default)]
struct LeftOut {
    /// Known items.
    removed: Vec<Range<usize>>,
    /// Items of the request that are answers without their calls.
    without_calls: Vec<usize>,
}

impl KnownItems {
    /// Matches a request that lacks tool calls with their results, or thinking.
    pub(super) fn match_left_out(
        &self,
        request: &mut RequestItems<'_>,
        is_unanswered: bool,
    ) -> Option<HistoryRewrite> {
        let left_out = self.left_out(request)?;
        let rewrite = self.rewrite_without(left_out, request, is_unanswered)?;
        rewrite.1.proves_identity(request).then_some(rewrite.0)
    }

    /// Whether a request has an answer of this conversation with a random call id, which no other conversation has.
    pub fn shares_call_id(&self, request: &mut RequestItems<'_>) -> bool {
        let answers = self.items.iter().filter(|known| known.is_from(ItemAuthor::Model));
        let known: HashSet<SeededHash> = answers.map(|known| known.canonical.hash).collect();
        (0..request.len()).rev().any(|at| {
            request.canonical_hash(at).is_some_and(|hash| known.contains(&hash))
                && request.has_random_id(at)
        })
    }

    /// The items that a request does not have; `None` if it lacks a question, a final answer, or results of a call that
    /// it has.
    fn left_out(&self, request: &mut RequestItems<'_>) -> Option<LeftOut> {
        let answered = self.answered_items();
        let LeftOut { mut removed, mut without_calls } = LeftOut::default();
        let (mut number, mut at) = (0, 0);
        // Whether the newest known items are left out: then the request must have the answer that they led to.
        let mut is_end_removed = false;
        while let Some((items, _)) = self.groups.get(number) {
            if let Some((matched, thinking)) = self.match_group(request, items.clone(), at) {
                removed.extend(thinking);
                (at, number, is_end_removed) = (at + matched, number + 1, false);
            } else if let Some(after) = self.tool_round(number) {
                let (mut start, end) = (items.start, self.groups.get(after - 1)?.0.end);
                is_end_removed = !self.is_call_left_out(request, number, at);
                if !is_end_removed {
                    without_calls.push(at);
                    (start, at) = (items.end, at + 1);
                }
                match removed.last_mut().filter(|last| last.end == start) {
                    Some(last) => last.end = end,
                    None => removed.push(start..end),
                }
                number = after;
            } else if items.start < answered {
                return None;
            } else {
                break;
            }
        }
        if is_end_removed && !is_final_answer(request, at) {
            return None;
        }
        Some(LeftOut { removed, without_calls })
    }

    /// Whether the request has the text of the answer in this group, without the calls that follow it. It does not if
    /// the item is a later one.
    fn is_call_left_out(&self, request: &mut RequestItems<'_>, number: usize, at: usize) -> bool {
        let Some((items, _)) = self.groups.get(number) else { return false };
        let known = self.items.get(items.start).and_then(|known| known.canonical.traits);
        let now = request.canonical(at).and_then(|now| now.traits);
        let (Some(known), Some(now)) = (known, now) else { return false };
        let next = self.groups.get(number + 1).and_then(|(items, _)| self.items.get(items.start));
        let is_one = items.len() == 1 && next.is_some_and(|next| next.is_from(ItemAuthor::Tool));
        if !is_one || now.bytes >= known.bytes || !request.is_answer_without_calls(at) {
            return false;
        }
        let mut later = number;
        while let Some(after) = self.tool_round(later) {
            later = after;
            match self.groups.get(later) {
                Some((items, _)) if self.match_group(request, items.clone(), at).is_some() => {
                    return false;
                }
                Some(_) => {}
                None => return false,
            }
        }
        true
    }

    /// The number of request items from `at` on that are this group, and the items of thinking that they lack.
    fn match_group(
        &self,
        request: &mut RequestItems<'_>,
        items: Range<usize>,
        at: usize,
    ) -> Option<(usize, Vec<Range<usize>>)> {
        let (mut matched, mut thinking) = (0, Vec::new());
        for known in items.clone() {
            if self.may_be_item(request, known, at + matched) {
                matched += 1;
            } else if items.len() > 1 && self.is_thinking(request, known) {
                thinking.push(known..known + 1);
            } else {
                return None;
            }
        }
        (matched > 0).then_some((matched, thinking))
    }

    fn may_be_item(&self, request: &mut RequestItems<'_>, known: usize, at: usize) -> bool {
        if self.is_same(request, known, at) {
            return true;
        }
        let (Some(known), Some(now)) = (self.items.get(known), request.canonical(at)) else {
            return false;
        };
        known.may_become(now)
    }

    /// Whether a known item has neither text nor calls.
    fn is_thinking(&self, request: &RequestItems<'_>, known: usize) -> bool {
        let traits = self.items.get(known).and_then(|known| known.canonical.traits);
        traits.is_some_and(|traits| request.is_thinking(traits))
    }

    /// The group after the round of calls and results that starts with this group; `None` if none does.
    fn tool_round(&self, number: usize) -> Option<usize> {
        let author = |at: usize| Some(self.items.get(at)?.canonical.traits?.author);
        let first = self.groups.get(number)?.0.start;
        // Results without the call, or the second part of an answer, are not a round.
        if first.checked_sub(1).and_then(author) == Some(ItemAuthor::Model) {
            return None;
        }
        let is_all = |number: usize, is_one: &dyn Fn(&KnownItem) -> bool| {
            let items =
                self.groups.get(number).and_then(|(items, _)| self.items.get(items.clone()));
            items.is_some_and(|items| items.iter().all(is_one))
        };
        let is_answer = |known: &KnownItem| known.is_from(ItemAuthor::Model);
        let is_result = |known: &KnownItem| {
            let traits = known.canonical.traits;
            traits.is_some_and(|it| it.author == ItemAuthor::Tool && !it.has_user_text())
        };
        let mut after = number;
        while is_all(after, &is_answer) {
            after += 1;
        }
        let results = after;
        while is_all(after, &is_result) {
            after += 1;
        }
        (number < results && results < after).then_some(after)
    }

    /// The rewrite by which the items without `removed` become the request, and these items; `None` if they do not.
    fn rewrite_without(
        &self,
        left_out: LeftOut,
        request: &mut RequestItems<'_>,
        is_unanswered: bool,
    ) -> Option<(HistoryRewrite, KnownItems)> {
        let LeftOut { removed, without_calls } = left_out;
        removed.first()?;
        let mut rest = KnownItems::default();
        rest.items.clone_from(&self.items);
        rest.groups.clone_from(&self.groups);
        let shrunk = rest.remove_items(&removed);
        for at in &without_calls {
            // As the request has them: their text is compared later.
            let known = rest.items.get_mut(*at)?;
            (known.raw, known.canonical) = (request.raw_hash(*at), request.canonical(*at)?);
        }
        let common = rest.common_items(request);
        let mut rewrite = if common == rest.len() {
            HistoryRewrite { kept: common, ..HistoryRewrite::default() }
        } else {
            rest.rewrite(request, common, is_unanswered)?
        };
        // The entry of an answer without its thinking is another text.
        let is_kept = |at: &usize| *at < rewrite.kept && !rewrite.replaced.contains(at);
        let shrunk = shrunk.into_iter().chain(without_calls.iter().copied());
        let shrunk: Vec<usize> = shrunk.filter(is_kept).collect();
        rewrite.replaced.extend(shrunk);
        rewrite.replaced.sort_unstable();
        let is_proven_by_answers = true;
        Some((HistoryRewrite { removed, without_calls, is_proven_by_answers, ..rewrite }, rest))
    }

    /// Removes items, and groups that have none left. Returns the first item of each group that has fewer now.
    fn remove_items(&mut self, removed: &[Range<usize>]) -> Vec<usize> {
        let marks = removal_marks(removed, self.items.len());
        let is_removed = |at: usize| marks.get(at).copied().unwrap_or(false);
        let (mut from, mut shrunk) = (0, Vec::new());
        let mut left = Vec::with_capacity(self.groups.len());
        for (items, entries) in self.groups.drain(..) {
            let count = items.clone().filter(|at| !is_removed(*at)).count();
            if count > 0 && count < items.len() {
                shrunk.push(from);
            }
            if count > 0 {
                left.push((from..from + count, entries));
            }
            from += count;
        }
        self.groups = left;
        let mut at = 0;
        self.items.retain(|_| {
            at += 1;
            !is_removed(at - 1)
        });
        let before = |item: usize| (0..item).filter(|at| !is_removed(*at)).count();
        self.summary = self.summary.filter(|item| !is_removed(*item)).map(before);
        shrunk
    }

    /// Removes items that a record names. `None` if they are not there.
    pub(super) fn apply_removed(&mut self, removed: &[(usize, usize)]) -> Option<()> {
        let ranges: Vec<Range<usize>> = removed.iter().map(|(from, to)| *from..*to).collect();
        let is_valid = ranges.iter().all(|range| range.end <= self.items.len());
        if !ranges.is_empty() && is_valid {
            self.remove_items(&ranges);
        }
        is_valid.then_some(())
    }

    /// Removes items and the entries of groups that have none left; returns the ids of these entries.
    pub fn remove(&mut self, removed: &[Range<usize>], session: &Session) -> Vec<String> {
        if removed.is_empty() {
            return Vec::new();
        }
        let marks = removal_marks(removed, self.items.len());
        let is_removed = |at: usize| marks.get(at).copied().unwrap_or(false);
        let mut ids = std::mem::take(&mut self.entries).into_iter();
        let (mut kept, mut gone) = (Vec::new(), Vec::new());
        for (items, count) in &self.groups {
            let of_group = ids.by_ref().take(*count);
            if items.clone().all(is_removed) {
                gone.extend(of_group);
            } else {
                kept.extend(of_group);
            }
        }
        self.remove_items(removed);
        self.entries = kept;
        self.locate_entries(gone.iter(), session);
        gone
    }

    /// Locates the entries in the groups anew, after some are gone.
    pub(super) fn locate_entries<'a>(
        &mut self,
        gone: impl Iterator<Item = &'a String>,
        session: &Session,
    ) {
        self.locations.clear();
        let mut ids = self.entries.iter();
        for (group, (_, count)) in self.groups.iter().enumerate() {
            for (entry, id) in ids.by_ref().take(*count).enumerate() {
                self.locations.insert(id.clone(), EntryLocation { group, entry });
            }
        }
        let entries = gone.filter_map(|id| session.record(id)?.to_entry());
        let tokens: u64 = entries.map(|entry| entry.tokens).sum();
        self.client_tokens = self.client_tokens.saturating_sub(tokens);
    }

    /// Edits that hide the entries of a branch, up to a record, that are not known any more. An earlier branch may
    /// have them before the records that hide them.
    pub fn hide_unknown(&self, session: &Session, until: Option<&str>) -> Vec<RecordBody> {
        let known: HashSet<&str> = self.entries().iter().map(String::as_str).collect();
        let (mut hidden, mut unknown) = (HashSet::new(), Vec::new());
        for record in session.branch() {
            match record.kind() {
                RecordKind::Message | RecordKind::CustomMessage if !known.contains(record.id()) => {
                    unknown.push(record.id());
                }
                RecordKind::ContextEdit => hidden.extend(hidden_by(record)),
                _ => {}
            }
            if until == Some(record.id()) {
                break;
            }
        }
        unknown.retain(|id| !hidden.contains(*id));
        unknown.into_iter().map(|id| RecordBody::context_edit(id, None)).collect()
    }
}

/// Whether each of so many items is in the ranges.
fn removal_marks(removed: &[Range<usize>], items: usize) -> Vec<bool> {
    let mut marks = vec![false; items];
    for range in removed {
        if let Some(part) = marks.get_mut(range.clone()) {
            part.fill(true);
        }
    }
    marks
}

/// The entry that a record hides.
fn hidden_by(record: &Record) -> Option<String> {
    let (target, content) = parse_context_edit(record)?;
    content.is_none().then_some(target)
}

/// Whether the items from `at` on are an answer without calls, and a question.
fn is_final_answer(request: &mut RequestItems<'_>, at: usize) -> bool {
    let mut author = |at: usize| Some(request.canonical(at)?.traits?.author);
    let mut end = at;
    while author(end) == Some(ItemAuthor::Model) {
        end += 1;
    }
    end > at && matches!(author(end), Some(ItemAuthor::User | ItemAuthor::Client))
}
