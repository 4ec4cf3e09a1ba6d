//! Chooses the conversation of a request among several that match.

use std::cmp::{Ordering, Reverse};
use std::ops::Range;
use std::sync::Arc;

use super::super::conversation::Conversation;
use super::super::matching::RequestMatch;
use super::super::seeded_hash::RequestItems;

/// The conversation with the highest rank; `None` if none has one, or several have it.
pub(super) fn single_best<R: Ord>(
    conversations: &[Arc<Conversation>],
    mut rank: impl FnMut(&Conversation) -> Option<R>,
) -> Option<Arc<Conversation>> {
    let mut best: Option<(R, Option<Arc<Conversation>>)> = None;
    for conversation in conversations {
        let Some(rank) = rank(conversation) else { continue };
        match best.as_ref().map(|(most, _)| rank.cmp(most)) {
            Some(Ordering::Less) => {}
            Some(Ordering::Equal) => best = Some((rank, None)),
            None | Some(Ordering::Greater) => best = Some((rank, Some(conversation.clone()))),
        }
    }
    best.and_then(|(_, conversation)| conversation)
}

/// The best match of a request, and whether no other conversation can be better.
pub(super) fn best_match(
    known: &[Arc<Conversation>],
    request: &mut RequestItems<'_>,
) -> (Option<Arc<Conversation>>, bool) {
    let (mut exact, mut rewritten, mut forked) = (None, None, None);
    let (mut best_rank, mut is_tied) = ((0, Reverse(usize::MAX)), false);
    let take = |best: &mut Option<MatchCandidate>, candidate: MatchCandidate| {
        if best.as_ref().is_none_or(|best| candidate.items > best.items) {
            *best = Some(candidate);
        }
    };
    for conversation in known {
        let state = conversation.state();
        let candidate = |items: usize, is_sure: bool| MatchCandidate {
            items,
            is_sure,
            conversation: conversation.clone(),
        };
        match state.match_request(request) {
            RequestMatch::Continues { .. } => {
                take(&mut exact, candidate(state.known.len(), state.known.has_answer()));
            }
            RequestMatch::Rewrites(rewrite) => {
                let is_sure = !rewrite.is_proven_by_answers;
                let rank = (rewrite.kept, Reverse(rewrite.removed.iter().map(Range::len).sum()));
                match rank.cmp(&best_rank) {
                    Ordering::Less => {}
                    Ordering::Equal if rewritten.is_some() => is_tied |= !is_sure,
                    _ => {
                        (best_rank, is_tied) = (rank, false);
                        rewritten = Some(candidate(rewrite.kept, is_sure));
                    }
                }
            }
            RequestMatch::Forks { .. } => {
                take(&mut forked, candidate(state.known.common_items(request), true))
            }
            RequestMatch::Within { .. } => {
                take(&mut forked, candidate(state.known.common_items(request), false))
            }
            RequestMatch::Unrelated => {}
        }
    }
    // Two conversations that were the same apart from what is left out.
    if is_tied && exact.is_none() {
        return (None, true);
    }
    // An exact match wins, unless it has no model answer yet: many conversations start alike.
    let continued = match (exact, rewritten) {
        (Some(exact), _) if exact.is_sure => Some(exact),
        (exact, None) => exact,
        (_, rewritten) => rewritten,
    };
    match (continued, forked) {
        // A client that replays a conversation from its start is within the original all the time. It keeps
        // to its own fork.
        (Some(continued), Some(forked)) if !forked.is_sure || forked.items <= continued.items => {
            (Some(continued.conversation), continued.is_sure)
        }
        (_, Some(forked)) => (Some(forked.conversation), false),
        (Some(continued), None) => (Some(continued.conversation), continued.is_sure),
        (None, None) => (None, false),
    }
}

/// A candidate for the conversation of a request.
struct MatchCandidate {
    conversation: Arc<Conversation>,
    /// The number of common items.
    items: usize,
    is_sure: bool,
}
