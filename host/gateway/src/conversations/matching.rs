//! How a request stands to a conversation: the same history, or one that its client has changed in a way that
//! leaves it the same conversation.
//!
//! What a model has answered decides. Behind its last answer a client may say something else each time (a
//! reminder, the context of the moment), before it a client may have cleared results or dropped thinking, and
//! at the beginning it may have put a summary. Two histories in which the model was asked or has answered
//! otherwise are two conversations.

use std::collections::HashSet;

use super::known_items::{KnownItem, KnownItems};
use super::seeded_hash::{CanonicalItem, RequestItems, SeededHash};
use super::traits::{ItemAuthor, ItemTraits};

/// Items before the newest ones that a client leaves of a history it has summarised: its surroundings, the
/// first messages, the summary.
const FRONT_ITEMS: usize = 8;

/// Answers of the model that have to be the same where the beginning is not.
const SAME_ANSWERS: usize = 2;

/// How a request stands to a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RequestMatch {
    /// All that is known, and so many items behind it; none for the same request once more.
    Continues {
        /// How many.
        new: usize,
    },
    /// The same conversation, of which its client says something in another way now.
    Rewrites(HistoryRewrite),
    /// It ends before what is known does, with these units of it.
    Within {
        /// How many.
        groups: usize,
    },
    /// It leaves the conversation behind so many units.
    Forks {
        /// How many.
        groups: usize,
    },
    /// They have nothing in common.
    Unrelated,
}

/// What a client has changed of a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistoryRewrite {
    /// The items that say something else now.
    pub replaced: Vec<usize>,
    /// How many items stay; those behind them are gone.
    pub kept: usize,
}

impl KnownItems {
    /// How a request stands to it. `is_unanswered` says that the last request got no answer.
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

    /// How many items a request begins with that it begins with, too.
    pub fn common_items(&self, request: &mut RequestItems<'_>) -> usize {
        (0..self.items.len()).take_while(|at| self.is_same(request, *at, *at)).count()
    }

    /// Whether a request shows another first answer of the model than it has: programs give one name to all of
    /// their conversations, and many of those begin with the same greeting.
    pub fn has_other_first_answer(&self, request: &mut RequestItems<'_>) -> bool {
        let common = self.common_items(request);
        let is_answer =
            |at: usize| self.items.get(at).is_some_and(|it| it.is_from(ItemAuthor::Model));
        let read = request.canonical(common).and_then(|canonical| canonical.traits);
        let is_answered = read.is_some_and(|traits| traits.author == ItemAuthor::Model);
        is_answered && is_answer(common) && !(0..common).any(is_answer)
    }

    /// Whether the model has said anything in it.
    pub fn has_answer(&self) -> bool {
        self.answered_items() > 0
    }

    /// How many items a request has of the newest ones up to the last answer, where its client has put
    /// something shorter in the place of those before; `None` where that cannot be told.
    ///
    /// `has_summary` says that what it begins with is known to be a summary of its client's.
    pub fn match_after_summary(
        &self,
        request: &mut RequestItems<'_>,
        has_summary: bool,
    ) -> Option<usize> {
        let last = self.answered_items().checked_sub(1)?;
        let end = (0..request.len()).rev().find(|at| self.is_same(request, last, *at))?;
        let longest = last.min(end) + 1;
        let same = (0..longest).take_while(|back| self.is_same(request, last - back, end - back));
        let same = same.count();
        let (front, before) = (end + 1 - same, last + 1 - same);
        let from = self.items.get(before..=last)?;
        let answers = from.iter().filter(|known| known.is_from(ItemAuthor::Model)).count();
        let begins_alike = front == 0 || self.common_items(request) > 0;
        let is_it = match has_summary {
            true => answers >= 1,
            // A client that leaves the oldest out says nothing of it.
            false => answers >= SAME_ANSWERS && begins_alike,
        };
        (is_it && before > front && front <= FRONT_ITEMS).then_some(same)
    }

    /// How many items there are up to the model's last answer.
    pub(super) fn answered_items(&self) -> usize {
        self.items.iter().rposition(|known| known.is_from(ItemAuthor::Model)).map_or(0, |at| at + 1)
    }

    /// How many units there are before an item, whole.
    pub fn groups_before(&self, items: usize) -> usize {
        self.groups.iter().take_while(|(group, _)| group.end <= items).count()
    }

    fn is_same(&self, request: &mut RequestItems<'_>, known: usize, at: usize) -> bool {
        let (Some(known), Some(raw)) = (self.items.get(known), request.raw_hash(at)) else {
            return false;
        };
        known.raw == Some(raw) || request.canonical_hash(at) == Some(known.canonical.hash)
    }

    /// What was changed, where it is the same conversation.
    fn rewrite(
        &self,
        request: &mut RequestItems<'_>,
        common: usize,
        is_unanswered: bool,
    ) -> Option<HistoryRewrite> {
        let answered = self.answered_items();
        if common == 0 || request.len() < answered {
            return None;
        }
        let mut replaced = Vec::new();
        for at in common..answered {
            if self.is_same(request, at, at) {
                continue;
            }
            if !self.items.get(at)?.may_become(request.canonical(at)?) {
                return None;
            }
            replaced.push(at);
        }
        let mut kept = common.max(answered);
        while kept < self.items.len() && self.is_same(request, kept, kept) {
            kept += 1;
        }
        if kept < self.items.len() && !self.is_tail_replaced(request, kept, is_unanswered)? {
            return None;
        }
        let groups = self.groups_before(kept);
        let kept = self.groups.get(groups.checked_sub(1)?)?.0.end;
        (self.entries_of(groups) > 0 && replaced.iter().all(|at| *at < kept))
            .then_some(HistoryRewrite { replaced, kept })
    }

    /// Whether what was said behind the last answer, from an item on, was said otherwise by the same client.
    fn is_tail_replaced(
        &self,
        request: &mut RequestItems<'_>,
        from: usize,
        is_unanswered: bool,
    ) -> Option<bool> {
        let named = |canonical: CanonicalItem| Some((canonical.hash, canonical.traits?));
        let gone = self.items.get(from..)?.iter().map(|known| named(known.canonical));
        let gone: Vec<(SeededHash, ItemTraits)> = gone.collect::<Option<_>>()?;
        let mut said = Vec::new();
        let mut is_answered = false;
        for at in from..request.len() {
            let (name, traits) = named(request.canonical(at)?)?;
            if traits.author == ItemAuthor::Model {
                is_answered = true;
                break;
            }
            said.push((name, traits));
        }
        let words = |list: &[(SeededHash, ItemTraits)]| -> Vec<ItemTraits> {
            let traits = list.iter().map(|(_, traits)| *traits);
            traits.filter(|traits| traits.has_user_text()).collect()
        };
        let (gone_words, said_words) = (words(&gone), words(&said));
        // Two agents that do the same differ in what their tools answer, so results stay as they are.
        let there: HashSet<&(SeededHash, ItemTraits)> = said.iter().collect();
        let are_results_there = gone
            .iter()
            .filter(|(_, traits)| traits.author == ItemAuthor::Tool)
            .all(|result| there.contains(result));
        let same_words = |is_same: fn(&ItemTraits, &ItemTraits) -> bool| {
            gone_words.len() == said_words.len()
                && gone_words.iter().zip(&said_words).all(|(gone, said)| is_same(gone, said))
        };
        let is_alike = |gone: &ItemTraits, said: &ItemTraits| {
            gone.essence == said.essence || gone.opening == said.opening
        };
        Some(match is_answered {
            // The answer that it waited for is there. What a client of its own puts behind results and does
            // not keep may look like a person's words: something before it has to stay.
            true => {
                let is_dropped = said_words.is_empty() && from > self.answered_items();
                are_results_there && (same_words(is_alike) || is_dropped)
            }
            false => {
                is_unanswered
                    || are_results_there && same_words(|gone, said| gone.essence == said.essence)
            }
        })
    }
}

impl KnownItem {
    fn is_from(&self, author: ItemAuthor) -> bool {
        self.canonical.traits.is_some_and(|traits| traits.author == author)
    }

    /// Whether a client may have made this of it without saying anything else.
    fn may_become(&self, now: CanonicalItem) -> bool {
        let (Some(before), Some(after)) = (self.canonical.traits, now.traits) else { return false };
        if (before.author, before.essence) != (after.author, after.essence) {
            return false;
        }
        match before.author {
            // Another result of a call that has the same id is another conversation, unless there is less of it.
            ItemAuthor::Tool | ItemAuthor::Model => {
                after.bytes < before.bytes || self.original == Some(now.hash)
            }
            ItemAuthor::User | ItemAuthor::Client => true,
        }
    }
}
