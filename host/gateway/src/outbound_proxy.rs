//! How an upstream is reached: directly, or by the proxy that its provider or the environment names.

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

/// What the setting says for no proxy at all.
const NO_PROXY: &str = "none";

/// A proxy is reached in plain, or by TLS of its own.
type ProxyConnector = HttpsConnector<HttpConnector>;

type DialError = Box<dyn std::error::Error + Send + Sync>;

/// Makes the connections to one upstream.
#[derive(Clone)]
pub(super) struct UpstreamDialer {
    route: DialRoute,
}

#[derive(Clone)]
enum DialRoute {
    Direct(HttpConnector),
    /// The proxy is asked in the upstream's place, as it is for plain HTTP.
    Forwarding(ProxyConnector, Uri),
    Tunnel(Tunnel<ProxyConnector>),
    Socks(SocksV5<HttpConnector>),
}

/// The proxy for an upstream, `None` for none: that of the setting, else that of the system, which cannot
/// reach what listens on this machine only.
///
/// # Errors
///
/// What is wrong with it. Passwords stand in addresses of proxies, so none is repeated.
pub(super) fn proxy_for(base: &Uri, setting: Option<&str>) -> Result<Option<Intercept>, String> {
    let proxy = match setting {
        Some(NO_PROXY) => None,
        Some(proxy) => {
            let proxy = Matcher::builder().all(proxy).build().intercept(base);
            const HOW: &str =
                "write its proxy as http://host:port or socks5://host:port, or `none`";
            Some(proxy.ok_or(HOW)?)
        }
        None if is_loopback(base) => None,
        None => Matcher::from_system().intercept(base),
    };
    let scheme = proxy.as_ref().and_then(|proxy| proxy.uri().scheme_str());
    if scheme.is_some_and(|scheme| scheme.starts_with("socks4")) {
        Err("the gateway speaks HTTP and SOCKS5 with proxies, and not SOCKS4".into())
    } else {
        Ok(proxy)
    }
}

fn is_loopback(base: &Uri) -> bool {
    let host = base.host().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// What is shown to a proxy with every request, where it is asked in the upstream's place.
pub(super) fn proxy_authorization(proxy: Option<&Intercept>, base: &Uri) -> Option<HeaderValue> {
    let is_plain = base.scheme_str() == Some("http");
    proxy.filter(|_| is_plain)?.basic_auth().cloned()
}

impl UpstreamDialer {
    /// For an upstream.
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
            let way = match proxy.raw_auth() {
                Some((user, password)) => socks.with_auth(user.into(), password.into()),
                None => socks,
            };
            return UpstreamDialer { route: DialRoute::Socks(way) };
        }
        let to_proxy = HttpsConnectorBuilder::new()
            .with_tls_config(trusted.clone())
            .https_or_http()
            .enable_http1()
            .wrap_connector(http);
        if base.scheme_str() == Some("http") {
            return UpstreamDialer { route: DialRoute::Forwarding(to_proxy, uri) };
        }
        let tunnel = Tunnel::new(uri, to_proxy);
        let way = match proxy.basic_auth() {
            Some(shown) => tunnel.with_auth(shown.clone()),
            None => tunnel,
        };
        UpstreamDialer { route: DialRoute::Tunnel(way) }
    }
}

impl Service<Uri> for UpstreamDialer {
    type Response = UpstreamConnection;
    type Error = DialError;
    type Future = Pin<Box<dyn Future<Output = Result<UpstreamConnection, DialError>> + Send>>;

    /// Each of the ways is ready at any time.
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), DialError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        match &mut self.route {
            DialRoute::Direct(http) => {
                let dialled = http.call(to);
                Box::pin(async {
                    Ok(UpstreamConnection::new(MaybeHttpsStream::Http(dialled.await?)))
                })
            }
            DialRoute::Socks(socks) => {
                let dialled = socks.call(with_port(to));
                Box::pin(async {
                    Ok(UpstreamConnection::new(MaybeHttpsStream::Http(dialled.await?)))
                })
            }
            DialRoute::Tunnel(tunnel) => {
                let dialled = tunnel.call(to);
                Box::pin(async { Ok(UpstreamConnection::new(dialled.await?)) })
            }
            DialRoute::Forwarding(to_proxy, proxy) => {
                let dialled = to_proxy.call(proxy.clone());
                Box::pin(async {
                    Ok(UpstreamConnection {
                        is_forwarded: true,
                        ..UpstreamConnection::new(dialled.await?)
                    })
                })
            }
        }
    }
}

/// The address with the port of its scheme; a tunnel takes that of TLS for granted.
fn with_port(to: Uri) -> Uri {
    let host = to.host().filter(|_| to.port().is_none() && to.scheme_str() == Some("http"));
    let address = host.map(|host| Uri::builder().scheme("http").authority(format!("{host}:80")));
    let address = address.and_then(|address| address.path_and_query("/").build().ok());
    address.unwrap_or(to)
}

/// A connection; whoever uses it has to know whether a proxy reads what is asked.
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
    fn the_setting_goes_first_and_this_machine_needs_no_proxy() {
        let check = |base: &'static str, setting: Option<&str>| {
            let proxy = proxy_for(&Uri::from_static(base), setting);
            proxy.map(|proxy| proxy.map(|proxy| proxy.uri().to_string()))
        };
        let proxy = |uri: &str| Ok(Some(uri.to_owned()));
        let (away, here) = ("https://models.example/v1", "http://127.0.0.1:11434/v1");
        assert_eq!(check(away, Some("none")), Ok(None));
        assert_eq!(check(here, None), Ok(None));
        assert_eq!(check("http://[::1]:1/", None), Ok(None));
        assert_eq!(check(away, Some("http://me:word@proxy:3128")), proxy("http://proxy:3128/"));
        assert_eq!(check(here, Some("http://proxy:3128")), proxy("http://proxy:3128/"));
        assert_eq!(check(away, Some("socks5h://proxy:1080")), proxy("socks5h://proxy:1080/"));
        for wrong in ["ftp://me:word@proxy", "socks4://me:word@proxy:1080", "http://", ""] {
            let problem = check(away, Some(wrong)).unwrap_err();
            assert!(problem.contains("proxy") || problem.contains("proxies"), "{problem}");
            assert!(!problem.contains("word"), "{problem}");
        }
    }

    #[test]
    fn an_address_without_a_port_has_that_of_its_scheme() {
        let check = |to: &'static str, expected: &str| {
            assert_eq!(with_port(Uri::from_static(to)), expected);
        };
        check("http://models.example", "http://models.example:80/");
        check("http://[::1]/", "http://[::1]:80/");
        check("http://models.example:81/", "http://models.example:81/");
        check("https://models.example/", "https://models.example/");
    }

    #[test]
    fn a_password_is_shown_to_a_proxy_that_reads_what_is_asked_and_to_no_upstream() {
        let shown = |base: &'static str| {
            let base = Uri::from_static(base);
            let proxy = proxy_for(&base, Some("http://me:word@proxy:3128")).unwrap();
            proxy_authorization(proxy.as_ref(), &base)
        };
        assert_eq!(shown("http://models.example").unwrap(), "Basic bWU6d29yZA==");
        assert_eq!(shown("https://models.example"), None);
    }
}
