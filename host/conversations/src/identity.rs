//! The session identity in a request: our header, or what clients send anyway.

use axum::http::HeaderMap;

/// The header with which a client names its session.
pub(crate) const SESSION_HEADER: &str = "x-ctxhost-session";

/// The scope prefix of such a name.
const NAMED_PREFIX: &str = "named ";

/// The longest session id, in characters.
const MAX_ID_CHARS: usize = 128;

/// The headers in which clients identify their sessions. The values of one row are combined.
const CLIENT_HEADERS: [&[&str]; 4] = [
    // Claude Code.
    &["x-claude-code-session-id"],
    // Codex. Its window id is not used: it changes when Codex compacts.
    &["session-id", "thread-id"],
    // opencode.
    &["x-session-id", "x-session-affinity"],
    // Pi.
    &["session_id"],
];

/// An invalid session id in our header.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "invalid {SESSION_HEADER} header: expected 1 to {MAX_ID_CHARS} characters of A-Z a-z 0-9 . _ : -"
)]
pub struct BadSessionId;

/// The scope in which the conversation of a request is searched: a name, or a client's own session id; `None`
/// without either. `in_body` is the session id of the body.
///
/// # Errors
///
/// [`BadSessionId`] for an invalid name in our header.
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
        let ids: Vec<&str> = values.filter(|value| !value.is_empty()).collect();
        let first = names.first().filter(|_| !ids.is_empty())?;
        Some(format!("{first} {}", ids.join(" ")))
    };
    let in_body = || in_body.filter(|ids| !ids.is_empty()).map(|ids| format!("body {ids}"));
    Ok(CLIENT_HEADERS.iter().find_map(of_client).or_else(in_body))
}

/// Whether a scope is a name from our header.
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
    fn our_header_takes_precedence() {
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
    fn invalid_names_are_rejected() {
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
