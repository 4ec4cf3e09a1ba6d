//! The HTTP server: binds the port, serves connections, and drains responses at shutdown.

use futures_util::TryFutureExt as _;
use futures_util::future::BoxFuture;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::{Response, StatusCode, Version};
use axum::middleware::{self, Next};
use axum::routing::get;
use axum::{Extension, Router};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_io_timeout::TimeoutWriter;
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tower_service::Service as _;

use super::auth::{AccessDenied, Authenticator};
use super::body_budget::BodyBudget;
use super::compress_api;
use super::cors;
use super::dashboard::{self, DashboardLogin, GatewayAnnouncement, TlsConnection};
use super::error::GatewayError;
use super::first_byte_timeout::FirstByteTimeout;
use super::handler;
use super::limits;
use super::live_stats::GatewayStats;
use super::options::{GatewayOptions, refuse_exposure};
use super::proxy::Proxy;
use super::responses::{self, error_response};
use super::routes::dialect_of;
use super::stalled_client::ResponseWatch;
use super::state::GatewayState;
use super::token_throttle::TokenThrottle;
use super::upstream::Upstreams;
use ctxhost_agent::Runtime;
use ctxhost_config::GatewaySettings;
use ctxhost_engine_api::transcript::tokens::group_thousands;

/// A gateway bound to its port. Connections queue until [`Gateway::serve`].
pub struct Gateway {
    listener: TcpListener,
    address: SocketAddr,
    acceptor: Option<TlsAcceptor>,
    state: Arc<GatewayState>,
    runtime: Runtime,
    routes: Router,
    login: Arc<DashboardLogin>,
    announcement: Option<GatewayAnnouncement>,
}

impl std::fmt::Debug for Gateway {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gateway").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Gateway {
    /// Loads the engines and binds the port.
    ///
    /// # Errors
    ///
    /// [`GatewayError`].
    pub fn bind(options: GatewayOptions) -> BoxFuture<'static, Result<Gateway, GatewayError>> {
        Box::pin(async move {
            let settings = options.config.gateway.clone();
            options.check_token()?;
            let acceptor = options.acceptor()?;
            let listen = options.listen.as_deref().unwrap_or(&settings.listen);
            let listen = resolve_address(listen).await?;
            if !options.allow_exposed {
                let has_token = options.token.is_some();
                refuse_exposure(listen, has_token, acceptor.is_some(), &settings.token_env)?;
            }
            let upstreams = Upstreams::from_config(&options.config, &options.upstreams)?;
            let runtime = options.runtime().await?;
            let stats = GatewayStats::start(&runtime, &options.config.telemetry);
            let edge = stats.edge();
            let proxy = Proxy::with_counts(
                runtime.clone(),
                &options.config,
                &options.state,
                edge.conversations,
            );
            let bind_error = |cause| GatewayError::Bind { address: listen.to_string(), cause };
            let listener = TcpListener::bind(listen).await.map_err(bind_error)?;
            let address = listener.local_addr().map_err(bind_error)?;
            upstreams.refuse_itself(address)?;
            let token = options.token.as_ref();
            let state = Arc::new(GatewayState {
                auth: Authenticator::new(token, address, &settings.hosts, &settings.origins),
                proxy,
                upstreams,
                token_throttle: TokenThrottle::new(edge.wrong_tokens),
                body_budget: BodyBudget::new(settings.max_bodies_bytes, edge.body_bytes),
                request_permits: limits::permits(settings.max_requests),
                is_closing: AtomicBool::new(false),
                models: options.config.models.clone(),
                settings,
                stats,
            });
            // Metrics contain no conversation text, so loopback needs no token, unless the gateway serves one client
            // only (`ctxhost run`). Browser pages of other origins must not read them in any case.
            let page_check = middleware::from_fn_with_state(state.clone(), refuse_cross_site);
            let counts = state.stats.metrics_routes().layer(page_check);
            let (guarded, open) = if address.ip().is_loopback() && !options.token_in_path {
                (Router::new(), counts)
            } else {
                (counts, Router::new())
            };
            let login = Arc::new(DashboardLogin::new(options.dashboard.clone(), token));
            let slot = runtime.clone();
            let dashboard = state.stats.dashboard_routes(login.clone(), move || slot.slot_status());
            let dashboard = if acceptor.is_some() {
                dashboard.layer(Extension(TlsConnection))
            } else {
                dashboard
            };
            let throttle = middleware::from_fn_with_state(state.clone(), delay_wrong_tokens);
            let routes = routes(&state, guarded, open.merge(dashboard.layer(throttle)));
            let routes =
                if options.token_in_path { with_path_token(&state, routes) } else { routes };
            let url = base_url(acceptor.is_some(), address);
            let announcement = announce(&options.dashboard, &url);
            Ok(Gateway { listener, address, acceptor, state, runtime, routes, login, announcement })
        })
    }

    /// The bound address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The base URL for programs on this machine: `http://127.0.0.1:8787`.
    pub fn url(&self) -> String {
        base_url(self.acceptor.is_some(), self.address)
    }

    /// The path of the dashboard with a new one-time token.
    pub fn dashboard_link(&self) -> String {
        self.login.new_link()
    }

    /// The runtime with its engines and sessions.
    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// Metrics and dashboard data.
    pub fn watch(&self) -> &GatewayStats {
        &self.state.stats
    }

    /// Serves until `end` is cancelled, then finishes running responses for at most `gateway.drain_ms`. Dropping this
    /// future aborts responses and loses unwritten session data.
    pub fn serve(self, end: CancellationToken) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let Gateway { listener, acceptor, state, runtime, routes, announcement, .. } = self;
            let permits = limits::permits(state.settings.max_connections);
            let mut connections = JoinSet::new();
            let server = Arc::new(ConnectionServer::new(&state.settings, acceptor, routes));
            let graceful = GracefulShutdown::new();
            while let Some(stream) = next_connection(&listener, &end).await {
                // Connections above `gateway.max_connections` wait here and in the kernel's accept
                // queue.
                let permit = tokio::select! {
                    permit = permits.clone().acquire_owned() => permit,
                    () = end.cancelled() => break,
                };
                let (server, watcher) = (server.clone(), graceful.watcher());
                connections.spawn(async move {
                    let _place = permit;
                    server.accept(stream, watcher).await;
                });
                // Finished tasks must be removed, or the set would grow with every connection.
                while connections.try_join_next().is_some() {}
            }
            drop(announcement);
            state.is_closing.store(true, Ordering::Relaxed);
            // New connections are refused from here on, so that a successor can bind the port.
            drop(listener);
            let drain = limits::bounded_duration(state.settings.drain_ms);
            if timeout(drain, graceful.shutdown()).await.is_err() {
                let drain_ms = state.settings.drain_ms;
                tracing::warn!(
                    drain_ms,
                    "aborted responses that exceeded gateway.drain_ms at shutdown"
                );
            }
            // Before the runtime closes its sessions.
            state.proxy.persist_all().await;
            runtime.shutdown().await;
        })
    }
}

/// The next connection; `None` at shutdown.
async fn next_connection(listener: &TcpListener, end: &CancellationToken) -> Option<TcpStream> {
    /// After an error such as too many open files, an immediate retry would fail again and use a CPU core.
    const PAUSE: Duration = Duration::from_millis(50);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = end.cancelled() => return None,
        };
        match accepted {
            Ok((stream, _)) => return Some(stream),
            Err(error) if is_client_abort(&error) => {}
            Err(error) => {
                tracing::error!(%error, "cannot accept a connection");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

fn is_client_abort(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset)
}

const TOO_MANY_WRONG_TOKENS: &str =
    "too many wrong tokens from this address; retry in a few seconds with the right one";

/// The most header lines of an HTTP/1 request. hyper's own 100 would refuse requests that `gateway.max_header_bytes` allows,
/// without a message.
const MAX_HEADERS: usize = 1_024;

/// A request extension: the address of the client.
#[derive(Clone, Copy, Debug)]
struct PeerAddress(Option<IpAddr>);

/// Serves single connections.
struct ConnectionServer {
    http: auto::Builder<TokioExecutor>,
    acceptor: Option<TlsAcceptor>,
    first_byte_timeout: Duration,
    stall: Duration,
    routes: Router,
}

impl ConnectionServer {
    fn new(settings: &GatewaySettings, acceptor: Option<TlsAcceptor>, routes: Router) -> Self {
        let patience = limits::bounded_duration(settings.client_timeout_ms);
        let mut http = auto::Builder::new(TokioExecutor::new());
        let mut http1 = http.http1();
        http1.timer(TokioTimer::new()).header_read_timeout(patience).max_headers(MAX_HEADERS);
        // HTTP/2 pings find dead clients. HTTP/1 has none: there the write timeout does.
        http.http2()
            .timer(TokioTimer::new())
            .keep_alive_interval(patience)
            .max_header_list_size(settings.max_header_bytes);
        let stall = limits::bounded_duration(settings.client_stall_ms);
        ConnectionServer { http, acceptor, first_byte_timeout: patience, stall, routes }
    }

    async fn accept(&self, stream: TcpStream, watcher: Watcher) {
        // Small events must not be delayed (Nagle); a socket without this option still works.
        let _ = stream.set_nodelay(true);
        let peer = stream.peer_addr().ok().map(|address| address.ip());
        let outcome = match &self.acceptor {
            None => self.serve(stream, watcher, peer).await,
            Some(acceptor) => match timeout(self.first_byte_timeout, acceptor.accept(stream)).await
            {
                Ok(Ok(stream)) => self.serve(stream, watcher, peer).await,
                Ok(Err(error)) => Err(error.into()),
                Err(_) => Err("TLS handshake timed out".into()),
            },
        };
        if let Err(error) = outcome {
            tracing::debug!(%error, "connection aborted");
        }
    }

    async fn serve(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        watcher: Watcher,
        peer: Option<IpAddr>,
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let routes = self.routes.clone();
        let watch = ResponseWatch::new();
        let responses = watch.clone();
        let service = service_fn(move |mut request: hyper::Request<Incoming>| {
            request.extensions_mut().insert(PeerAddress(peer));
            let watch = (request.version() == Version::HTTP_2).then(|| responses.clone());
            // An axum router is always ready, so `poll_ready` is not needed.
            let response = routes.clone().call(request);
            response.map_ok(move |response| match watch {
                Some(watch) => response.map(|body| watch.watch(body)),
                None => response,
            })
        });
        let mut stream = TimeoutWriter::new(FirstByteTimeout::new(stream, self.first_byte_timeout));
        stream.set_timeout(Some(self.stall));
        let connection = self.http.serve_connection(TokioIo::new(Box::pin(stream)), service);
        // Boxed: the future is large, and each enclosing future would contain it.
        let connection = Box::pin(watcher.watch(connection.into_owned()));
        tokio::select! {
            ended = connection => ended,
            () = watch.stalled(self.stall) => Err("the client does not take its response".into()),
        }
    }
}

/// All routes with their checks: `guarded` ones need the token, `open` ones do not.
fn routes(state: &Arc<GatewayState>, guarded: Router, open: Router) -> Router {
    let guarded = Router::new()
        .fallback(|State(state): State<Arc<GatewayState>>, request: Request| {
            handler::handle(state, request)
        })
        .with_state(state.clone())
        .merge(compress_api::routes(state))
        .merge(guarded)
        .layer(middleware::from_fn_with_state(state.clone(), require_token));
    // Layers run from the last to the first: caller check, metrics, token.
    let guarded = state.stats.measure(guarded);
    Router::new()
        .route("/", get(|| async { "ctxhost\n" }))
        .route("/health", get(health))
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .with_state(state.clone())
        .merge(open)
        .fallback_service(guarded)
        .layer(middleware::from_fn_with_state(state.clone(), check_caller))
}

/// The same routes below a path that begins with the token.
fn with_path_token(state: &Arc<GatewayState>, routes: Router) -> Router {
    let strip = |State(state): State<Arc<GatewayState>>, mut request: Request, next: Next| async move {
        state.auth.strip_path_token(&mut request);
        next.run(request).await
    };
    Router::new()
        .fallback_service(routes)
        .layer(middleware::from_fn_with_state(state.clone(), strip))
}

async fn health(State(state): State<Arc<GatewayState>>) -> Response<axum::body::Body> {
    let status = if state.is_ready() { "healthy" } else { "busy" };
    let body = serde_json::json!({
        "status": status, "service": "ctxhost", "version": env!("CARGO_PKG_VERSION"),
    });
    responses::json(StatusCode::OK, body.to_string())
}

async fn ready(State(state): State<Arc<GatewayState>>) -> (StatusCode, &'static str) {
    if state.is_ready() {
        (StatusCode::OK, "ready\n")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "not ready\n")
    }
}

async fn check_caller(
    State(state): State<Arc<GatewayState>>,
    request: Request,
    next: Next,
) -> Response<axum::body::Body> {
    let size = |(name, value): (&axum::http::HeaderName, &axum::http::HeaderValue)| {
        name.as_str().len() + value.len()
    };
    let bytes: usize = request.headers().iter().map(size).sum();
    if bytes as u64 > u64::from(state.settings.max_header_bytes) {
        let bytes = group_thousands(bytes as u64);
        let max = group_thousands(u64::from(state.settings.max_header_bytes));
        let message = format!(
            "the request headers have {bytes} bytes, above {max} (gateway.max_header_bytes)"
        );
        let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
        return denied_response(&request, AccessDenied { status, message });
    }
    let form = Authenticator::check_request(&request);
    if let Err(denied) = form.and_then(|()| state.auth.check_caller(&request)) {
        return denied_response(&request, denied);
    }
    match state.auth.allowed_origin(request.headers()) {
        None => next.run(request).await,
        Some(page) if cors::is_preflight(&request) => {
            cors::preflight_response(request.headers(), page)
        }
        Some(page) => cors::with_cors_headers(next.run(request).await, page),
    }
}

/// Protects routes that need no token from browser pages of other origins.
async fn refuse_cross_site(
    State(state): State<Arc<GatewayState>>,
    request: Request,
    next: Next,
) -> Response<axum::body::Body> {
    match state.auth.check_fetch_site(&request) {
        Ok(()) => next.run(request).await,
        Err(denied) => denied_response(&request, denied),
    }
}

async fn require_token(
    State(state): State<Arc<GatewayState>>,
    request: Request,
    next: Next,
) -> Response<axum::body::Body> {
    let page = state.auth.check_fetch_site(&request);
    match page.and_then(|()| state.auth.check_token(&request)) {
        Ok(()) => next.run(request).await,
        // A client without any key is not guessing tokens.
        Err(denied)
            if denied.status == StatusCode::UNAUTHORIZED && Authenticator::has_key(&request) =>
        {
            let peer = peer_of(&request);
            let denied = delayed_denial(&state, peer, denied).await;
            denied_response(&request, denied)
        }
        Err(denied) => denied_response(&request, denied),
    }
}

/// Delays wrong tokens of the dashboard like those of clients.
async fn delay_wrong_tokens(
    State(state): State<Arc<GatewayState>>,
    request: Request,
    next: Next,
) -> Response<axum::body::Body> {
    let has_token = dashboard::has_token(&request);
    let peer = peer_of(&request);
    let response = next.run(request).await;
    let is_wrong = has_token && response.status() == StatusCode::UNAUTHORIZED;
    if is_wrong && state.token_throttle.delay_wrong_token(peer).await.is_err() {
        return responses::text(StatusCode::TOO_MANY_REQUESTS, TOO_MANY_WRONG_TOKENS);
    }
    response
}

fn peer_of(request: &Request) -> Option<IpAddr> {
    request.extensions().get::<PeerAddress>().and_then(|PeerAddress(address)| *address)
}

/// The error for a wrong token, after its delay.
async fn delayed_denial(
    state: &GatewayState,
    peer: Option<IpAddr>,
    denied: AccessDenied,
) -> AccessDenied {
    match state.token_throttle.delay_wrong_token(peer).await {
        Ok(()) => denied,
        Err(_) => AccessDenied {
            status: StatusCode::TOO_MANY_REQUESTS,
            message: TOO_MANY_WRONG_TOKENS.into(),
        },
    }
}

fn denied_response(request: &Request, denied: AccessDenied) -> Response<axum::body::Body> {
    let dialect = dialect_of(request.uri(), request.headers());
    error_response(dialect, denied.status, &denied.message)
}

fn base_url(is_tls: bool, mut address: SocketAddr) -> String {
    let scheme = if is_tls { "https" } else { "http" };
    // Clients need one of the addresses.
    match address.ip() {
        IpAddr::V4(Ipv4Addr::UNSPECIFIED) => address.set_ip(Ipv4Addr::LOCALHOST.into()),
        IpAddr::V6(Ipv6Addr::UNSPECIFIED) => address.set_ip(Ipv6Addr::LOCALHOST.into()),
        _ => {}
    }
    format!("{scheme}://{address}")
}

/// Announces the gateway to `ctxhost ui`. It serves without an announcement as well.
fn announce(folder: &Path, url: &str) -> Option<GatewayAnnouncement> {
    let published = GatewayAnnouncement::publish(folder, url);
    let folder = folder.display();
    published
        .inspect_err(
            |error| tracing::warn!(%folder, %error, "`ctxhost ui` will not find this gateway"),
        )
        .ok()
}

async fn resolve_address(listen: &str) -> Result<SocketAddr, GatewayError> {
    let bad = |problem: String| GatewayError::Address { address: listen.to_owned(), problem };
    let mut addresses =
        tokio::net::lookup_host(listen).await.map_err(|error| bad(error.to_string()))?;
    addresses.next().ok_or_else(|| bad("the host name does not resolve".into()))
}
