//! Ids of records and sessions.
//!
//! Record ids are content hashes, so that two replays of a recording, or two migrations of a file, give the
//! same bytes.

use std::hash::{BuildHasher, Hasher, RandomState};

use sha2::{Digest, Sha256};

/// Hex digits of a record id, as in Pi.
const RECORD_ID_DIGITS: usize = 8;

/// Hex digits of a record id after too many collisions.
const LONG_RECORD_ID_DIGITS: usize = 32;

/// Short ids to try before a long one, as in Pi.
const SHORT_ID_ATTEMPTS: u32 = 100;

/// A free id, which depends on the seed and the taken ids only.
pub(super) fn record_id(seed: &[&str], is_taken: impl Fn(&str) -> bool) -> String {
    (0..SHORT_ID_ATTEMPTS)
        .map(|attempt| hex_of(seed, attempt, RECORD_ID_DIGITS))
        .find(|id| !is_taken(id))
        .unwrap_or_else(|| hex_of(seed, SHORT_ID_ATTEMPTS, LONG_RECORD_ID_DIGITS))
}

/// A new session id: a UUID of version 7, as in Pi.
pub(super) fn session_id(now_ms: i64) -> String {
    // Seeded by the operating system. The ids have to be unique, not unpredictable.
    let random = || RandomState::new().build_hasher().finish();
    let time = u128::try_from(now_ms).unwrap_or(0) & 0xFFFF_FFFF_FFFF;
    let high = u128::from(random()) & 0xFFF;
    let low = u128::from(random()) & 0x3FFF_FFFF_FFFF_FFFF;
    let bits = (time << 80) | (0x7 << 76) | (high << 64) | (0b10 << 62) | low;
    let part = |shift: u32, digits: u32| (bits >> shift) & ((1 << (4 * digits)) - 1);
    format!(
        "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        part(96, 8),
        part(80, 4),
        part(64, 4),
        part(48, 4),
        part(0, 12)
    )
}

/// A random name for a temporary file.
pub(super) fn nonce() -> String {
    format!("{:016x}", RandomState::new().build_hasher().finish())
}

fn hex_of(seed: &[&str], attempt: u32, digits: usize) -> String {
    let mut hash = Sha256::new();
    for part in seed {
        // With its length, so that ("ab", "c") and ("a", "bc") differ.
        hash.update((part.len() as u64).to_le_bytes());
        hash.update(part.as_bytes());
    }
    hash.update(attempt.to_le_bytes());
    let mut id = String::with_capacity(digits);
    let halves = hash.finalize().into_iter().flat_map(|byte| [byte >> 4, byte & 0xF]);
    id.extend(halves.take(digits).filter_map(|half| char::from_digit(half.into(), 16)));
    id
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_collision_gives_another_id_and_many_give_a_long_one() {
        let first = record_id(&["a"], |_| false);
        assert_eq!(first.len(), 8);
        assert_eq!(first, record_id(&["a"], |_| false));
        assert_ne!(first, record_id(&["a"], |id| id == first));
        assert_eq!(record_id(&["a"], |_| true).len(), 32);
    }

    #[test]
    fn a_session_id_is_a_uuid_of_version_7() {
        let id = session_id(1_795_225_281_054);
        assert_eq!(id.len(), 36);
        assert!(id.starts_with("01a1fbc3-e21e-7") || id.starts_with("01a1fbc3-e"), "{id}");
        assert_eq!(id.as_bytes()[14], b'7');
        assert!(b"89ab".contains(&id.as_bytes()[19]), "{id}");
        assert_ne!(id, session_id(1_795_225_281_054));
    }
}
