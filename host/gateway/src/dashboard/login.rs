//! Who may look at the dashboard: whoever brings the token first, and from then on that browser.

use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};

use sha2::{Digest as _, Sha256};

use super::PATH;

/// The cookie of a browser that was let in.
pub(super) const COOKIE_NAME: &str = "ctxhost_ui";

/// Random bytes of a token: nobody guesses them.
const TOKEN_BYTES: usize = 32;

/// Browsers that may be let in at the same time; the oldest goes. Each took a link of its own.
const MAX_COOKIES: usize = 16;

/// Who may look. Kept as digests, so that comparing them tells nothing to somebody with a stopwatch.
#[derive(Default)]
pub struct DashboardLogin {
    known: Mutex<LoginDigests>,
}

#[derive(Default)]
struct LoginDigests {
    /// Tokens that nobody has used yet.
    tokens: Vec<[u8; 32]>,
    /// Browsers that were let in.
    cookies: Vec<[u8; 32]>,
}

impl DashboardLogin {
    /// The path of the dashboard with a new token in it. It works once.
    pub fn new_link(&self) -> String {
        let Some(token) = random_token() else { return PATH.to_owned() };
        push_bounded(&mut self.digests().tokens, digest(&token));
        format!("{PATH}?token={token}")
    }

    /// Takes a token and gives a cookie for it; `None` for one that is unknown or was used.
    pub fn redeem(&self, token: &str) -> Option<String> {
        let token = digest(token);
        let mut known = self.digests();
        let at = known.tokens.iter().position(|other| *other == token)?;
        let cookie = random_token()?;
        known.tokens.remove(at);
        push_bounded(&mut known.cookies, digest(&cookie));
        Some(cookie)
    }

    /// Whether a cookie is one that was given.
    pub fn has_cookie(&self, cookie: &str) -> bool {
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

/// Random bytes in hex; `None` where the system has none, and then nobody is let in.
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
