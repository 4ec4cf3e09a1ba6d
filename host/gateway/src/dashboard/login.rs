//! Login to the dashboard: one-time tokens and the cookies issued for them.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use sha2::{Digest as _, Sha256};

/// The path of the dashboard.
pub(crate) const PATH: &str = "/ui";

/// The name of the cookie.
pub(super) const COOKIE_NAME: &str = "ctxhost_ui";

/// Random bytes per token.
const TOKEN_BYTES: usize = 32;

/// The most valid cookies; the oldest is dropped.
const MAX_COOKIES: usize = 16;

/// Tokens and cookies, stored as digests so that comparing them reveals nothing by timing.
#[derive(Default)]
pub(crate) struct DashboardLogin {
    known: Mutex<LoginDigests>,
}

#[derive(Default)]
struct LoginDigests {
    /// Unused tokens.
    tokens: Vec<[u8; 32]>,
    /// Issued cookies.
    cookies: Vec<[u8; 32]>,
}

impl DashboardLogin {
    /// The path of the dashboard with a new one-time token.
    pub(crate) fn new_link(&self) -> String {
        let Some(token) = random_token() else { return PATH.to_owned() };
        push_bounded(&mut self.digests().tokens, digest(&token));
        format!("{PATH}?token={token}")
    }

    /// Redeems a token for a cookie; `None` if the token is unknown or used.
    pub(crate) fn redeem(&self, token: &str) -> Option<String> {
        let token = digest(token);
        let mut known = self.digests();
        let at = known.tokens.iter().position(|other| *other == token)?;
        let cookie = random_token()?;
        known.tokens.remove(at);
        push_bounded(&mut known.cookies, digest(&cookie));
        Some(cookie)
    }

    /// Whether a cookie is valid.
    pub(crate) fn has_cookie(&self, cookie: &str) -> bool {
        self.digests().cookies.contains(&digest(cookie))
    }

    fn digests(&self) -> MutexGuard<'_, LoginDigests> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn push_bounded(digests: &mut Vec<[u8; 32]>, digest: [u8; 32]) {
    digests.push(digest);
    if digests.len() > MAX_COOKIES {
        digests.remove(0);
    }
}

fn digest(text: &str) -> [u8; 32] {
    Sha256::digest(text.as_bytes()).into()
}

/// Random bytes in hex; `None` without a random source, which disables the login.
fn random_token() -> Option<String> {
    let mut bytes = [0; TOKEN_BYTES];
    let source = rustls::crypto::ring::default_provider().secure_random;
    source.fill(&mut bytes).ok()?;
    Some(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

impl fmt::Debug for DashboardLogin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pass").finish_non_exhaustive()
    }
}
