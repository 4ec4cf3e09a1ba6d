//! What clients say of their sessions: a header of ours, or what they send anyway.

use axum::http::HeaderMap;

/// The header by which a client names its session.
pub const SESSION_HEADER: &str = "x-ctxhost-session";

/// How a scope begins that a client has named.
const NAMED_PREFIX: &str = "named ";

/// The longest id of a session, in characters.
const MAX_ID_CHARS: usize = 128;

/// The headers in which clients name their sessions; all those of a row that a request has count
/// together. (facts: clients, "session identity in the request")
const CLIENT_HEADERS: [&[&str]; 4] = [
    // Claude Code.
    &["x-claude-code-session-id"],
    // Codex. Its window id grows when it compacts by itself, so that one says nothing here.
    &["session-id", "thread-id"],
    // opencode.
    &["x-session-id", "x-session-affinity"],
    // Pi.
    &["session_id"],
];

/// A session id that a client must not use.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the header {SESSION_HEADER} must be 1 to {MAX_ID_CHARS} characters of A-Z a-z 0-9 . _ : -"
)]
pub struct BadSessionId;

/// Whose conversations may be the one of a request: of a named session, of a client's own, or of
/// nobody in particular. `in_body` is what the body says of it.
///
/// # Errors
///
/// [`BadSessionId`] where a client names a session and the name is none.
pub fn session_scope(
    headers: &HeaderMap,
    in_body: Option<&str>,
) -> Result<Option<String>, BadSessionId> {
    if let Some(named) = headers.get(SESSION_HEADER) {
        let id = named.to_str().ok().filter(|id| is_id(id)).ok_or(BadSessionId)?;
        return Ok(Some(format!("{NAMED_PREFIX}{id}")));
    }
    let of_client = |names: &&[&str]| {
        let values = names.iter().filter_map(|name| headers.get(*name)?.to_str().ok());
        let said: Vec<&str> = values.filter(|value| !value.is_empty()).collect();
        let first = names.first().filter(|_| !said.is_empty())?;
        Some(format!("{first} {}", said.join(" ")))
    };
    let in_body = || in_body.filter(|said| !said.is_empty()).map(|said| format!("body {said}"));
    Ok(CLIENT_HEADERS.iter().find_map(of_client).or_else(in_body))
}

/// Whether a scope is a name that a client has given, and not what it sends anyway.
pub fn is_named(scope: &str) -> bool {
    scope.starts_with(NAMED_PREFIX)
}

fn is_id(id: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._:-".contains(&byte);
    (1..=MAX_ID_CHARS).contains(&id.len()) && id.bytes().all(is_allowed)
}

#[cfg(test)]
mod tests {
    use axum::http::{HeaderName, HeaderValue};

    use super::*;

    fn headers(list: &[(&str, &str)]) -> HeaderMap {
        let header = |(name, value): &(&str, &str)| {
            let value = HeaderValue::from_bytes(value.as_bytes()).unwrap();
            (name.parse::<HeaderName>().unwrap(), value)
        };
        list.iter().map(header).collect()
    }

    #[test]
    fn a_name_comes_before_what_a_client_sends_anyway() {
        let of = |list: &[(&str, &str)], body| session_scope(&headers(list), body).unwrap();
        assert_eq!(of(&[], None), None);
        assert_eq!(of(&[], Some("")), None);
        let claude = ("x-claude-code-session-id", "1f");
        assert_eq!(of(&[claude, (SESSION_HEADER, "mine")], None).unwrap(), "named mine");
        assert_eq!(of(&[claude], Some("k")).unwrap(), "x-claude-code-session-id 1f");
        let codex = [("session-id", "s"), ("thread-id", "t"), ("x-codex-window-id", "t:1")];
        assert_eq!(of(&codex, Some("k")).unwrap(), "session-id s t");
        assert_eq!(of(&[], Some("k")).unwrap(), "body k");
    }

    #[test]
    fn a_name_that_is_none_is_refused() {
        let long = "x".repeat(129);
        for wrong in ["", "a b", "../x", "a/b", "ä", &long] {
            assert_eq!(
                session_scope(&headers(&[(SESSION_HEADER, wrong)]), None),
                Err(BadSessionId),
                "{wrong}"
            );
        }
        let longest = "x".repeat(128);
        for right in ["a", "A.b_c:d-9", &longest] {
            assert!(session_scope(&headers(&[(SESSION_HEADER, right)]), None).unwrap().is_some());
        }
    }
}
