//! Chooses the user's requests that stay where not all of them fit: rules and facts before the others, newest first.

use std::collections::BTreeSet;

/// A request and its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SizedRequest {
    /// Its position.
    pub seq: u64,
    /// Its size in tokens.
    pub tokens: u64,
    /// Whether it holds a rule or preference.
    pub is_rule: bool,
    /// Whether it states a fact, such as a path, an address or an order number.
    pub states_fact: bool,
}

/// The positions of the requests that take at most `room_tokens`: rules in half of it, then facts in half of it, then
/// the others. `newest_first` is their order. A request that is too long is skipped.
pub fn choose_requests(newest_first: &[SizedRequest], room_tokens: u64) -> BTreeSet<u64> {
    let mut chosen = BTreeSet::new();
    let mut left_tokens = room_tokens;
    // At most half each, so that they do not displace what was asked last.
    type IsOfKind = fn(&SizedRequest) -> bool;
    let kinds: [(IsOfKind, u64); 3] = [
        (|request| request.is_rule, room_tokens / 2),
        (|request| request.states_fact, room_tokens / 2),
        (|_| true, room_tokens),
    ];
    for (is_of_kind, most_tokens) in kinds {
        let mut room_tokens = most_tokens.min(left_tokens);
        for request in newest_first.iter().filter(|request| is_of_kind(request)) {
            if request.tokens <= room_tokens && chosen.insert(request.seq) {
                room_tokens -= request.tokens;
                left_tokens -= request.tokens;
            }
        }
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(seq: u64, tokens: u64, is_rule: bool) -> SizedRequest {
        SizedRequest { seq, tokens, is_rule, states_fact: false }
    }

    #[test]
    fn a_rule_stays_before_newer_requests() {
        let requests = [
            request(9, 4, false),
            request(7, 30, false),
            request(5, 4, false),
            request(1, 5, true),
        ];
        let chosen = |room_tokens| Vec::from_iter(choose_requests(&requests, room_tokens));
        assert_eq!(chosen(10), [1, 9]);
        assert_eq!(chosen(13), [1, 5, 9]);
        assert_eq!(chosen(9), [5, 9], "a rule takes at most half");
        assert_eq!(chosen(100), [1, 5, 7, 9]);
        assert!(chosen(0).is_empty());
        let with_fact =
            [request(9, 4, false), SizedRequest { states_fact: true, ..request(3, 4, false) }];
        assert_eq!(Vec::from_iter(choose_requests(&with_fact, 8)), [3, 9]);
        assert_eq!(
            Vec::from_iter(choose_requests(&with_fact, 7)),
            [9],
            "a fact takes at most half"
        );
    }
}
