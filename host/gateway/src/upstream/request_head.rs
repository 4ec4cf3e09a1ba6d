//! What is sent but for the body, and the keys in it.

use axum::http::header::{AUTHORIZATION, COOKIE};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, Uri};
use secrecy::{ExposeSecret as _, SecretString};

use ctxhost_dialects::DialectName;

/// The headers in which clients show keys.
const KEY_HEADERS: [&str; 3] = ["authorization", "x-api-key", "x-goog-api-key"];

/// What is sent, but for the body.
#[derive(Clone, Debug)]
pub(crate) struct RequestHead {
    pub(crate) method: Method,
    /// The client's, with path and query.
    pub(crate) uri: Uri,
    /// Without those that are meant for the gateway alone.
    pub(crate) headers: HeaderMap,
}

impl RequestHead {
    /// Takes out whatever shows who the client is.
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

/// A query without the key that may stand in it.
pub(super) fn without_key(query: &str) -> String {
    let kept = query.split('&').filter(|pair| !pair.starts_with("key="));
    kept.collect::<Vec<_>>().join("&")
}

/// The upstream's own key in place of whatever the client has shown.
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
        value.set_sensitive(true);
        headers.insert(name, value);
    }
}
