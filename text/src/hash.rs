//! Deterministic values derived from a text: the same on every machine and in every build.

use std::hash::{BuildHasherDefault, Hasher};

/// For maps whose keys are hashes already.
pub type BuildIdentityHasher = BuildHasherDefault<IdentityHasher>;

/// Offset and prime of 64-bit FNV-1a.
const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
const PRIME: u64 = 0x0000_0100_0000_01b3;

/// The FNV-1a hash of a text, for names and jitter. Not suited for secrets.
pub fn fnv1a(text: &str) -> u64 {
    text.bytes().fold(OFFSET, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME))
}

/// The hash of a key is the key.
#[derive(Clone, Copy, Debug, Default)]
pub struct IdentityHasher(u64);

impl Hasher for IdentityHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, key: u64) {
        self.0 = key;
    }
}

/// A fraction from 0 to below 1, derived from a text.
pub fn hash_fraction(text: &str) -> f64 {
    // The middle bits: short texts that differ in their last character hardly differ in the highest
    // bits.
    ((fnv1a(text) >> 20) % 10_000) as f64 / 10_000.0
}

/// `count` lower-case letters derived from a text; none of them form an identifier.
pub fn hash_letters(text: &str, count: usize) -> String {
    // Base 26 of the hash, lowest digit first.
    let mut rest = fnv1a(text);
    let mut next_letter = || {
        let at = (rest % 26) as u8;
        rest /= 26;
        char::from(b'a' + at)
    };
    (0..count).map(|_| next_letter()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_values() {
        assert_eq!(fnv1a(""), 0xcbf2_9ce4_8422_2325);
        assert_eq!(fnv1a("a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(fnv1a("foobar"), 0x8594_4171_f739_67e8);
    }

    #[test]
    fn fractions_are_below_one_and_differ() {
        let shares: Vec<f64> = (0..100).map(|n| hash_fraction(&format!("entry-{n}"))).collect();
        assert!(shares.iter().all(|share| (0.0..1.0).contains(share)));
        let low = shares.iter().filter(|share| **share < 0.5).count();
        assert!((25..75).contains(&low), "{low}");
        assert_eq!(hash_letters("a", 5), hash_letters("a", 5));
        assert_ne!(hash_letters("a", 5), hash_letters("b", 5));
    }
}
