//! Builds the HTTP client of a provider from its settings.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::redirect::Policy;
use reqwest::{Proxy, Url};
use secrecy::SecretString;

use crate::settings::{ConnectError, ProviderSettings};
use ctxhost_dialects::failure::{Classifier, PhraseError};

/// The proxy setting for no proxy.
const NO_PROXY: &str = "none";

/// Names of headers with these parts have secret values.
const SECRET_HEADER_PARTS: [&str; 5] = ["key", "token", "auth", "secret", "cookie"];

/// Builds the parts of a client; errors name the setting.
pub(super) struct ClientBuilder<'a> {
    pub(super) provider: &'a str,
    pub(super) settings: &'a ProviderSettings,
}

impl ClientBuilder<'_> {
    pub(super) fn base_url(&self) -> Result<Url, ConnectError> {
        let url = Url::parse(self.settings.base_url());
        let url = url.map_err(|error| self.setting_error("base_url", error.to_string()))?;
        if url.has_host() && ["http", "https"].contains(&url.scheme()) {
            return Ok(url);
        }
        Err(self.setting_error("base_url", "it must begin with http:// or https://".into()))
    }

    pub(super) fn classifier(&self) -> Result<Arc<Classifier>, ConnectError> {
        let invalid =
            |error: PhraseError| self.setting_error("overflow_phrases", error.to_string());
        Classifier::for_phrases(&self.settings.phrases()).map_err(invalid)
    }

    pub(super) fn http(&self, base_url: &Url) -> Result<reqwest::Client, ConnectError> {
        // The client uses the cryptography of the process, which an embedding program may have
        // chosen before.
        _ = rustls::crypto::ring::default_provider().install_default();
        let settings = self.settings;
        let builder = reqwest::Client::builder()
            .user_agent(concat!("ctxhost/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(Duration::from_millis(settings.connect_timeout_ms))
            // A redirect could send the key to another server.
            .redirect(Policy::none());
        let builder = match settings.proxy.as_deref() {
            Some(NO_PROXY) => builder.no_proxy(),
            Some(proxy) => builder.proxy(self.proxy(proxy)?),
            // The system's proxy cannot reach servers on this machine.
            None if is_loopback(base_url) => builder.no_proxy(),
            None => builder,
        };
        builder
            .build()
            .map_err(|_| self.setting_error("proxy", "no HTTP client can be built".into()))
    }

    fn proxy(&self, proxy: &str) -> Result<Proxy, ConnectError> {
        // The proxy's own error repeats its address, which may hold a password.
        let problem = "write it as http://host:port or socks5://host:port, or `none`";
        let invalid = || self.setting_error("proxy", problem.to_owned());
        let schemes = ["http://", "https://", "socks4://", "socks5://", "socks5h://"];
        if !schemes.iter().any(|scheme| proxy.starts_with(scheme)) {
            return Err(invalid());
        }
        Proxy::all(proxy).map_err(|_| invalid())
    }

    /// The headers of the config, and the secrets among their values.
    pub(super) fn headers(&self) -> Result<(HeaderMap, Vec<SecretString>), ConnectError> {
        let mut headers = HeaderMap::new();
        let mut secrets = Vec::new();
        for (name, value) in &self.settings.headers {
            let invalid = || self.setting_error("headers", format!("`{name}` is not a header"));
            let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| invalid())?;
            let mut header = HeaderValue::from_str(value).map_err(|_| invalid())?;
            if SECRET_HEADER_PARTS.iter().any(|part| name.as_str().contains(part)) {
                header.set_sensitive(true);
                // Neither `Bearer abc` nor `abc` may be shown.
                secrets.extend(value.split_whitespace().map(SecretString::from));
            }
            headers.insert(name, header);
        }
        Ok((headers, secrets))
    }

    fn setting_error(&self, setting: &'static str, problem: String) -> ConnectError {
        ConnectError::Setting { provider: self.provider.to_owned(), setting, problem }
    }
}

fn is_loopback(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// A path below a base URL.
pub(super) fn join_url(base_url: &Url, path: &str) -> String {
    let base = base_url.as_str().trim_end_matches('/');
    let (first, rest) = path.trim_start_matches('/').split_once('/').unwrap_or_default();
    // Both may bring the `/v1`: users write base URLs with and without it.
    let is_repeated =
        !first.is_empty() && base_url.path().trim_end_matches('/').ends_with(&format!("/{first}"));
    if is_repeated {
        return format!("{base}/{rest}");
    }
    format!("{base}/{}", path.trim_start_matches('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_version_is_joined_once() {
        let check = |base: &str, path, expected: &str| {
            assert_eq!(join_url(&Url::parse(base).unwrap(), path), expected);
        };
        check("https://a.example/v1", "/chat/completions", "https://a.example/v1/chat/completions");
        check("https://a.example/v1/", "/v1/messages", "https://a.example/v1/messages");
        check("https://a.example", "/v1/messages", "https://a.example/v1/messages");
        check("http://a/x", "/api/chat", "http://a/x/api/chat");
        check("http://a/v1beta", "/v1beta/m:s?alt=sse", "http://a/v1beta/m:s?alt=sse");
    }
}
