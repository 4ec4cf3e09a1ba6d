//! The head of an upstream request, and the credentials in it.

use axum::http::header::{AUTHORIZATION, COOKIE};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};
use secrecy::{ExposeSecret as _, SecretString};

use ctxhost_dialects::DialectName;

/// The headers in which clients send keys.
const KEY_HEADERS: [&str; 3] = ["authorization", "x-api-key", "x-goog-api-key"];

/// Method, URI and headers of a request.
#[derive(Clone, Debug)]
pub(crate) struct RequestHead {
    pub(crate) method: Method,
    /// The client's path and query.
    pub(crate) uri: Uri,
    /// Without the gateway's own headers.
    pub(crate) headers: HeaderMap,
}

impl RequestHead {
    /// Removes all credentials.
    pub(crate) fn remove_credentials(&mut self) {
        for name in KEY_HEADERS {
            self.headers.remove(name);
        }
        self.headers.remove(COOKIE);
        let query = without_key(self.uri.query().unwrap_or_default());
        let path = self.uri.path();
        let whole = if query.is_empty() { path.to_owned() } else { format!("{path}?{query}") };
        self.uri = whole.parse().unwrap_or_default();
    }
}

/// A query without its API key.
pub(super) fn without_key(query: &str) -> String {
    let kept = query.split('&').filter(|pair| !pair.starts_with("key="));
    kept.collect::<Vec<_>>().join("&")
}

/// Replaces the client's credentials by the upstream's key.
pub(super) fn set_key(dialect: DialectName, key: &SecretString, headers: &mut HeaderMap) {
    for name in KEY_HEADERS {
        headers.remove(name);
    }
    let (name, value) = match dialect {
        DialectName::AnthropicMessages => {
            (HeaderName::from_static("x-api-key"), key.expose_secret().to_owned())
        }
        DialectName::GoogleGenerativeAi => {
            (HeaderName::from_static("x-goog-api-key"), key.expose_secret().to_owned())
        }
        _ => (AUTHORIZATION, format!("Bearer {}", key.expose_secret())),
    };
    if let Ok(mut value) = HeaderValue::try_from(value) {
        // Keeps the key out of HPACK's dynamic table and of debug output.
        value.set_sensitive(true);
        headers.insert(name, value);
    }
}
