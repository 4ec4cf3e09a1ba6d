//! Matches a request against a conversation: the same history, or one that its client has changed without making it
//! another conversation.
//!
//! The model's answers decide. After the last answer a client may send something else each time (reminders, current
//! context); before it, it may have cleared results or removed thinking; at the start, it may have put a summary.
//! Histories with different questions or answers are different conversations.

use std::collections::HashSet;
use std::ops::Range;

use super::alignment::ChangedRun;
use super::known_items::{KnownItem, KnownItems};
use super::seeded_hash::{CanonicalItem, RequestItems, SeededHash};
use super::traits::{ItemAuthor, ItemTraits};

/// The most items before the newest ones in a history that its client has summarized: context, first messages,
/// summary.
pub(super) const FRONT_ITEMS: usize = 8;

/// Model answers that must match if the start does not.
const SAME_ANSWERS: usize = 2;

/// Characters of different answers by which a conversation is recognized although its first message differs.
const IDENTIFYING_CHARS: usize = 240;

/// The relation of a request to a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestMatch {
    /// It has all known items, and these new ones; none if it is a retry.
    Continues {
        /// The number of new items.
        new: usize,
    },
    /// It is the same conversation with edited items.
    Rewrites(HistoryRewrite),
    /// It ends before the known items do, after these groups.
    Within {
        /// The number of groups.
        groups: usize,
    },
    /// It differs after these groups.
    Forks {
        /// The number of groups.
        groups: usize,
    },
    /// It has no item in common.
    Unrelated,
}

/// A client's edits of a history.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HistoryRewrite {
    /// Items that the client has left out. The other fields count without them.
    pub removed: Vec<Range<usize>>,
    /// Items with a changed text.
    pub replaced: Vec<usize>,
    /// Those of them that are answers without their calls. It is the same conversation only if their text is the same.
    pub without_calls: Vec<usize>,
    /// Known user messages, and items of the request that may be a part of them. It is the same conversation only if
    /// they are, and only the session has the texts.
    pub shortened: Vec<(usize, usize)>,
    /// The same the other way round: items of the request that may be the known one and a tool result behind it.
    pub extended: Vec<(usize, usize)>,
    /// Items that are others now, in a request that is aligned. It is the same conversation only if the texts
    /// of those that the model has not answered anew are edits, and the answers behind the others prove it.
    pub changes: Vec<ChangedRun>,
    /// Whether the request was aligned.
    pub is_aligned: bool,
    /// Whether the request proves by its answers alone that it is the same conversation. Another one that matches exactly is then
    /// preferred.
    pub is_proven_by_answers: bool,
    /// The number of items that remain; the ones after them were removed.
    pub kept: usize,
}

impl KnownItems {
    /// Matches a request. `is_unanswered` says that the previous request got no answer.
    pub fn match_request(
        &self,
        request: &mut RequestItems<'_>,
        is_unanswered: bool,
    ) -> RequestMatch {
        let common = self.common_items(request);
        if common == self.items.len() && common > 0 {
            return RequestMatch::Continues { new: request.len() - common };
        }
        if let Some(rewrite) = self.rewrite(request, common, is_unanswered) {
            return RequestMatch::Rewrites(rewrite);
        }
        let groups = self.groups_before(common);
        match self.entries_of(groups) {
            0 => RequestMatch::Unrelated,
            _ if common == request.len() => RequestMatch::Within { groups },
            _ => RequestMatch::Forks { groups },
        }
    }

    /// The number of common first items.
    pub fn common_items(&self, request: &mut RequestItems<'_>) -> usize {
        (0..self.items.len()).take_while(|at| self.is_same(request, *at, *at)).count()
    }

    /// Whether the answers that are in a request identify the conversation: several different ones with enough text.
    pub(super) fn proves_identity(&self, request: &mut RequestItems<'_>) -> bool {
        self.proves_identity_from(0, request)
    }

    /// The same for the answers from an item on.
    fn proves_identity_from(&self, from: usize, request: &mut RequestItems<'_>) -> bool {
        let (mut seen, mut chars) = (HashSet::new(), 0);
        for at in from..self.answered_items() {
            let Some(traits) = self.items.get(at).and_then(|known| known.canonical.traits) else {
                continue;
            };
            if traits.author == ItemAuthor::Model
                && self.has_same_essence(request, at)
                && seen.insert(traits.essence)
            {
                chars += request.answer_chars(at);
            }
            if seen.len() >= SAME_ANSWERS && chars >= IDENTIFYING_CHARS {
                return true;
            }
        }
        false
    }

    /// Whether the answers from an item on identify the conversation, or one of them has a random call id, which no other
    /// conversation has.
    pub fn is_identified_from(&self, from: usize, request: &mut RequestItems<'_>) -> bool {
        let has_id = |at: usize, request: &RequestItems<'_>| {
            let known = self.items.get(at);
            known.is_some_and(|it| it.is_from(ItemAuthor::Model)) && request.has_random_id(at)
        };
        self.proves_identity_from(from, request)
            || (from..self.answered_items()).rev().any(|at| has_id(at, request))
    }

    /// Whether the first model answer of a request differs. Some programs use one name for all of their
    /// conversations, and many of those start with the same greeting.
    pub fn has_other_first_answer(&self, request: &mut RequestItems<'_>) -> bool {
        let common = self.common_items(request);
        let is_answer =
            |at: usize| self.items.get(at).is_some_and(|it| it.is_from(ItemAuthor::Model));
        let read = request.canonical(common).and_then(|canonical| canonical.traits);
        let is_answered = read.is_some_and(|traits| traits.author == ItemAuthor::Model);
        is_answered && is_answer(common) && !(0..common).any(is_answer)
    }

    /// Whether it has a model answer.
    pub(crate) fn has_answer(&self) -> bool {
        self.answered_items() > 0
    }

    /// The number of items that a request, which starts with a recognized summary, has in common up to the last answer;
    /// `None` if that cannot be decided.
    pub(crate) fn match_after_summary(&self, request: &mut RequestItems<'_>) -> Option<usize> {
        let last = self.answered_items().checked_sub(1)?;
        let end = (0..request.len()).rev().find(|at| self.is_same(request, last, *at))?;
        let longest = last.min(end) + 1;
        let same = (0..longest).take_while(|back| self.is_same(request, last - back, end - back));
        let same = same.count();
        let (front, before) = (end + 1 - same, last + 1 - same);
        let from = self.items.get(before..=last)?;
        let is_answered = from.iter().any(|known| known.is_from(ItemAuthor::Model));
        (is_answered && before > front && front <= FRONT_ITEMS).then_some(same)
    }

    /// The number of items up to the last model answer. Model items at the end of a request are none: the client has
    /// written the beginning of the answer that it asks for (a prefill), and sends the whole answer next.
    pub(super) fn answered_items(&self) -> usize {
        let is_model = |known: &KnownItem| known.is_from(ItemAuthor::Model);
        let end = self.items.iter().rposition(|known| !is_model(known)).unwrap_or_default();
        self.items.iter().take(end).rposition(is_model).map_or(0, |at| at + 1)
    }

    /// The number of complete groups before an item.
    pub fn groups_before(&self, items: usize) -> usize {
        self.groups.iter().take_while(|(group, _)| group.end <= items).count()
    }

    pub(super) fn is_same(&self, request: &mut RequestItems<'_>, known: usize, at: usize) -> bool {
        let (Some(known), Some(raw)) = (self.items.get(known), request.raw_hash(at)) else {
            return false;
        };
        // The byte hash decides nearly always, without parsing the item.
        known.raw == Some(raw) || request.canonical_hash(at) == Some(known.canonical.hash)
    }

    /// Whether an item has the same author, call ids, and text.
    fn has_same_essence(&self, request: &mut RequestItems<'_>, at: usize) -> bool {
        let (Some(known), Some(now)) = (self.items.get(at), request.canonical(at)) else {
            return false;
        };
        let essence = |traits: ItemTraits| (traits.author, traits.essence);
        known.canonical.traits.map(essence) == now.traits.map(essence)
    }

    /// The edits, if it is the same conversation.
    pub(super) fn rewrite(
        &self,
        request: &mut RequestItems<'_>,
        common: usize,
        is_unanswered: bool,
    ) -> Option<HistoryRewrite> {
        let answered = self.answered_items();
        if common == 0 || request.len() < answered {
            return None;
        }
        let (mut replaced, mut shortened, mut is_proven_by_answers) =
            (Vec::new(), Vec::new(), false);
        for at in common..answered {
            if self.is_same(request, at, at) {
                continue;
            }
            let is_edited = self.items.get(at)?.may_become(request.canonical(at)?)
                || at + 1 == answered && self.is_continued(request, at);
            if !is_edited && self.may_be_shortened(request, at) {
                shortened.push((at, at));
            } else if !is_edited {
                // A notice may be longer than the result that it replaces, and a client may add fields to answers.
                is_proven_by_answers = true;
                if !self.has_same_essence(request, at) || !self.proves_identity(request) {
                    return None;
                }
            }
            replaced.push(at);
        }
        let mut kept = common.max(answered);
        while kept < self.items.len() && self.is_same(request, kept, kept) {
            kept += 1;
        }
        let mut extended = Vec::new();
        if kept < self.items.len() {
            let tail = self.match_tail(request, kept, is_unanswered)?;
            shortened.extend(tail.shortened);
            extended = tail.extended;
        }
        let groups = self.groups_before(kept);
        let kept = self.groups.get(groups.checked_sub(1)?)?.0.end;
        (self.entries_of(groups) > 0 && replaced.iter().all(|at| *at < kept)).then_some(
            HistoryRewrite {
                removed: Vec::new(),
                replaced,
                without_calls: Vec::new(),
                shortened,
                extended,
                changes: Vec::new(),
                is_aligned: false,
                is_proven_by_answers,
                kept,
            },
        )
    }

    /// Whether a user message may be a part of what was sent. The model's answer behind it must be the same.
    fn may_be_shortened(&self, request: &mut RequestItems<'_>, at: usize) -> bool {
        let (Some(known), Some(now)) = (self.items.get(at), request.canonical(at)) else {
            return false;
        };
        let (Some(before), Some(now)) = (known.canonical.traits, now.traits) else { return false };
        let is_answer = |known: &KnownItem| known.is_from(ItemAuthor::Model);
        before.may_contain(&now)
            && self.items.get(at + 1).is_some_and(is_answer)
            && self.is_same(request, at + 1, at + 1)
    }

    /// Whether the newest answer has more calls now: some clients send all answers of a turn as one message, which
    /// grows with each step.
    fn is_continued(&self, request: &RequestItems<'_>, at: usize) -> bool {
        let known = self.items.get(at).and_then(|known| known.canonical.traits);
        known.is_some_and(|known| request.continues_answer(at, known))
    }

    /// Matches the items after the last answer, which a client may replace: `None` if it is another client, else the
    /// user messages that may have become a part of themselves, or longer.
    fn match_tail(
        &self,
        request: &mut RequestItems<'_>,
        from: usize,
        is_unanswered: bool,
    ) -> Option<TailEdits> {
        let named = |at: usize, canonical: CanonicalItem| {
            Some(TailItem { at, hash: canonical.hash, traits: canonical.traits? })
        };
        let removed = (from..).zip(self.items.get(from..)?);
        let removed = removed.map(|(at, known)| named(at, known.canonical));
        let removed: Vec<TailItem> = removed.collect::<Option<_>>()?;
        let mut added = Vec::new();
        let mut is_answered = false;
        for at in from..request.len() {
            let item = named(at, request.canonical(at)?)?;
            if item.traits.author == ItemAuthor::Model {
                is_answered = true;
                break;
            }
            added.push(item);
        }
        // Tool results must be unchanged: two agents with the same task differ in them only.
        let added_set: HashSet<(SeededHash, ItemTraits)> =
            added.iter().map(|item| (item.hash, item.traits)).collect();
        let are_results_kept = removed
            .iter()
            .filter(|item| item.traits.author == ItemAuthor::Tool)
            .all(|item| added_set.contains(&(item.hash, item.traits)));
        if !is_answered && is_unanswered {
            return Some(TailEdits::default());
        }
        let texts = |list: &[TailItem]| -> Vec<TailItem> {
            list.iter().filter(|item| item.traits.has_user_text()).copied().collect()
        };
        let (removed, added) = (texts(&removed), texts(&added));
        // Items that a client adds after results and does not store may look like user text, so at least one item
        // before them must remain.
        let is_dropped = is_answered && added.is_empty() && from > self.answered_items();
        if !are_results_kept || removed.len() != added.len() && !is_dropped {
            return None;
        }
        let mut edits = TailEdits::default();
        for (removed, added) in removed.iter().zip(&added) {
            let (before, now) = (&removed.traits, &added.traits);
            let is_alike =
                before.essence == now.essence || is_answered && before.opening == now.opening;
            if is_answered && !is_alike && before.may_contain(now) {
                edits.shortened.push((removed.at, added.at));
            } else if !is_alike && !is_answered && now.may_contain(before) {
                edits.extended.push((removed.at, added.at));
            } else if !is_alike {
                return None;
            }
        }
        Some(edits)
    }
}

/// User messages after the last answer that may have been edited: the known one, and the one of the request.
#[derive(Default)]
struct TailEdits {
    shortened: Vec<(usize, usize)>,
    extended: Vec<(usize, usize)>,
}

/// An item after the last answer.
#[derive(Clone, Copy)]
struct TailItem {
    at: usize,
    hash: SeededHash,
    traits: ItemTraits,
}

impl KnownItem {
    pub(super) fn is_from(&self, author: ItemAuthor) -> bool {
        self.canonical.traits.is_some_and(|traits| traits.author == author)
    }

    /// Whether a client may have made this edit without changing the meaning.
    pub(super) fn may_become(&self, now: CanonicalItem) -> bool {
        let (Some(before), Some(after)) = (self.canonical.traits, now.traits) else { return false };
        if (before.author, before.essence) != (after.author, after.essence) {
            return false;
        }
        match before.author {
            // A different result for the same call id is a different conversation, unless it is shorter
            // (cleared).
            ItemAuthor::Tool | ItemAuthor::Model => {
                after.bytes < before.bytes || self.original == Some(now.hash)
            }
            ItemAuthor::User | ItemAuthor::Client => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::new_group::NewGroup;
    use super::*;

    #[test]
    fn the_items_behind_a_summary_are_found() {
        let item = |at: usize, text: &str| {
            let role = if at.is_multiple_of(2) { "user" } else { "assistant" };
            format!(r#"{{"role":"{role}","content":"{text}"}}"#)
        };
        let texts = ["One.", "Two.", "Three.", "Four.", "Five."];
        let items: Vec<String> = (0..).zip(texts).map(|(at, text)| item(at, text)).collect();
        let items: Vec<&str> = items.iter().map(String::as_str).collect();
        let mut known_items = KnownItems::default();
        let groups = vec![NewGroup { item_count: 1, entries: Vec::new() }; items.len()];
        known_items.extend(&mut RequestItems::new(7, &items), groups, &[]);

        let other = item(0, "Another task.");
        let summarized = [&[other.as_str()], &items[3..]].concat();
        let mut request = RequestItems::new(7, &summarized);
        assert_eq!(known_items.match_after_summary(&mut request), Some(1));
    }
}
