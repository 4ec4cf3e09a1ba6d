//! Upstreams: selection by dialect and model, and sending requests to them.

mod connection_pool;
mod request_head;
mod upstream_error;

use std::borrow::Cow;
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
use serde::Deserialize;

use self::connection_pool::UpstreamPool;
use self::request_head::set_key;
use super::error::GatewayError;
use super::outbound_proxy::{proxy_authorization, proxy_for};
use super::proxy::Endpoint;
use super::tls;
use ctxhost_config::{Config, is_url};
use ctxhost_dialects::DialectName;
use ctxhost_dialects::failure::Classifier;
use ctxhost_provider::{ApiKey, ProviderSettings, resolve_key};

pub(super) use request_head::RequestHead;
pub(super) use upstream_error::UpstreamError;

/// One address that answers.
#[derive(Debug)]
pub(super) struct Upstream {
    /// The provider name, for window lookups and error phrases.
    pub(super) name: Arc<str>,
    /// The longest pause within a response.
    pub(super) idle_timeout: Duration,
    /// Classifies its errors.
    pub(super) classifier: Arc<Classifier>,
    dialect: DialectName,
    /// The setting of its address, for messages.
    setting: String,
    scheme: Scheme,
    authority: String,
    /// The path prefix, without a trailing slash.
    prefix: String,
    /// Parameters that requests without them get, such as `api-version=…`.
    query: String,
    /// The key that replaces the client's.
    key: Option<ApiKey>,
    headers: HeaderMap,
    first_byte: Duration,
    proxy_authorization: Option<HeaderValue>,
    connections: UpstreamPool,
}

/// All upstreams.
#[derive(Debug)]
pub(super) struct Upstreams {
    by_model: Vec<(GlobMatcher, Arc<Upstream>)>,
    by_dialect: Vec<(DialectName, Arc<Upstream>)>,
}

impl Upstreams {
    /// The upstreams of the config; `overrides` by dialect take precedence.
    pub(super) fn from_config(
        config: &Config,
        overrides: &BTreeMap<String, String>,
    ) -> Result<Upstreams, GatewayError> {
        let trusted = tls::trusted()?;
        let open = |dialect, written: ConfiguredUpstream<'_>| {
            Upstream::open(config, dialect, written, &trusted).map(Arc::new)
        };
        let mut by_dialect = Vec::new();
        for dialect in DialectName::INBOUND {
            let given = configured_for(overrides, dialect);
            let written = given.or_else(|| configured_for(&config.gateway.upstreams, dialect));
            let key = written.map_or_else(|| default_provider(dialect), |(key, _)| key);
            let setting = match given {
                Some(_) => format!("--upstream, or gateway.upstreams.{key}"),
                None => format!("gateway.upstreams.{key}"),
            };
            let value = written.map_or("", |(_, value)| value);
            by_dialect.push((dialect, open(dialect, ConfiguredUpstream { value, setting })?));
        }
        let mut by_model = Vec::new();
        for (pattern, of) in most_specific_first(&config.gateway.models) {
            let unusable = |error: globset::Error| GatewayError::Upstream {
                upstream: pattern.clone(),
                problem: error.to_string(),
            };
            let glob = Glob::new(pattern).map_err(unusable)?.compile_matcher();
            // Only the address matters here: a request keeps its own dialect.
            let setting = format!("gateway.models.{pattern:?}");
            let of = ConfiguredUpstream { value: of, setting };
            by_model.push((glob, open(DialectName::OpenAiCompletions, of)?));
        }
        Ok(Upstreams { by_model, by_dialect })
    }

    /// Whether all dialects have the same host, so that any credentials belong to it. Ollama has none.
    pub(super) fn is_single_host(&self) -> bool {
        let keyed = self.by_dialect.iter().filter(|(dialect, _)| *dialect != DialectName::Ollama);
        let mut hosts = keyed.map(|(_, upstream)| (&upstream.scheme, &upstream.authority));
        let first = hosts.next();
        hosts.all(|host| Some(host) == first)
    }

    /// Refuses an upstream that is the gateway itself: each request would loop until all permits are taken.
    pub(super) fn refuse_itself(&self, bound: SocketAddr) -> Result<(), GatewayError> {
        let by_model = self.by_model.iter().map(|(_, upstream)| upstream);
        let mut all = by_model.chain(self.by_dialect.iter().map(|(_, upstream)| upstream));
        match all.find(|upstream| upstream.is_at(bound)) {
            None => Ok(()),
            Some(upstream) => Err(GatewayError::Upstream {
                upstream: upstream.authority.clone(),
                problem: "it points back to the gateway itself; requests would loop".into(),
            }),
        }
    }

    /// The upstream of a shaped request.
    pub(super) fn select_for(&self, endpoint: &Endpoint, body: &[u8]) -> Option<Arc<Upstream>> {
        // The body is not parsed for its model unless a model has a route.
        let model = (!self.by_model.is_empty()).then(|| model_of(endpoint, body)).flatten();
        self.select(endpoint.upstream, model.as_deref())
    }

    /// The upstream of a model if one is configured for it, else of the dialect.
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

/// The model of a request, from its path or its body.
fn model_of(endpoint: &Endpoint, body: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct WireModelField<'a> {
        #[serde(borrow, default)]
        model: Option<Cow<'a, str>>,
    }
    let field: Option<WireModelField<'_>> = serde_json::from_slice(body).ok();
    let model = endpoint.model(field.and_then(|field| field.model).unwrap_or_default());
    (!model.is_empty()).then(|| model.into_owned())
}

/// Patterns with more literal characters first, and a name before a pattern.
fn most_specific_first(models: &BTreeMap<String, String>) -> Vec<(&String, &String)> {
    let is_wild = |character: &char| matches!(character, '*' | '?' | '[' | ']' | '{' | '}');
    let rank = |pattern: &str| {
        let wild = pattern.chars().filter(is_wild).count();
        (Reverse(pattern.chars().count() - wild), wild)
    };
    let mut all: Vec<_> = models.iter().collect();
    all.sort_by_key(|(pattern, _)| rank(pattern));
    all
}

/// The configured key and value for a dialect. Both OpenAI dialects have one owner, so each falls back to the other's.
fn configured_for(
    written: &BTreeMap<String, String>,
    dialect: DialectName,
) -> Option<(&str, &str)> {
    let is = |key: &str, dialect: DialectName| DialectName::parse(key) == Some(dialect);
    let of = |dialect: DialectName| {
        let found = written.iter().find(|(key, _)| is(key, dialect));
        found.map(|(key, value)| (key.as_str(), value.as_str()))
    };
    of(dialect).or_else(|| match dialect {
        DialectName::OpenAiCompletions => of(DialectName::OpenAiResponses),
        DialectName::OpenAiResponses => of(DialectName::OpenAiCompletions),
        _ => None,
    })
}

/// What the config or the command line says of an upstream.
struct ConfiguredUpstream<'a> {
    /// A provider or an address; empty if nothing is said.
    value: &'a str,
    /// The setting that it comes from.
    setting: String,
}

impl Upstream {
    /// Opens a provider of the config, an address, or, without a value, the dialect's owner.
    fn open(
        config: &Config,
        dialect: DialectName,
        ConfiguredUpstream { value: written, setting }: ConfiguredUpstream<'_>,
        trusted: &rustls::ClientConfig,
    ) -> Result<Upstream, GatewayError> {
        let usual = || ProviderSettings::new(dialect);
        let provider = config.provider(written);
        let setting = provider.map_or(setting, |_| format!("providers.{written}.base_url"));
        let (name, settings) = match provider {
            Some(settings) => (written, settings.clone()),
            None if written.is_empty() => (default_provider(dialect), usual()),
            None if is_url(written) => (
                default_provider(dialect),
                ProviderSettings { base_url: Some(written.to_owned()), ..usual() },
            ),
            None => {
                return Err(GatewayError::Upstream {
                    upstream: written.to_owned(),
                    problem: "not an address, and not a provider in the config; write https://host or add [providers.NAME]".into(),
                });
            }
        };
        let bad = |problem: String| GatewayError::Upstream {
            upstream: without_password(written),
            problem,
        };
        let base: Uri =
            settings.base_url().parse().map_err(|_| bad("not a URL; write https://host".into()))?;
        let authority = base
            .authority()
            .ok_or_else(|| bad("the URL has no host; write https://host".into()))?;
        if authority.as_str().contains('@') {
            return Err(bad("the URL contains a password; set api_key_env instead".into()));
        }
        let proxy = proxy_for(&base, settings.proxy.as_deref()).map_err(bad)?;
        let prefix = base.path().trim_end_matches('/');
        // Its own API is beside the one that is compatible with OpenAI's.
        let beside = prefix.strip_suffix("/v1").filter(|_| dialect == DialectName::Ollama);
        Ok(Upstream {
            name: name.into(),
            idle_timeout: Duration::from_millis(settings.idle_timeout_ms),
            classifier: Classifier::for_phrases(&settings.phrases())?,
            dialect: settings.dialect,
            setting,
            scheme: base.scheme().cloned().unwrap_or(Scheme::HTTP),
            authority: authority.to_string(),
            prefix: beside.unwrap_or(prefix).to_owned(),
            query: base.query().unwrap_or_default().to_owned(),
            key: own_key(name, &settings)?,
            headers: own_headers(&settings).map_err(bad)?,
            first_byte: Duration::from_millis(settings.first_byte_timeout_ms),
            proxy_authorization: proxy_authorization(proxy.as_ref(), &base),
            connections: UpstreamPool::new(&settings, &base, proxy.as_ref(), trusted),
        })
    }

    /// Sends a request and returns the response head.
    pub(super) async fn send(
        &self,
        head: &RequestHead,
        body: Body,
    ) -> Result<Response<Incoming>, UpstreamError> {
        let is_empty = body.is_end_stream();
        let mut request = Request::new(body);
        *request.method_mut() = head.method.clone();
        *request.headers_mut() = head.headers.clone();
        let key = match &self.key {
            Some(key) => {
                key.read().await.map_err(|error| UpstreamError::NoKey(error.to_string()))?
            }
            None => None,
        };
        let uri = self.uri(&head.uri, key.is_some());
        *request.uri_mut() =
            uri.ok_or_else(|| UpstreamError::NoResponse("invalid request path".into()))?;
        let headers = request.headers_mut();
        // hyper sets it from the URI.
        headers.remove(HOST);
        if is_empty && headers.contains_key(CONTENT_LENGTH) {
            // Otherwise the upstream would wait for that many bytes and read the next request as this one's body.
            headers.insert(CONTENT_LENGTH, HeaderValue::from_static("0"));
            headers.remove(EXPECT);
        }
        if let Some(key) = &key {
            set_key(self.dialect, key, headers);
        }
        // Configured headers replace the client's.
        for (name, value) in &self.headers {
            headers.insert(name.clone(), value.clone());
        }
        if let Some(value) = &self.proxy_authorization {
            headers.insert(PROXY_AUTHORIZATION, value.clone());
        }
        let sending = self.connections.request(request);
        match tokio::time::timeout(self.first_byte, sending).await {
            Ok(Ok(response)) => {
                if let (StatusCode::UNAUTHORIZED, Some(own)) = (response.status(), &self.key) {
                    // The key may have expired: the next request runs `api_key_command` again.
                    own.forget(key.as_ref()).await;
                }
                Ok(response)
            }
            Ok(Err(error)) => Err(UpstreamError::from_client(&error)),
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

    /// Host and port, for messages.
    pub(super) fn host(&self) -> &str {
        &self.authority
    }

    /// Its base URL without parameters, which may contain a key, for messages.
    pub(super) fn address(&self) -> String {
        format!("{}://{}{}", self.scheme, self.authority, self.prefix)
    }

    /// The setting of its address, for messages.
    pub(super) fn setting(&self) -> &str {
        &self.setting
    }

    /// The client's path below the base URL. What the one ends with and the other begins with (`/v1`, `/api/v1`) is not
    /// repeated.
    fn uri(&self, client_uri: &Uri, without_key: bool) -> Option<Uri> {
        let path = client_uri.path();
        let ends = self.prefix.match_indices('/').map(|(at, _)| self.prefix.get(at..));
        let mut rests = ends.flatten().filter_map(|end| path.strip_prefix(end));
        let shared = rests.find(|rest| rest.is_empty() || rest.starts_with('/'));
        let mut whole = format!("{}{}", self.prefix, shared.unwrap_or(path));
        let query = client_uri.query().unwrap_or_default();
        let query = if without_key { request_head::without_key(query) } else { query.to_owned() };
        let query = with_defaults(&self.query, query);
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

/// A query with the parameters that it lacks.
fn with_defaults(defaults: &str, mut query: String) -> String {
    let name_of = |pair: &str| pair.split('=').next().unwrap_or_default().to_owned();
    let names: Vec<String> = query.split('&').map(name_of).collect();
    let is_missing = |pair: &&str| !pair.is_empty() && !names.contains(&name_of(pair));
    for pair in defaults.split('&').filter(is_missing) {
        if !query.is_empty() {
            query.push('&');
        }
        query.push_str(pair);
    }
    query
}

/// An address for messages.
fn without_password(address: &str) -> String {
    match address.rsplit_once('@') {
        Some((_, rest)) => format!("...@{rest}"),
        None => address.to_owned(),
    }
}

/// The owner of a dialect.
fn default_provider(dialect: DialectName) -> &'static str {
    match dialect {
        DialectName::AnthropicMessages => "anthropic",
        DialectName::GoogleGenerativeAi => "google",
        DialectName::Ollama => "ollama",
        DialectName::OpenAiCompletions | DialectName::OpenAiResponses => "openai",
    }
}

/// The configured key. The provider's default environment variable is ignored here, because clients bring their own keys.
fn own_key(name: &str, settings: &ProviderSettings) -> Result<Option<ApiKey>, GatewayError> {
    let is_written = settings.api_key_env.is_some() || !settings.api_key_command.is_empty();
    Ok(if is_written { Some(resolve_key(name, settings)?) } else { None })
}

fn own_headers(settings: &ProviderSettings) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    for (name, value) in &settings.headers {
        let bad = || format!("`{name}` is not a valid header");
        let header = HeaderName::try_from(name).map_err(|_| bad())?;
        headers.insert(header, HeaderValue::try_from(value).map_err(|_| bad())?);
    }
    Ok(headers)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opened(written: &str) -> Upstream {
        let trusted = tls::trusted().unwrap();
        let config = Config::default();
        let written = ConfiguredUpstream { value: written, setting: String::new() };
        Upstream::open(&config, DialectName::OpenAiCompletions, written, &trusted).unwrap()
    }

    #[tokio::test]
    async fn a_shared_version_is_not_repeated() {
        let at = |base: &str, path: &'static str| {
            opened(base).uri(&Uri::from_static(path), false).unwrap().to_string()
        };
        let whole = "http://x/api/v1/chat/completions?a=b";
        assert_eq!(at("http://x/api/v1", "/v1/chat/completions?a=b"), whole);
        assert_eq!(at("http://x/api/v1/", "/chat/completions?a=b"), whole);
        assert_eq!(at("http://x/api", "/v1/chat/completions?a=b"), whole);
        assert_eq!(at("http://x", "/api/v1/chat/completions?a=b"), whole);
        assert_eq!(at("http://x/api/v1", "/api/v1/chat/completions?a=b"), whole);
        assert_eq!(at("http://x/v1", "/v10/models"), "http://x/v1/v10/models");
        assert_eq!(at("http://x", "/"), "http://x/");
        assert_eq!(at("http://x:1/v1", "/v1"), "http://x:1/v1");
    }

    #[tokio::test]
    async fn a_key_in_the_address_goes_where_another_replaces_it() {
        let response = Uri::from_static("/v1beta/models?key=secret&pageSize=2");
        let with =
            |without_key| opened("http://x").uri(&response, without_key).unwrap().to_string();
        assert_eq!(with(true), "http://x/v1beta/models?pageSize=2");
        assert_eq!(with(false), "http://x/v1beta/models?key=secret&pageSize=2");
    }

    #[tokio::test]
    async fn parameters_in_the_address_are_added_to_those_of_the_request() {
        let at = |path: &'static str| {
            let azure = opened("https://x/openai/deployments/d?api-version=1&tier=a");
            azure.uri(&Uri::from_static(path), true).unwrap().to_string()
        };
        let base = "https://x/openai/deployments/d/chat/completions";
        assert_eq!(at("/chat/completions"), format!("{base}?api-version=1&tier=a"));
        let own = at("/chat/completions?api-version=2&beta=true&key=k");
        assert_eq!(own, format!("{base}?api-version=2&beta=true&tier=a"));
    }

    #[tokio::test]
    async fn an_error_does_not_show_a_password() {
        let trusted = tls::trusted().unwrap();
        let value = "http://me:secret@x:1/v1";
        let written = ConfiguredUpstream { value, setting: String::new() };
        let dialect = DialectName::OpenAiCompletions;
        let error = Upstream::open(&Config::default(), dialect, written, &trusted).unwrap_err();
        let messages = error.to_string();
        assert!(!messages.contains("secret") && messages.contains("x:1/v1"), "{messages}");
    }

    #[tokio::test]
    async fn an_upstream_that_closes_a_connection_is_not_called_unreachable() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let send = async || {
            let head = RequestHead {
                method: axum::http::Method::GET,
                uri: Uri::from_static("/v1/models"),
                headers: HeaderMap::new(),
            };
            opened(&address).send(&head, Body::empty()).await.unwrap_err()
        };
        let closing = async { drop(listener.accept().await.unwrap()) };
        let (error, ()) = tokio::join!(send(), closing);
        assert!(matches!(error, UpstreamError::NoResponse(_)), "{error:?}");
        drop(listener);
        let error = send().await;
        assert!(matches!(error, UpstreamError::Unreachable(_)), "{error:?}");
    }

    #[test]
    fn one_entry_counts_for_both_dialects_of_openai() {
        let written = BTreeMap::from([("openai".to_owned(), "http://x".to_owned())]);
        let found = Some(("openai", "http://x"));
        assert_eq!(configured_for(&written, DialectName::OpenAiResponses), found);
        assert_eq!(configured_for(&written, DialectName::OpenAiCompletions), found);
        assert_eq!(configured_for(&written, DialectName::AnthropicMessages), None);
    }
}
