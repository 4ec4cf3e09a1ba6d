//! Who is asked: upstreams by dialect and by model, and how a request is sent to one of them.

mod connection_pool;
mod request_head;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::header::{CONTENT_LENGTH, EXPECT, HOST, PROXY_AUTHORIZATION};
use axum::http::uri::{Authority, PathAndQuery, Scheme};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, Uri};
use globset::{Glob, GlobMatcher};
use hyper::body::{Body as _, Incoming};

use self::connection_pool::UpstreamPool;
use self::request_head::set_key;
use super::error::GatewayError;
use super::outbound_proxy::{proxy_authorization, proxy_for};
use super::tls;
use ctxhost_config::{Config, is_url};
use ctxhost_dialects::DialectName;
use ctxhost_dialects::failure::Classifier;
use ctxhost_provider::{ApiKey, ProviderSettings, resolve_key};

pub(super) use request_head::RequestHead;

/// One address that answers.
#[derive(Debug)]
pub(super) struct Upstream {
    /// The provider's name, for its habits and its windows.
    pub(super) name: Arc<str>,
    /// How long an answer may stand still.
    pub(super) idle_timeout: Duration,
    /// What its refusals mean.
    pub(super) classifier: Arc<Classifier>,
    dialect: DialectName,
    scheme: Scheme,
    authority: String,
    /// The beginning of every path, without a slash at its end.
    prefix: String,
    /// The key that replaces the client's own.
    key: Option<ApiKey>,
    headers: HeaderMap,
    first_byte: Duration,
    /// What the proxy wants to see with every request.
    proxy_authorization: Option<HeaderValue>,
    connections: UpstreamPool,
}

/// Why nothing came back.
#[derive(Debug)]
pub(super) enum UpstreamError {
    /// No connection, or one that broke.
    Unreachable(String),
    /// Nothing came in time, in milliseconds.
    TimedOut(u128),
    /// There is no key.
    NoKey(String),
}

/// All upstreams.
#[derive(Debug)]
pub(super) struct Upstreams {
    by_model: Vec<(GlobMatcher, Arc<Upstream>)>,
    by_dialect: Vec<(DialectName, Arc<Upstream>)>,
}

impl Upstreams {
    /// As the config says; what is in `named` goes before it.
    pub(super) fn from_config(
        config: &Config,
        named: &BTreeMap<String, String>,
    ) -> Result<Upstreams, GatewayError> {
        let trusted = tls::trusted()?;
        let open = |dialect, of: &str| Upstream::open(config, dialect, of, &trusted).map(Arc::new);
        let mut by_dialect = Vec::new();
        for dialect in DialectName::INBOUND {
            let written = configured_for(named, dialect)
                .or_else(|| configured_for(&config.gateway.upstreams, dialect));
            let upstream = open(dialect, written.unwrap_or_default())?;
            by_dialect.push((dialect, upstream));
        }
        let mut by_model = Vec::new();
        for (pattern, of) in most_specific_first(&config.gateway.models) {
            let unusable = |error: globset::Error| GatewayError::Upstream {
                upstream: pattern.clone(),
                problem: error.to_string(),
            };
            let glob = Glob::new(pattern).map_err(unusable)?.compile_matcher();
            // The address is that of one upstream, whichever dialect it is asked in.
            by_model.push((glob, open(DialectName::OpenAiCompletions, of)?));
        }
        Ok(Upstreams { by_model, by_dialect })
    }

    /// Whether one of them is asked in every dialect: then it is the one for every key.
    pub(super) fn is_single_host(&self) -> bool {
        let mut hosts =
            self.by_dialect.iter().map(|(_, upstream)| (&upstream.scheme, &upstream.authority));
        let first = hosts.next();
        hosts.all(|host| Some(host) == first)
    }

    /// Refuses those that are the gateway itself, bound to this address: a request would go around until
    /// every place is taken.
    pub(super) fn refuse_itself(&self, bound: SocketAddr) -> Result<(), GatewayError> {
        let by_model = self.by_model.iter().map(|(_, upstream)| upstream);
        let mut all = by_model.chain(self.by_dialect.iter().map(|(_, upstream)| upstream));
        match all.find(|upstream| upstream.is_at(bound)) {
            None => Ok(()),
            Some(upstream) => Err(GatewayError::Upstream {
                upstream: upstream.authority.clone(),
                problem: "it is the gateway itself, which would ask itself for ever".into(),
            }),
        }
    }

    /// Whether it matters which model is asked.
    pub(super) fn has_model_routes(&self) -> bool {
        !self.by_model.is_empty()
    }

    /// Who answers.
    pub(super) fn select(
        &self,
        dialect: DialectName,
        model: Option<&str>,
    ) -> Option<Arc<Upstream>> {
        let by_model = model
            .and_then(|model| self.by_model.iter().find(|(pattern, _)| pattern.is_match(model)));
        let by_dialect = || self.by_dialect.iter().find(|(known, _)| *known == dialect);
        let chosen = by_model.map(|(_, upstream)| upstream);
        chosen.or_else(|| by_dialect().map(|(_, upstream)| upstream)).cloned()
    }
}

/// Patterns with more of their own letters go before those with fewer, and a name before a pattern.
fn most_specific_first(models: &BTreeMap<String, String>) -> Vec<(&String, &String)> {
    let is_wild = |letter: &char| matches!(letter, '*' | '?' | '[' | ']' | '{' | '}');
    let rank = |pattern: &str| {
        let wild = pattern.chars().filter(is_wild).count();
        (Reverse(pattern.chars().count() - wild), wild)
    };
    let mut all: Vec<_> = models.iter().collect();
    all.sort_by_key(|(pattern, _)| rank(pattern));
    all
}

/// What is written for a dialect. Both of OpenAI's have one owner, so one entry counts for the other.
fn configured_for(written: &BTreeMap<String, String>, dialect: DialectName) -> Option<&str> {
    let is = |word: &str, dialect: DialectName| DialectName::parse(word) == Some(dialect);
    let of = |dialect: DialectName| {
        written.iter().find(|(word, _)| is(word, dialect)).map(|(_, value)| value.as_str())
    };
    of(dialect).or_else(|| match dialect {
        DialectName::OpenAiCompletions => of(DialectName::OpenAiResponses),
        DialectName::OpenAiResponses => of(DialectName::OpenAiCompletions),
        _ => None,
    })
}

impl Upstream {
    /// A provider of the config, an address, or, where nothing is written, the dialect's owner.
    fn open(
        config: &Config,
        dialect: DialectName,
        written: &str,
        trusted: &rustls::ClientConfig,
    ) -> Result<Upstream, GatewayError> {
        let usual = || ProviderSettings::new(dialect);
        let (name, settings) = match config.provider(written) {
            Some(settings) => (written, settings.clone()),
            None if written.is_empty() => (default_provider(dialect), usual()),
            None if is_url(written) => (
                default_provider(dialect),
                ProviderSettings { base_url: Some(written.to_owned()), ..usual() },
            ),
            None => {
                return Err(GatewayError::Upstream {
                    upstream: written.to_owned(),
                    problem: "it is no provider of the config, and no address".into(),
                });
            }
        };
        let bad = |problem: String| GatewayError::Upstream {
            upstream: without_password(written),
            problem,
        };
        let base: Uri = settings.base_url().parse().map_err(|_| bad("no address".into()))?;
        let authority = base.authority().ok_or_else(|| bad("an address without a host".into()))?;
        if authority.as_str().contains('@') {
            return Err(bad("a password in an address; name a variable with api_key_env".into()));
        }
        let proxy = proxy_for(&base, settings.proxy.as_deref()).map_err(bad)?;
        Ok(Upstream {
            name: name.into(),
            idle_timeout: Duration::from_millis(settings.idle_timeout_ms),
            classifier: Classifier::for_phrases(&settings.phrases())?,
            dialect: settings.dialect,
            scheme: base.scheme().cloned().unwrap_or(Scheme::HTTP),
            authority: authority.to_string(),
            prefix: base.path().trim_end_matches('/').to_owned(),
            key: own_key(name, &settings)?,
            headers: own_headers(&settings).map_err(bad)?,
            first_byte: Duration::from_millis(settings.first_byte_timeout_ms),
            proxy_authorization: proxy_authorization(proxy.as_ref(), &base),
            connections: UpstreamPool::new(&settings, &base, proxy.as_ref(), trusted),
        })
    }

    /// Asks. The answer has begun when this comes back.
    pub(super) async fn send(
        &self,
        envelope: &RequestHead,
        body: Body,
    ) -> Result<Response<Incoming>, UpstreamError> {
        let is_empty = body.is_end_stream();
        let mut request = Request::new(body);
        *request.method_mut() = envelope.method.clone();
        *request.headers_mut() = envelope.headers.clone();
        let key = match &self.key {
            Some(key) => {
                key.read().await.map_err(|error| UpstreamError::NoKey(error.to_string()))?
            }
            None => None,
        };
        let uri = self.uri(&envelope.uri, key.is_some());
        *request.uri_mut() = uri.ok_or_else(|| UpstreamError::Unreachable("no address".into()))?;
        let headers = request.headers_mut();
        headers.remove(HOST);
        if is_empty && headers.contains_key(CONTENT_LENGTH) {
            // Whoever waits for a body that does not come takes the next request for it.
            headers.insert(CONTENT_LENGTH, HeaderValue::from_static("0"));
            headers.remove(EXPECT);
        }
        if let Some(key) = &key {
            set_key(self.dialect, key, headers);
        }
        for (name, value) in &self.headers {
            headers.insert(name.clone(), value.clone());
        }
        if let Some(shown) = &self.proxy_authorization {
            headers.insert(PROXY_AUTHORIZATION, shown.clone());
        }
        let asked = self.connections.request(request);
        match tokio::time::timeout(self.first_byte, asked).await {
            Ok(Ok(response)) => {
                if let (StatusCode::UNAUTHORIZED, Some(own)) = (response.status(), &self.key) {
                    // It may have expired: the next request asks for another one.
                    own.forget(key.as_ref()).await;
                }
                Ok(response)
            }
            Ok(Err(error)) => Err(UpstreamError::Unreachable(error_chain(&error))),
            Err(_) => Err(UpstreamError::TimedOut(self.first_byte.as_millis())),
        }
    }

    fn is_at(&self, bound: SocketAddr) -> bool {
        let Ok(authority) = self.authority.parse::<Authority>() else { return false };
        let usual_port = if self.scheme == Scheme::HTTPS { 443 } else { 80 };
        let host = authority.host().trim_matches(['[', ']']);
        let is_own = match host.parse::<IpAddr>() {
            Ok(ip) => ip == bound.ip() || ip.is_loopback() || ip.is_unspecified(),
            Err(_) => host.eq_ignore_ascii_case("localhost"),
        };
        is_own && authority.port_u16().unwrap_or(usual_port) == bound.port()
    }

    /// Its address, for people: host and port.
    pub(super) fn host(&self) -> &str {
        &self.authority
    }

    /// The client's path behind this base. What both have (`/v1`) stands once.
    fn uri(&self, asked: &Uri, without_key: bool) -> Option<Uri> {
        let path = asked.path();
        let version = self.prefix.rsplit('/').next().unwrap_or_default();
        let shared = (!version.is_empty())
            .then(|| path.strip_prefix('/')?.strip_prefix(version))
            .flatten()
            .filter(|rest| rest.is_empty() || rest.starts_with('/'));
        let mut whole = format!("{}{}", self.prefix, shared.unwrap_or(path));
        let query = asked.query().unwrap_or_default();
        let query = if without_key { request_head::without_key(query) } else { query.to_owned() };
        if !query.is_empty() {
            whole.push('?');
            whole.push_str(&query);
        }
        Uri::builder()
            .scheme(self.scheme.clone())
            .authority(self.authority.as_str())
            .path_and_query(PathAndQuery::try_from(whole).ok()?)
            .build()
            .ok()
    }
}

/// An address as it may be shown.
fn without_password(address: &str) -> String {
    match address.rsplit_once('@') {
        Some((_, rest)) => format!("...@{rest}"),
        None => address.to_owned(),
    }
}

/// Whose dialect it is, as providers are called.
fn default_provider(dialect: DialectName) -> &'static str {
    match dialect {
        DialectName::AnthropicMessages => "anthropic",
        DialectName::GoogleGenerativeAi => "google",
        DialectName::Ollama => "ollama",
        DialectName::OpenAiCompletions | DialectName::OpenAiResponses => "openai",
    }
}

/// The key that goes instead of the client's, where one is written; the usual variable of an owner
/// does not count, since clients bring keys of their own.
fn own_key(name: &str, settings: &ProviderSettings) -> Result<Option<ApiKey>, GatewayError> {
    let is_written = settings.api_key_env.is_some() || !settings.api_key_command.is_empty();
    Ok(match is_written {
        true => Some(resolve_key(name, settings)?),
        false => None,
    })
}

fn own_headers(settings: &ProviderSettings) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    for (name, value) in &settings.headers {
        let bad = || format!("`{name}` is no header that can be sent");
        let header = HeaderName::try_from(name).map_err(|_| bad())?;
        headers.insert(header, HeaderValue::try_from(value).map_err(|_| bad())?);
    }
    Ok(headers)
}

/// An error and what caused it, the innermost last.
fn error_chain(error: &(dyn std::error::Error + 'static)) -> String {
    let mut told: Vec<String> = Vec::new();
    let mut next = Some(error);
    while let Some(error) = next {
        let words = error.to_string();
        if told.last() != Some(&words) {
            told.push(words);
        }
        next = error.source();
    }
    told.join(": ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opened(written: &str) -> Upstream {
        let trusted = tls::trusted().unwrap();
        let config = Config::default();
        Upstream::open(&config, DialectName::OpenAiCompletions, written, &trusted).unwrap()
    }

    #[tokio::test]
    async fn what_base_and_path_share_stands_once() {
        let at = |base: &str, asked: &'static str| {
            opened(base).uri(&Uri::from_static(asked), false).unwrap().to_string()
        };
        let whole = "http://x/api/v1/chat/completions?a=b";
        assert_eq!(at("http://x/api/v1", "/v1/chat/completions?a=b"), whole);
        assert_eq!(at("http://x/api/v1/", "/chat/completions?a=b"), whole);
        assert_eq!(at("http://x/api", "/v1/chat/completions?a=b"), whole);
        assert_eq!(at("http://x/v1", "/v10/models"), "http://x/v1/v10/models");
        assert_eq!(at("http://x", "/"), "http://x/");
        assert_eq!(at("http://x:1/v1", "/v1"), "http://x:1/v1");
    }

    #[tokio::test]
    async fn a_key_in_the_address_goes_where_another_replaces_it() {
        let asked = Uri::from_static("/v1beta/models?key=secret&pageSize=2");
        let with = |without_key| opened("http://x").uri(&asked, without_key).unwrap().to_string();
        assert_eq!(with(true), "http://x/v1beta/models?pageSize=2");
        assert_eq!(with(false), "http://x/v1beta/models?key=secret&pageSize=2");
    }

    #[tokio::test]
    async fn an_error_does_not_show_a_password() {
        let trusted = tls::trusted().unwrap();
        let written = "http://me:secret@x:1/v1";
        let dialect = DialectName::OpenAiCompletions;
        let error = Upstream::open(&Config::default(), dialect, written, &trusted).unwrap_err();
        let told = error.to_string();
        assert!(!told.contains("secret") && told.contains("x:1/v1"), "{told}");
    }

    #[test]
    fn one_entry_counts_for_both_dialects_of_openai() {
        let written = BTreeMap::from([("openai".to_owned(), "http://x".to_owned())]);
        assert_eq!(configured_for(&written, DialectName::OpenAiResponses), Some("http://x"));
        assert_eq!(configured_for(&written, DialectName::OpenAiCompletions), Some("http://x"));
        assert_eq!(configured_for(&written, DialectName::AnthropicMessages), None);
    }
}
