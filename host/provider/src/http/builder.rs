//! The HTTP client of a provider, by its settings.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use reqwest::header::{HeaderMap, HeaderName, HeaderValue};
use reqwest::redirect::Policy;
use reqwest::{Proxy, Url};
use secrecy::SecretString;

use crate::connect::ConnectError;
use crate::settings::ProviderSettings;
use ctxhost_dialects::failure::{Classifier, PhraseError};

/// What the proxy setting says for no proxy at all.
const NO_PROXY: &str = "none";

/// Headers with these in their name hold secrets.
const SECRET_WORDS: [&str; 5] = ["key", "token", "auth", "secret", "cookie"];

/// Makes the parts of a client and says which setting is to blame where that fails.
pub(super) struct ClientBuilder<'a> {
    pub(super) provider: &'a str,
    pub(super) settings: &'a ProviderSettings,
}

impl ClientBuilder<'_> {
    pub(super) fn base_url(&self) -> Result<Url, ConnectError> {
        let url = Url::parse(self.settings.base_url());
        let url = url.map_err(|error| self.setting_error("base_url", error.to_string()))?;
        match url.has_host() && ["http", "https"].contains(&url.scheme()) {
            true => Ok(url),
            false => {
                Err(self.setting_error("base_url", "it must begin with http:// or https://".into()))
            }
        }
    }

    /// Who knows what refusals mean.
    pub(super) fn classifier(&self) -> Result<Arc<Classifier>, ConnectError> {
        let blame = |bad: PhraseError| self.setting_error("overflow_phrases", bad.to_string());
        Classifier::for_phrases(&self.settings.phrases()).map_err(blame)
    }

    pub(super) fn http(&self, base_url: &Url) -> Result<reqwest::Client, ConnectError> {
        // The client takes the cryptography of the process; an embedder may have chosen another one before.
        _ = rustls::crypto::ring::default_provider().install_default();
        let settings = self.settings;
        let builder = reqwest::Client::builder()
            .user_agent(concat!("ctxhost/", env!("CARGO_PKG_VERSION")))
            .connect_timeout(Duration::from_millis(settings.connect_timeout_ms))
            // A request that is sent on would take its key to a server that nobody named.
            .redirect(Policy::none());
        let builder = match settings.proxy.as_deref() {
            Some(NO_PROXY) => builder.no_proxy(),
            Some(proxy) => builder.proxy(self.proxy(proxy)?),
            // The system's proxy cannot reach what listens on this machine only.
            None if is_loopback(base_url) => builder.no_proxy(),
            None => builder,
        };
        builder
            .build()
            .map_err(|_| self.setting_error("proxy", "no HTTP client can be built".into()))
    }

    fn proxy(&self, proxy: &str) -> Result<Proxy, ConnectError> {
        // The error of the proxy repeats its address, and passwords stand in those.
        let problem = "write it as http://host:port or socks5://host:port, or `none`";
        let blame = || self.setting_error("proxy", problem.to_owned());
        let schemes = ["http://", "https://", "socks4://", "socks5://", "socks5h://"];
        if !schemes.iter().any(|scheme| proxy.starts_with(scheme)) {
            return Err(blame());
        }
        Proxy::all(proxy).map_err(|_| blame())
    }

    /// The headers of the config, and which of their values are secrets.
    pub(super) fn headers(&self) -> Result<(HeaderMap, Vec<SecretString>), ConnectError> {
        let mut headers = HeaderMap::new();
        let mut secrets = Vec::new();
        for (name, value) in &self.settings.headers {
            let blame = || self.setting_error("headers", format!("`{name}` is no header"));
            let key = HeaderName::from_bytes(name.as_bytes()).map_err(|_| blame())?;
            let mut written = HeaderValue::from_str(value).map_err(|_| blame())?;
            if SECRET_WORDS.iter().any(|word| key.as_str().contains(word)) {
                written.set_sensitive(true);
                // `Bearer abc` is shown nowhere, nor is `abc`.
                secrets.extend(value.split_whitespace().map(SecretString::from));
            }
            headers.insert(key, written);
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

/// A path below a base. One `/v1` is enough, whichever of the two brings it.
pub(super) fn join_url(base_url: &Url, path: &str) -> String {
    let base = base_url.as_str().trim_end_matches('/');
    let (first, rest) = match path.trim_start_matches('/').split_once('/') {
        Some((first, rest)) => (first, rest),
        None => ("", ""),
    };
    match !first.is_empty() && base_url.path().trim_end_matches('/').ends_with(&format!("/{first}"))
    {
        true => format!("{base}/{rest}"),
        false => format!("{base}/{}", path.trim_start_matches('/')),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_stands_below_its_base_once() {
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
