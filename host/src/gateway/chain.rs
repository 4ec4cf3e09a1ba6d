//! The chain of a conversation: a name for every message that says all that came before it, too.
//!
//! Clients send their whole history with every request and most of them say nothing of sessions. Two
//! requests belong together where the chain of one goes on from the chain of the other.
//!
//! There are two chains. The one over the *items*, as they were written, is quick: what is known of it
//! need not be read again. The one over the *entries* that items become is true: clients move marks
//! for the provider's cache from message to message, and write one text now as a string and now as a
//! block. It can be worked out from a session's file, so nothing beside that has to be kept.

use xxhash_rust::xxh3::xxh3_128_with_seed;

/// The name of a message and of all before it in one scope.
///
/// 128 bits, seeded with a secret of this machine: nobody can make up a history that has the name of
/// another one without knowing it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Link(u128);

impl Link {
    /// The beginning of every conversation of one scope: a client's own name for a session, or nothing.
    pub fn begin(seed: u64, scope: &str) -> Link {
        Link(xxh3_128_with_seed(scope.as_bytes(), seed))
    }

    /// The link behind this one.
    #[must_use]
    pub fn then(self, seed: u64, part: &str) -> Link {
        let part = xxh3_128_with_seed(part.as_bytes(), seed);
        let mut both = [0; 32];
        let (before, behind) = both.split_at_mut(16);
        before.copy_from_slice(&self.0.to_le_bytes());
        behind.copy_from_slice(&part.to_le_bytes());
        Link(xxh3_128_with_seed(&both, seed))
    }

    /// As 32 hex digits.
    pub fn to_hex(self) -> String {
        format!("{:032x}", self.0)
    }

    /// From 32 hex digits; `None` for anything else.
    pub fn from_hex(hex: &str) -> Option<Link> {
        let is_hex = hex.len() == 32 && hex.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_hex.then(|| u128::from_str_radix(hex, 16).ok()).flatten().map(Link)
    }
}

/// The links of parts that follow `link`, in order.
pub fn chain<'a>(seed: u64, mut link: Link, parts: impl IntoIterator<Item = &'a str>) -> Vec<Link> {
    let next = |part| {
        link = link.then(seed, part);
        link
    };
    parts.into_iter().map(next).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_is_of_everything_before_it() {
        let begin = Link::begin(7, "");
        let one = chain(7, begin, ["a", "b", "c"]);
        let other = chain(7, begin, ["a", "x", "c"]);
        assert_eq!(one[0], other[0]);
        assert!(one[1] != other[1] && one[2] != other[2]);
        assert_eq!(chain(7, one[0], ["b", "c"]), one[1..]);
    }

    #[test]
    fn scopes_seeds_and_borders_count() {
        let of = |seed, scope, parts: [&str; 2]| chain(seed, Link::begin(seed, scope), parts)[1];
        let all = [
            of(7, "", ["ab", "c"]),
            of(7, "", ["a", "bc"]),
            of(8, "", ["ab", "c"]),
            of(7, "codex", ["ab", "c"]),
        ];
        assert!((1..all.len()).all(|at| !all[..at].contains(&all[at])));
    }

    #[test]
    fn hex_there_and_back() {
        let link = Link::begin(7, "x");
        assert_eq!(Link::from_hex(&link.to_hex()), Some(link));
        for wrong in ["", "0", &"g".repeat(32), &"0".repeat(33), &format!("+{}", "0".repeat(31))] {
            assert_eq!(Link::from_hex(wrong), None, "{wrong}");
        }
    }
}
