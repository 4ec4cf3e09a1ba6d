//! Keys of session state in an engine's store.

use ctxhost_engine_api::{Host, SessionRef, capability};

use ctxhost_text::hash;

/// Longest session id, in bytes, that is used as a key.
// Stores limit the length of keys; a longer id is replaced by its hash.
const LONGEST_ID_BYTES: usize = 60;

/// The key of a session under a prefix.
pub fn session_key(prefix: &str, session: &SessionRef) -> String {
    let id = &session.id;
    if id.len() <= LONGEST_ID_BYTES {
        format!("{prefix}{id}")
    } else {
        format!("{prefix}#{:016x}", hash::fnv1a(id))
    }
}

/// Whether the host offers a capability.
pub fn has_capability(host: &Host, capability: &str) -> bool {
    host.info().capabilities.iter().any(|name| name == capability)
}

/// Whether the host offers a key-value store.
pub fn has_key_value_store(host: &Host) -> bool {
    has_capability(host, capability::KV)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_short_whatever_the_session_is_called() {
        for id in ["a", &"x".repeat(500)] {
            let session = SessionRef { id: id.into(), ..SessionRef::default() };
            let key = session_key("decisions/1/", &session);
            assert!(key.starts_with("decisions/1/") && key.len() <= 80, "{key}");
        }
    }
}
