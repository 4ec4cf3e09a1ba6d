//! The connection pool of an upstream.

use std::time::Duration;

use axum::body::Body;
use axum::http::Uri;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::{Client, ResponseFuture};
use hyper_util::client::proxy::matcher::Intercept;
use hyper_util::rt::{TokioExecutor, TokioTimer};

use crate::outbound_proxy::UpstreamDialer;
use ctxhost_provider::ProviderSettings;

/// How long idle connections stay open: shorter than servers keep them, so that a request rarely meets one that is
/// closing.
const IDLE_CONNECTION: Duration = Duration::from_secs(20);

/// A pool of connections to one upstream.
#[derive(Debug)]
pub(super) struct UpstreamPool {
    client: Client<HttpsConnector<UpstreamDialer>, Body>,
}

impl UpstreamPool {
    pub(super) fn new(
        settings: &ProviderSettings,
        base: &Uri,
        proxy: Option<&Intercept>,
        trusted: &rustls::ClientConfig,
    ) -> UpstreamPool {
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_CONNECTION)
            .build(connector(settings, base, proxy, trusted));
        UpstreamPool { client }
    }

    /// Sends a request on an idle or a new connection.
    pub(super) fn request(&self, request: axum::http::Request<Body>) -> ResponseFuture {
        self.client.request(request)
    }
}

fn connector(
    settings: &ProviderSettings,
    base: &Uri,
    proxy: Option<&Intercept>,
    trusted: &rustls::ClientConfig,
) -> HttpsConnector<UpstreamDialer> {
    let mut http = HttpConnector::new();
    // The TLS connector passes `https` URIs to it.
    http.enforce_http(false);
    // Small requests must not wait for an acknowledgement (Nagle).
    http.set_nodelay(true);
    http.set_connect_timeout(Some(Duration::from_millis(settings.connect_timeout_ms)));
    HttpsConnectorBuilder::new()
        .with_tls_config(trusted.clone())
        .https_or_http()
        .enable_all_versions()
        .wrap_connector(UpstreamDialer::new(http, base, proxy, trusted))
}
