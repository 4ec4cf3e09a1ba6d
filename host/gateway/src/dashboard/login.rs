//! Login to the dashboard: one-time links, the gateway's token, and the cookies issued for them.
//!
//! A link is a file in the dashboard folder, named by the digest of its token. Write access to the folder is the right to
//! log in, so `ctxhost ui` makes links for a running gateway. Removing the file redeems the link, once.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ctxhost_platform::files::{LinkPolicy, create_private_folders, open_options};
use secrecy::{ExposeSecret as _, SecretString};
use sha2::{Digest as _, Sha256};

/// The path of the dashboard.
pub(crate) const PATH: &str = "/ui";

/// The name of the cookie.
pub(super) const COOKIE_NAME: &str = "ctxhost_ui";

/// Random bytes per token.
const TOKEN_BYTES: usize = 32;

/// The most valid cookies, and the most unused links; the oldest is dropped.
const MAX_VALID: usize = 16;

/// The first part of a link's file name.
const LINK_PREFIX: &str = "link-";

/// The folder below a state folder in which links and running gateways are recorded.
pub fn dashboard_folder(state: &Path) -> PathBuf {
    state.join("dashboard")
}

/// The path of the dashboard with a new one-time token, for any gateway that uses this folder.
///
/// # Errors
///
/// The folder cannot be written, or there is no random source.
pub fn new_dashboard_link(folder: &Path) -> io::Result<String> {
    create_private_folders(folder)?;
    let token = random_token().ok_or_else(|| io::Error::other("no random source"))?;
    let path = folder.join(link_name(&token));
    open_options(LinkPolicy::Follow).write(true).create_new(true).open(path)?;
    keep_newest_links(folder, MAX_VALID);
    Ok(format!("{PATH}?token={token}"))
}

/// Who is logged in. Secrets are stored as digests, so that comparing them reveals nothing by timing.
#[derive(Debug)]
pub struct DashboardLogin {
    folder: PathBuf,
    /// The gateway's own token, which logs in as often as its owner likes.
    gateway_token: Option<[u8; 32]>,
    /// Issued cookies.
    cookies: Mutex<Vec<[u8; 32]>>,
}

impl DashboardLogin {
    /// Accepts links of a folder, and the gateway's token.
    pub fn new(folder: PathBuf, gateway_token: Option<&SecretString>) -> DashboardLogin {
        let gateway_token = gateway_token.map(|token| digest(token.expose_secret()));
        DashboardLogin { folder, gateway_token, cookies: Mutex::default() }
    }

    /// The path of the dashboard with a new one-time token; without one if the folder cannot be written.
    pub fn new_link(&self) -> String {
        new_dashboard_link(&self.folder).unwrap_or_else(|error| {
            tracing::warn!(folder = %self.folder.display(), %error, "cannot make a dashboard link");
            PATH.to_owned()
        })
    }

    /// Redeems a token for a cookie; `None` if the token is unknown or used.
    pub(super) fn redeem(&self, token: &str) -> Option<String> {
        let cookie = random_token()?;
        // Removing a file succeeds for one caller only.
        let is_valid = self.is_gateway_token(token)
            || fs::remove_file(self.folder.join(link_name(token))).is_ok();
        is_valid.then(|| {
            push_bounded(&mut self.cookies(), digest(&cookie));
            cookie
        })
    }

    /// Whether this is the gateway's token.
    pub(super) fn is_gateway_token(&self, token: &str) -> bool {
        self.gateway_token == Some(digest(token))
    }

    /// Whether a cookie is valid.
    pub(super) fn has_cookie(&self, cookie: &str) -> bool {
        self.cookies().contains(&digest(cookie))
    }

    fn cookies(&self) -> MutexGuard<'_, Vec<[u8; 32]>> {
        self.cookies.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The file name of a link. A digest, so that no token can name another file.
fn link_name(token: &str) -> String {
    format!("{LINK_PREFIX}{}", hex(&digest(token)))
}

/// Removes all links that were not used.
pub(super) fn remove_unused_links(folder: &Path) {
    keep_newest_links(folder, 0);
}

fn keep_newest_links(folder: &Path, max_links: usize) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    let is_link = |entry: &fs::DirEntry| {
        entry.file_name().to_str().is_some_and(|name| name.starts_with(LINK_PREFIX))
    };
    let links = entries.filter_map(Result::ok).filter(is_link);
    let mut links: Vec<_> = links
        .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())))
        .collect();
    links.sort();
    let excess = links.len().saturating_sub(max_links);
    for (_, path) in links.into_iter().take(excess) {
        // Another process may have removed it.
        let _ = fs::remove_file(path);
    }
}

fn push_bounded(digests: &mut Vec<[u8; 32]>, digest: [u8; 32]) {
    digests.push(digest);
    if digests.len() > MAX_VALID {
        digests.remove(0);
    }
}

fn digest(text: &str) -> [u8; 32] {
    Sha256::digest(text.as_bytes()).into()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Random bytes in hex; `None` without a random source, which disables the login.
fn random_token() -> Option<String> {
    let mut bytes = [0; TOKEN_BYTES];
    let source = rustls::crypto::ring::default_provider().secure_random;
    source.fill(&mut bytes).ok()?;
    Some(hex(&bytes))
}
