//! Access control: the token, the host name, and the origin of browser pages.

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use axum::http::header::{HOST, ORIGIN};
use axum::http::uri::{Authority, PathAndQuery};
use axum::http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Uri};
use secrecy::{ExposeSecret as _, SecretString};
use sha2::{Digest as _, Sha256};

/// The shortest accepted token, in characters. This many random letters and digits cannot be guessed.
pub(super) const MIN_TOKEN_CHARS: usize = 16;

/// The header with which a client names its session.
const SESSION_HEADER: &str = "x-ctxhost-session";

/// The header for the gateway's token, beside a key for the upstream.
pub(super) const TOKEN_HEADER: &str = "x-ctxhost-token";

/// Headers in which clients send keys, and therefore may send the token.
const TOKEN_HEADERS: [&str; 4] = [TOKEN_HEADER, "authorization", "x-api-key", "x-goog-api-key"];

/// Decides which requests are accepted.
#[derive(Debug)]
pub(super) struct Authenticator {
    /// The SHA-256 of the token.
    token: Option<[u8; 32]>,
    bound: SocketAddr,
    hosts: Vec<String>,
    origins: Vec<String>,
}

/// Marks a request whose path contained the token.
#[derive(Clone, Copy, Debug)]
struct PathToken;

/// Why a request is rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AccessDenied {
    pub(super) status: StatusCode,
    pub(super) message: String,
}

impl Authenticator {
    pub(super) fn new(
        token: Option<&SecretString>,
        bound: SocketAddr,
        hosts: &[String],
        origins: &[String],
    ) -> Authenticator {
        // Host names and origins are case-insensitive.
        let lower = |names: &[String]| names.iter().map(|name| name.to_ascii_lowercase()).collect();
        Authenticator {
            token: token.map(|token| digest(token.expose_secret().as_bytes())),
            bound,
            hosts: lower(hosts),
            origins: lower(origins),
        }
    }

    /// Checks the requested host name and the origin of a page.
    pub(super) fn check_caller<B>(&self, request: &Request<B>) -> Result<(), AccessDenied> {
        // A foreign name can resolve to this machine (DNS rebinding), and a page on it would then have the same origin as
        // the gateway. An address cannot be rebound.
        let denied = |status, message| Err(AccessDenied { status, message });
        let Some(host) = requested_host(request.uri(), request.headers()) else {
            let message =
                format!("the request has no Host header; send \"Host: {}\"", self.address());
            return denied(StatusCode::MISDIRECTED_REQUEST, message);
        };
        if !self.is_own_host(&host) {
            let message = format!(
                "the Host header {} names another host; use {}, or add the name to gateway.hosts",
                quoted(&host),
                self.address()
            );
            return denied(StatusCode::MISDIRECTED_REQUEST, message);
        }
        match request.headers().get(ORIGIN) {
            Some(origin)
                if !self.is_own_origin(origin, &host) && !self.is_allowed_origin(origin) =>
            {
                let origin = quoted(&String::from_utf8_lossy(origin.as_bytes()));
                let message = format!(
                    "pages of the origin {origin} may not call the gateway; add it to gateway.origins"
                );
                denied(StatusCode::FORBIDDEN, message)
            }
            _ => Ok(()),
        }
    }

    /// Checks that a request has one host (RFC 9112, 3.2), names one session at most, and is neither CONNECT nor TRACE,
    /// which would echo keys.
    pub(super) fn check_request<B>(request: &Request<B>) -> Result<(), AccessDenied> {
        let denied = |status, message: &str| Err(AccessDenied { status, message: message.into() });
        if request.headers().get_all(HOST).iter().count() > 1 {
            let message = "the request has several Host headers; send one";
            return denied(StatusCode::BAD_REQUEST, message);
        }
        let mut sessions = request.headers().get_all(SESSION_HEADER).iter();
        if sessions.next().is_some_and(|first| sessions.any(|other| other != first)) {
            let message = "the request names several sessions; send one x-ctxhost-session header";
            return denied(StatusCode::BAD_REQUEST, message);
        }
        match *request.method() {
            Method::CONNECT | Method::TRACE => {
                let message = "CONNECT and TRACE are not supported; use GET or POST";
                denied(StatusCode::NOT_IMPLEMENTED, message)
            }
            _ => Ok(()),
        }
    }

    /// The origin of the page, if it is one of `gateway.origins`.
    pub(super) fn allowed_origin(&self, headers: &HeaderMap) -> Option<HeaderValue> {
        headers.get(ORIGIN).filter(|origin| self.is_allowed_origin(origin)).cloned()
    }

    /// Rejects requests of other sites' pages without an `Origin` header (images, links), by `sec-fetch-site`.
    pub(super) fn check_fetch_site<B>(&self, request: &Request<B>) -> Result<(), AccessDenied> {
        let site = request.headers().get("sec-fetch-site").map(HeaderValue::as_bytes);
        // Browsers send no `Origin` with images and links, but always this header. Other clients send
        // neither.
        let is_cross_site = site.is_some_and(|site| site == b"cross-site" || site == b"same-site");
        if is_cross_site && !request.headers().contains_key(ORIGIN) {
            Err(AccessDenied {
                status: StatusCode::FORBIDDEN,
                message: "a page of another site sent the request without an Origin header; call \
                          the gateway with fetch(), and add the page's origin to gateway.origins"
                    .into(),
            })
        } else {
            Ok(())
        }
    }

    /// Removes the token from the start of the path, for clients that can be configured with a URL only.
    pub(super) fn strip_path_token<B>(&self, request: &mut Request<B>) {
        let uri = request.uri();
        let path = uri.path().strip_prefix('/').unwrap_or_default();
        let (segment, rest) = path.split_once('/').unwrap_or((path, ""));
        if !self.is_token_text(segment.as_bytes()) {
            return;
        }
        let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
        let mut parts = uri.clone().into_parts();
        parts.path_and_query = PathAndQuery::try_from(format!("/{rest}{query}")).ok();
        if let Ok(uri) = Uri::from_parts(parts) {
            *request.uri_mut() = uri;
            request.extensions_mut().insert(PathToken);
        }
    }

    /// Checks the token, if there is one.
    pub(super) fn check_token<B>(&self, request: &Request<B>) -> Result<(), AccessDenied> {
        let headers = request.headers();
        let mut in_headers = TOKEN_HEADERS.iter().flat_map(|name| headers.get_all(*name));
        let mut in_query = query_keys(request.uri());
        let has_token = in_headers.any(|value| self.is_token(value))
            // Google's SDKs send the key as `?key=`.
            || in_query.any(|key| self.is_token_text(key.as_bytes()));
        if self.token.is_none() || has_token || request.extensions().get::<PathToken>().is_some() {
            return Ok(());
        }
        Err(AccessDenied {
            status: StatusCode::UNAUTHORIZED,
            message: format!(
                "missing or wrong token; send it as the API key or in the header {TOKEN_HEADER}"
            ),
        })
    }

    /// Whether a request has any key.
    pub(super) fn has_key<B>(request: &Request<B>) -> bool {
        let mut in_headers = TOKEN_HEADERS.iter().flat_map(|name| request.headers().get_all(*name));
        in_headers.any(|value| !value.is_empty())
            || query_keys(request.uri()).any(|key| !key.is_empty())
    }

    /// Removes the token, which must not reach an upstream.
    pub(super) fn remove_token(&self, headers: &mut HeaderMap) {
        for name in TOKEN_HEADERS {
            let values: Vec<HeaderValue> = headers.get_all(name).iter().cloned().collect();
            if values.iter().any(|value| self.is_token(value)) {
                headers.remove(name);
                for value in values.into_iter().filter(|value| !self.is_token(value)) {
                    headers.append(name, value);
                }
            }
        }
        // With any value: an upstream has no use for this header.
        headers.remove(TOKEN_HEADER);
    }

    /// The URI without the token.
    pub(super) fn without_token(&self, uri: Uri) -> Uri {
        if !query_keys(&uri).any(|key| self.is_token_text(key.as_bytes())) {
            return uri;
        }
        let is_token = |pair: &str| {
            pair.strip_prefix("key=").is_some_and(|key| self.is_token_text(key.as_bytes()))
        };
        let kept = uri.query().unwrap_or_default().split('&').filter(|pair| !is_token(pair));
        let query = kept.collect::<Vec<_>>().join("&");
        let whole =
            if query.is_empty() { uri.path().into() } else { format!("{}?{query}", uri.path()) };
        whole.parse().unwrap_or_default()
    }

    fn is_token(&self, value: &HeaderValue) -> bool {
        let value = value.as_bytes();
        // The scheme is optional: in `x-api-key` the same token has none.
        let bare = match value.split_at_checked(7) {
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case(b"bearer ") => rest.trim_ascii(),
            _ => value,
        };
        self.is_token_text(bare)
    }

    /// Compares digests in constant time, so that timing does not reveal how much of a guess is right.
    fn is_token_text(&self, values: &[u8]) -> bool {
        let Some(token) = &self.token else { return false };
        let pairs = token.iter().zip(digest(values));
        // Without `black_box` the compiler may turn the fold into an early return.
        black_box(pairs.fold(0u8, |unlike, (one, other)| unlike | (one ^ other))) == 0
    }

    /// An address for messages: a wildcard address is one to listen on, not one to send to.
    fn address(&self) -> SocketAddr {
        let ip = match self.bound.ip() {
            IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
            ip => ip,
        };
        SocketAddr::new(ip, self.bound.port())
    }

    fn is_own_host(&self, name: &str) -> bool {
        let host = host_of(name);
        // Bound to a wildcard address, the gateway does not know its addresses and accepts any.
        match host.trim_matches(['[', ']']).parse::<IpAddr>() {
            Ok(ip) => ip.is_loopback() || ip == self.bound.ip() || self.bound.ip().is_unspecified(),
            Err(_) => {
                host == "localhost" || self.hosts.iter().any(|own| own == &host || own == name)
            }
        }
    }

    fn is_own_origin(&self, origin: &HeaderValue, host: &str) -> bool {
        let Ok(origin) = origin.to_str().map(str::to_ascii_lowercase) else { return false };
        origin.split_once("://").map(|(_, authority)| authority) == Some(host)
    }

    fn is_allowed_origin(&self, origin: &HeaderValue) -> bool {
        let origin = origin.to_str().map(str::to_ascii_lowercase);
        origin.is_ok_and(|origin| self.origins.contains(&origin))
    }
}

/// The requested host and port, in lower case.
fn requested_host(uri: &Uri, headers: &HeaderMap) -> Option<String> {
    let in_header = || headers.get(HOST)?.to_str().ok().map(str::to_owned);
    let name = uri.authority().map(Authority::to_string).or_else(in_header)?;
    Some(name.to_ascii_lowercase()).filter(|name| !name.is_empty())
}

/// A value of a client in a message, at most as long as a host name may be.
fn quoted(value: &str) -> String {
    const MAX_CHARS: usize = 253;
    format!("{:?}", value.chars().take(MAX_CHARS).collect::<String>())
}

/// The host without its port.
fn host_of(name: &str) -> String {
    let end = match name.rfind(']') {
        Some(end) => end + 1,
        None => name.find(':').unwrap_or(name.len()),
    };
    name.get(..end).unwrap_or(name).to_owned()
}

fn query_keys(uri: &Uri) -> impl Iterator<Item = &str> {
    let pairs = uri.query().unwrap_or_default().split('&');
    pairs.filter_map(|pair| pair.strip_prefix("key="))
}

fn digest(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(token: Option<&str>) -> Authenticator {
        let token = token.map(SecretString::from);
        let bound = "127.0.0.1:8787".parse().unwrap();
        let own = ["gate.example".to_owned()];
        Authenticator::new(token.as_ref(), bound, &own, &["https://app.example".to_owned()])
    }

    fn request(headers: &[(&str, &str)]) -> Request<()> {
        let mut request = Request::builder().uri("/v1/messages");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(()).unwrap()
    }

    #[test]
    fn a_request_names_one_session() {
        let check = |names: &[&str]| {
            let headers: Vec<_> = names.iter().map(|name| (SESSION_HEADER, *name)).collect();
            Authenticator::check_request(&request(&headers)).map_err(|denied| denied.status)
        };
        assert_eq!(check(&[]), Ok(()));
        assert_eq!(check(&["a"]), Ok(()));
        assert_eq!(check(&["a", "a"]), Ok(()), "a proxy may repeat it");
        assert_eq!(check(&["a", "b"]), Err(StatusCode::BAD_REQUEST));
        assert_eq!(check(&["a", "a", "b"]), Err(StatusCode::BAD_REQUEST));
    }

    #[test]
    fn only_own_host_names_are_accepted() {
        let check = |host: &str| access(None).check_caller(&request(&[("host", host)]));
        for own in ["localhost:8787", "127.0.0.1:8787", "127.0.0.2", "[::1]:1", "GATE.example:443"]
        {
            assert_eq!(check(own), Ok(()), "{own}");
        }
        for strange in
            ["evil.example", "localhost.evil.example", "10.0.0.1", "gate.example.evil", ""]
        {
            let denied = check(strange).unwrap_err();
            assert_eq!(denied.status, StatusCode::MISDIRECTED_REQUEST, "{strange}");
            assert!(denied.message.contains(strange), "{}", denied.message);
        }
        let missing = access(None).check_caller(&request(&[])).unwrap_err().message;
        assert_eq!(missing, "the request has no Host header; send \"Host: 127.0.0.1:8787\"");
    }

    #[test]
    fn a_message_shows_an_address_that_can_be_used() {
        for (bound, shown) in
            [("0.0.0.0:1", "127.0.0.1:1"), ("[::]:1", "[::1]:1"), ("10.0.0.1:1", "10.0.0.1:1")]
        {
            let access = Authenticator::new(None, bound.parse().unwrap(), &[], &[]);
            for headers in [&[][..], &[("host", "evil.example")]] {
                let message = access.check_caller(&request(headers)).unwrap_err().message;
                assert!(message.contains(shown), "{message}");
            }
        }
    }

    #[test]
    fn pages_of_listed_and_own_origins_are_accepted() {
        let check = |origin: &str| {
            let headers = [("host", "localhost:8787"), ("origin", origin)];
            access(None).check_caller(&request(&headers)).map_err(|denied| denied.message)
        };
        assert_eq!(check("http://localhost:8787"), Ok(()));
        assert_eq!(check("https://app.example"), Ok(()));
        for strange in ["null", "https://evil.example", "http://localhost:1", "localhost:8787"] {
            let message = check(strange).unwrap_err();
            assert!(message.contains(&format!("the origin {strange:?}")), "{message}");
        }
    }

    #[test]
    fn the_token_is_accepted_in_every_key_header() {
        let access = access(Some("a token"));
        let check = |headers: &[(&str, &str)]| access.check_token(&request(headers)).is_ok();
        assert!(check(&[("authorization", "Bearer a token")]));
        assert!(check(&[("authorization", "bearer  a token")]));
        assert!(check(&[("x-api-key", "a token")]));
        assert!(check(&[("x-goog-api-key", "a token")]));
        assert!(check(&[("x-ctxhost-token", "a token"), ("authorization", "Bearer other")]));
        assert!(!check(&[]));
        assert!(!check(&[("authorization", "Bearer a toke")]));
        assert!(!check(&[("authorization", "Bearer a tokens")]));
        assert!(!check(&[("x-api-key", "")]));
    }

    #[test]
    fn the_token_is_removed_and_keys_are_kept() {
        let access = access(Some("a token"));
        let mut headers = request(&[
            ("authorization", "Bearer a token"),
            ("x-api-key", "the upstream's"),
            ("x-ctxhost-token", "anything"),
        ])
        .headers()
        .clone();
        access.remove_token(&mut headers);
        assert_eq!(headers.keys().map(|name| name.as_str()).collect::<Vec<_>>(), ["x-api-key"]);
        let uri = |text: &str| access.without_token(text.parse().unwrap()).to_string();
        assert_eq!(uri("/a?key=a%20token&b=c"), "/a?key=a%20token&b=c");
        assert_eq!(uri("/a?b=c&key=x"), "/a?b=c&key=x");
    }

    #[test]
    fn the_token_may_be_the_first_part_of_the_path() {
        let access = access(Some("token"));
        let check = |path: &str| {
            let mut request = Request::builder().uri(path).body(()).unwrap();
            access.strip_path_token(&mut request);
            (request.uri().to_string(), access.check_token(&request).is_ok())
        };
        assert_eq!(check("/token/v1/messages?a=b"), ("/v1/messages?a=b".into(), true));
        assert_eq!(check("http://x:1/token/v1"), ("http://x:1/v1".into(), true));
        assert_eq!(check("/token"), ("/".into(), true));
        for strange in ["/v1/token", "/tokens/v1", "/toke/v1", "/", "//token"] {
            assert_eq!(check(strange), (strange.into(), false));
        }
    }

    #[test]
    fn a_token_among_several_keys_is_removed() {
        let access = access(Some("token"));
        let values = [("authorization", "Bearer other"), ("authorization", "Bearer token")];
        let request = request(&values);
        assert_eq!(access.check_token(&request), Ok(()));
        let mut headers = request.headers().clone();
        access.remove_token(&mut headers);
        let left: Vec<_> = headers.get_all("authorization").iter().collect();
        assert_eq!(left, ["Bearer other"]);
        let uri: Uri = "/v1beta/models?key=a&key=token&b=c".parse().unwrap();
        let asked = Request::builder().uri(uri.clone()).body(()).unwrap();
        assert_eq!(access.check_token(&asked), Ok(()));
        assert_eq!(access.without_token(uri), "/v1beta/models?key=a&b=c");
    }

    #[test]
    fn cross_site_requests_without_an_origin_are_rejected() {
        let check =
            |headers: &[(&str, &str)]| access(None).check_fetch_site(&request(headers)).is_ok();
        assert!(check(&[]));
        assert!(check(&[("sec-fetch-site", "none")]));
        assert!(check(&[("sec-fetch-site", "same-origin")]));
        assert!(check(&[("sec-fetch-site", "cross-site"), ("origin", "https://app.example")]));
        assert!(!check(&[("sec-fetch-site", "cross-site")]));
        assert!(!check(&[("sec-fetch-site", "same-site")]));
    }

    #[test]
    fn without_a_configured_token_none_is_required() {
        assert_eq!(access(None).check_token(&request(&[])), Ok(()));
    }
}
