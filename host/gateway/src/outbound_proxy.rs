//! Connects to upstreams, directly or through the proxy of their provider or the environment.

use std::io::{self, IoSlice};
use std::net::IpAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::http::{HeaderValue, Uri};
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::client::legacy::connect::proxy::{SocksV5, Tunnel};
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector};
use hyper_util::client::proxy::matcher::{Intercept, Matcher};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tower_service::Service;

/// The setting for no proxy.
const NO_PROXY: &str = "none";

/// A connector to the proxy itself, with or without TLS.
type ProxyConnector = HttpsConnector<HttpConnector>;

type DialError = Box<dyn std::error::Error + Send + Sync>;

/// Dials one upstream.
#[derive(Clone)]
pub(super) struct UpstreamDialer {
    route: DialRoute,
}

#[derive(Clone)]
enum DialRoute {
    Direct(HttpConnector),
    /// An HTTP proxy that forwards plain HTTP requests.
    Forwarding(ProxyConnector, Uri),
    Tunnel(Tunnel<ProxyConnector>),
    Socks(SocksV5<HttpConnector>),
}

/// The proxy for an upstream: that of the setting, else that of the environment, except for loopback; `None` for
/// none.
///
/// # Errors
///
/// What is wrong with the setting. Its URL is not repeated, since it may contain a password.
pub(super) fn proxy_for(base: &Uri, setting: Option<&str>) -> Result<Option<Intercept>, String> {
    let proxy = match setting {
        Some(NO_PROXY) => None,
        Some(proxy) => {
            let proxy = Matcher::builder().all(proxy).build().intercept(base);
            const FORMAT: &str =
                "invalid proxy setting; write http://host:port, socks5://host:port or `none`";
            Some(proxy.ok_or(FORMAT)?)
        }
        // A proxy would connect to its own loopback.
        None if is_loopback(base) => None,
        None => Matcher::from_system().intercept(base),
    };
    let scheme = proxy.as_ref().and_then(|proxy| proxy.uri().scheme_str());
    if scheme.is_some_and(|scheme| scheme.starts_with("socks4")) {
        Err("SOCKS4 proxies are not supported; use an HTTP or SOCKS5 proxy".into())
    } else {
        Ok(proxy)
    }
}

fn is_loopback(base: &Uri) -> bool {
    let host = base.host().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// The `proxy-authorization` header for a forwarding proxy. A tunnel sends it with CONNECT only.
pub(super) fn proxy_authorization(proxy: Option<&Intercept>, base: &Uri) -> Option<HeaderValue> {
    let is_plain = base.scheme_str() == Some("http");
    // In a tunnel the header would reach the upstream, which must not learn the password of the proxy.
    proxy.filter(|_| is_plain)?.basic_auth().cloned()
}

impl UpstreamDialer {
    /// A dialer for an upstream.
    pub(super) fn new(
        http: HttpConnector,
        base: &Uri,
        proxy: Option<&Intercept>,
        trusted: &rustls::ClientConfig,
    ) -> UpstreamDialer {
        let Some(proxy) = proxy else { return UpstreamDialer { route: DialRoute::Direct(http) } };
        let uri = proxy.uri().clone();
        if uri.scheme_str().is_some_and(|scheme| scheme.starts_with("socks")) {
            let socks = SocksV5::new(uri, http);
            let connector = match proxy.raw_auth() {
                Some((user, password)) => socks.with_auth(user.into(), password.into()),
                None => socks,
            };
            return UpstreamDialer { route: DialRoute::Socks(connector) };
        }
        // Plain HTTP goes to the proxy in absolute form (RFC 9112, 3.2.2). TLS needs a tunnel.
        let to_proxy = HttpsConnectorBuilder::new()
            .with_tls_config(trusted.clone())
            .https_or_http()
            // CONNECT over HTTP/2 is another protocol, which proxies rarely speak.
            .enable_http1()
            .wrap_connector(http);
        if base.scheme_str() == Some("http") {
            return UpstreamDialer { route: DialRoute::Forwarding(to_proxy, uri) };
        }
        let tunnel = Tunnel::new(uri, to_proxy);
        let connector = match proxy.basic_auth() {
            Some(authorization) => tunnel.with_auth(authorization.clone()),
            None => tunnel,
        };
        UpstreamDialer { route: DialRoute::Tunnel(connector) }
    }
}

impl Service<Uri> for UpstreamDialer {
    type Response = UpstreamConnection;
    type Error = DialError;
    type Future = Pin<Box<dyn Future<Output = Result<UpstreamConnection, DialError>> + Send>>;

    /// All connectors are always ready.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), DialError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        match &mut self.route {
            DialRoute::Direct(http) => {
                let dialing = http.call(to);
                Box::pin(async {
                    Ok(UpstreamConnection::new(MaybeHttpsStream::Http(dialing.await?)))
                })
            }
            DialRoute::Socks(socks) => {
                let dialing = socks.call(with_port(to));
                Box::pin(async {
                    Ok(UpstreamConnection::new(MaybeHttpsStream::Http(dialing.await?)))
                })
            }
            DialRoute::Tunnel(tunnel) => {
                let dialing = tunnel.call(to);
                Box::pin(async { Ok(UpstreamConnection::new(dialing.await?)) })
            }
            DialRoute::Forwarding(to_proxy, proxy) => {
                let dialing = to_proxy.call(proxy.clone());
                Box::pin(async {
                    Ok(UpstreamConnection {
                        is_forwarded: true,
                        ..UpstreamConnection::new(dialing.await?)
                    })
                })
            }
        }
    }
}

/// The URI with the default port of plain HTTP, which the SOCKS connector does not add.
fn with_port(to: Uri) -> Uri {
    let host = to.host().filter(|_| to.port().is_none() && to.scheme_str() == Some("http"));
    let address = host.map(|host| Uri::builder().scheme("http").authority(format!("{host}:80")));
    let address = address.and_then(|address| address.path_and_query("/").build().ok());
    address.unwrap_or(to)
}

/// A connection to an upstream, which knows whether a proxy forwards its requests.
pub(super) struct UpstreamConnection {
    stream: MaybeHttpsStream<TokioIo<TcpStream>>,
    is_forwarded: bool,
}

impl UpstreamConnection {
    fn new(stream: MaybeHttpsStream<TokioIo<TcpStream>>) -> UpstreamConnection {
        UpstreamConnection { stream, is_forwarded: false }
    }

    fn stream(self: Pin<&mut Self>) -> Pin<&mut MaybeHttpsStream<TokioIo<TcpStream>>> {
        Pin::new(&mut self.get_mut().stream)
    }
}

impl Connection for UpstreamConnection {
    fn connected(&self) -> Connected {
        self.stream.connected().proxy(self.is_forwarded)
    }
}

impl Read for UpstreamConnection {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        self.stream().poll_read(context, buffer)
    }
}

impl Write for UpstreamConnection {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.stream().poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.stream().poll_shutdown(context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.stream().poll_write_vectored(context, pieces)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_setting_wins_and_loopback_needs_no_proxy() {
        let check = |base: &'static str, setting: Option<&str>| {
            let proxy = proxy_for(&Uri::from_static(base), setting);
            proxy.map(|proxy| proxy.map(|proxy| proxy.uri().to_string()))
        };
        let proxy = |uri: &str| Ok(Some(uri.to_owned()));
        let (remote, local) = ("https://models.example/v1", "http://127.0.0.1:11434/v1");
        assert_eq!(check(remote, Some("none")), Ok(None));
        assert_eq!(check(local, None), Ok(None));
        assert_eq!(check("http://[::1]:1/", None), Ok(None));
        assert_eq!(check(remote, Some("http://me:word@proxy:3128")), proxy("http://proxy:3128/"));
        assert_eq!(check(local, Some("http://proxy:3128")), proxy("http://proxy:3128/"));
        assert_eq!(check(remote, Some("socks5h://proxy:1080")), proxy("socks5h://proxy:1080/"));
        for wrong in ["ftp://me:word@proxy", "socks4://me:word@proxy:1080", "http://", ""] {
            let problem = check(remote, Some(wrong)).unwrap_err();
            assert!(problem.contains("proxy") || problem.contains("proxies"), "{problem}");
            assert!(!problem.contains("word"), "{problem}");
        }
    }

    #[test]
    fn a_missing_port_is_that_of_the_scheme() {
        let check = |to: &'static str, expected: &str| {
            assert_eq!(with_port(Uri::from_static(to)), expected);
        };
        check("http://models.example", "http://models.example:80/");
        check("http://[::1]/", "http://[::1]:80/");
        check("http://models.example:81/", "http://models.example:81/");
        check("https://models.example/", "https://models.example/");
    }

    #[test]
    fn a_password_is_sent_to_a_forwarding_proxy_only() {
        let authorization = |base: &'static str| {
            let base = Uri::from_static(base);
            let proxy = proxy_for(&base, Some("http://me:word@proxy:3128")).unwrap();
            proxy_authorization(proxy.as_ref(), &base)
        };
        assert_eq!(authorization("http://models.example").unwrap(), "Basic bWU6d29yZA==");
        assert_eq!(authorization("https://models.example"), None);
    }
}
