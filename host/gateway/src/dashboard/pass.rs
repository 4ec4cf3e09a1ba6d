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
pub struct Pass {
    known: Mutex<Known>,
}

#[derive(Default)]
struct Known {
    /// Tokens that nobody has used yet.
    tokens: Vec<[u8; 32]>,
    /// Browsers that were let in.
    cookies: Vec<[u8; 32]>,
}

impl Pass {
    /// The path of the dashboard with a new token in it. It works once.
    pub fn link(&self) -> String {
        let Some(token) = random() else { return PATH.to_owned() };
        keep(&mut self.known().tokens, digest(&token));
        format!("{PATH}?token={token}")
    }

    /// Takes a token and gives a cookie for it; `None` for one that is unknown or was used.
    pub fn admit(&self, token: &str) -> Option<String> {
        let token = digest(token);
        let mut known = self.known();
        let at = known.tokens.iter().position(|other| *other == token)?;
        let cookie = random()?;
        known.tokens.remove(at);
        keep(&mut known.cookies, digest(&cookie));
        Some(cookie)
    }

    /// Whether a cookie is one that was given.
    pub fn knows(&self, cookie: &str) -> bool {
        self.known().cookies.contains(&digest(cookie))
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn keep(digests: &mut Vec<[u8; 32]>, digest: [u8; 32]) {
    digests.push(digest);
    if digests.len() > MAX_COOKIES {
        digests.remove(0);
    }
}

fn digest(text: &str) -> [u8; 32] {
    Sha256::digest(text.as_bytes()).into()
}

/// Random bytes in hex; `None` where the system has none, and then nobody is let in.
fn random() -> Option<String> {
    let mut bytes = [0; TOKEN_BYTES];
    let source = rustls::crypto::ring::default_provider().secure_random;
    source.fill(&mut bytes).ok()?;
    Some(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

impl fmt::Debug for Pass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pass").finish_non_exhaustive()
    }
}
