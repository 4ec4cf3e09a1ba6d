//! The server: it binds, lets connections in, and lets streams end before it does.

use futures_util::future::BoxFuture;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::extract::{Request, State};
use axum::http::{Response, StatusCode};
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
use super::dashboard::{self, TlsConnection};
use super::error::GatewayError;
use super::error_response::error_response;
use super::first_byte_timeout::FirstByteTimeout;
use super::handler;
use super::limits;
use super::live_stats::GatewayStats;
use super::options::{GatewayOptions, refuse_exposure};
use super::proxy::ProxyHandle;
use super::routes::dialect_of;
use super::state::GatewayState;
use super::token_throttle::TokenThrottle;
use super::upstream::Upstreams;
use ctxhost_agent::Runtime;
use ctxhost_config::GatewaySettings;

/// A gateway that is bound to its port. Requests wait until it serves.
pub struct Gateway {
    listener: TcpListener,
    address: SocketAddr,
    acceptor: Option<TlsAcceptor>,
    house: Arc<GatewayState>,
    runtime: Runtime,
    routes: Router,
}

impl std::fmt::Debug for Gateway {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gateway").field("address", &self.address).finish_non_exhaustive()
    }
}

impl Gateway {
    /// Opens the engines, binds the port.
    ///
    /// # Errors
    ///
    /// [`GatewayError`].
    pub fn bind(options: GatewayOptions) -> BoxFuture<'static, Result<Gateway, GatewayError>> {
        Box::pin(async move {
            let settings = options.config.gateway.clone();
            options.check_token()?;
            let acceptor = options.acceptor()?;
            let wanted = options.listen.as_deref().unwrap_or(&settings.listen);
            let wanted = resolve_address(wanted).await?;
            if !options.allow_exposed {
                refuse_exposure(wanted, options.token.is_some(), acceptor.is_some())?;
            }
            let upstreams = Upstreams::from_config(&options.config, &options.upstreams)?;
            let runtime = options.runtime().await?;
            let watch = GatewayStats::start(&runtime, &options.config.telemetry);
            let edge = watch.edge();
            let (state, conversations) = (&options.state, edge.conversations);
            let exchange =
                ProxyHandle::with_counts(runtime.clone(), &options.config, state, conversations);
            let listener = TcpListener::bind(wanted);
            let unbound = |cause| GatewayError::Bind { address: wanted.to_string(), cause };
            let listener = listener.await.map_err(unbound)?;
            let address = listener.local_addr().map_err(unbound)?;
            upstreams.refuse_itself(address)?;
            let token = options.token.as_ref();
            let house = Arc::new(GatewayState {
                auth: Authenticator::new(token, address, &settings.hosts, &settings.origins),
                proxy: Arc::new(exchange),
                upstreams,
                token_throttle: TokenThrottle::new(edge.wrong_tokens),
                body_budget: BodyBudget::new(settings.max_bodies_bytes, edge.body_bytes),
                request_permits: limits::permits(settings.max_requests),
                is_closing: AtomicBool::new(false),
                models: options.config.models.clone(),
                settings,
                stats: watch,
            });
            // What is counted holds no word of a conversation, but it is nobody's business elsewhere, and none
            // of others on this machine where the gateway is for one client.
            let see = middleware::from_fn_with_state(house.clone(), refuse_cross_site);
            let counts = house.stats.metrics_routes().layer(see);
            let (guarded, open) = match address.ip().is_loopback() && !options.token_in_path {
                true => (Router::new(), counts),
                false => (counts, Router::new()),
            };
            let dashboard = match acceptor.is_some() {
                true => house.stats.dashboard_routes().layer(Extension(TlsConnection)),
                false => house.stats.dashboard_routes(),
            };
            let look = middleware::from_fn_with_state(house.clone(), delay_wrong_tokens);
            let routes = routes(&house, guarded, open.merge(dashboard.layer(look)));
            let routes =
                if options.token_in_path { with_path_token(&house, routes) } else { routes };
            Ok(Gateway { listener, address, acceptor, house, runtime, routes })
        })
    }

    /// The address that it is bound to.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The same for clients: `http://127.0.0.1:8787`.
    pub fn url(&self) -> String {
        let scheme = if self.acceptor.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    /// The runtime that holds its engines and sessions.
    pub fn runtime(&self) -> &Runtime {
        &self.runtime
    }

    /// Who looks on: what is counted, and what the dashboard shows.
    pub fn watch(&self) -> &GatewayStats {
        &self.house.stats
    }

    /// Serves until `end` is cancelled, and then until the answers that are on their way are whole, at
    /// most for `gateway.drain_ms`. Connections end with it: who drops this future cuts answers off, and loses what
    /// was not written yet.
    pub fn serve(self, end: CancellationToken) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let Gateway { listener, acceptor, house, runtime, routes, .. } = self;
            let places = limits::permits(house.settings.max_connections);
            let mut connections = JoinSet::new();
            let door = Arc::new(ConnectionServer::new(&house.settings, acceptor, routes));
            let open = GracefulShutdown::new();
            while let Some(stream) = next_connection(&listener, &end).await {
                let place = tokio::select! {
                    place = places.clone().acquire_owned() => place,
                    () = end.cancelled() => break,
                };
                let (door, watcher) = (door.clone(), open.watcher());
                connections.spawn(async move {
                    let _place = place;
                    door.accept(stream, watcher).await;
                });
                while connections.try_join_next().is_some() {}
            }
            house.is_closing.store(true, Ordering::Relaxed);
            drop(listener);
            let drain = limits::bounded_duration(house.settings.drain_ms);
            if timeout(drain, open.shutdown()).await.is_err() {
                tracing::warn!(
                    "answers were cut off that had not ended in time; see gateway.drain_ms"
                );
            }
            house.proxy.finish().await;
            runtime.shutdown().await;
        })
    }
}

/// The next client; `None` when it is time to end.
async fn next_connection(listener: &TcpListener, end: &CancellationToken) -> Option<TcpStream> {
    /// After an error such as too many open files: trying at once would only burn the processor.
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
                tracing::error!(%error, "no connection can be taken");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

fn is_client_abort(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset)
}

/// What somebody is told while too many wrong tokens wait for their answers.
const TOO_MANY_WRONG_TOKENS: &str =
    "too many wrong tokens were shown here; come again in some seconds, with the right one";

/// Put on requests: the address at the other end of their connection.
#[derive(Clone, Copy, Debug)]
struct PeerAddress(Option<IpAddr>);

/// Who lets connections in.
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
        http.http1().timer(TokioTimer::new()).header_read_timeout(patience);
        http.http2()
            .timer(TokioTimer::new())
            .keep_alive_interval(patience)
            .max_header_list_size(settings.max_header_bytes);
        let stall = limits::bounded_duration(settings.client_stall_ms);
        ConnectionServer { http, acceptor, first_byte_timeout: patience, stall, routes }
    }

    async fn accept(&self, stream: TcpStream, watcher: Watcher) {
        // Small events shall arrive as they are sent; that they may not is no reason to refuse them.
        let _ = stream.set_nodelay(true);
        let peer = stream.peer_addr().ok().map(|address| address.ip());
        let outcome = match &self.acceptor {
            None => self.serve(stream, watcher, peer).await,
            Some(acceptor) => match timeout(self.first_byte_timeout, acceptor.accept(stream)).await
            {
                Ok(Ok(stream)) => self.serve(stream, watcher, peer).await,
                Ok(Err(error)) => Err(error.into()),
                Err(_) => Err("no handshake in time".into()),
            },
        };
        if let Err(error) = outcome {
            tracing::debug!(%error, "a connection ended early");
        }
    }

    async fn serve(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        watcher: Watcher,
        peer: Option<IpAddr>,
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let routes = self.routes.clone();
        let service = service_fn(move |mut request: hyper::Request<Incoming>| {
            request.extensions_mut().insert(PeerAddress(peer));
            // They are always ready.
            routes.clone().call(request)
        });
        let mut stream = TimeoutWriter::new(FirstByteTimeout::new(stream, self.first_byte_timeout));
        stream.set_timeout(Some(self.stall));
        let connection = self.http.serve_connection(TokioIo::new(Box::pin(stream)), service);
        // It is large, and each future around it would make room for it again.
        Box::pin(watcher.watch(connection.into_owned())).await
    }
}

/// Everything that can be asked here, behind its checks.
fn routes(house: &Arc<GatewayState>, guarded: Router, open: Router) -> Router {
    let guarded = Router::new()
        .fallback(|State(house): State<Arc<GatewayState>>, request: Request| {
            handler::handle(house, request)
        })
        .with_state(house.clone())
        .merge(compress_api::routes(house))
        .merge(guarded)
        .layer(middleware::from_fn_with_state(house.clone(), require_token));
    let guarded = house.stats.measure(guarded);
    Router::new()
        .route("/", get(|| async { "ctxhost\n" }))
        .route("/health", get(health))
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .with_state(house.clone())
        .merge(open)
        .fallback_service(guarded)
        .layer(middleware::from_fn_with_state(house.clone(), check_caller))
}

/// The same for clients whose paths begin with the token.
fn with_path_token(house: &Arc<GatewayState>, routes: Router) -> Router {
    let take = |State(house): State<Arc<GatewayState>>, mut request: Request, next: Next| async move {
        house.auth.strip_path_token(&mut request);
        next.run(request).await
    };
    Router::new()
        .fallback_service(routes)
        .layer(middleware::from_fn_with_state(house.clone(), take))
}

async fn health(State(house): State<Arc<GatewayState>>) -> Response<axum::body::Body> {
    let status = if house.is_ready() { "healthy" } else { "busy" };
    let body = serde_json::json!({
        "status": status, "service": "ctxhost", "version": env!("CARGO_PKG_VERSION"),
    });
    handler::json(StatusCode::OK, body.to_string().into())
}

async fn ready(State(house): State<Arc<GatewayState>>) -> (StatusCode, &'static str) {
    match house.is_ready() {
        true => (StatusCode::OK, "ready\n"),
        false => (StatusCode::SERVICE_UNAVAILABLE, "not ready\n"),
    }
}

async fn check_caller(
    State(house): State<Arc<GatewayState>>,
    request: Request,
    next: Next,
) -> Response<axum::body::Body> {
    let size = |(name, value): (&axum::http::HeaderName, &axum::http::HeaderValue)| {
        name.as_str().len() + value.len()
    };
    let bytes: usize = request.headers().iter().map(size).sum();
    if bytes as u64 > u64::from(house.settings.max_header_bytes) {
        let message = "the headers are larger than gateway.max_header_bytes".to_owned();
        let status = StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE;
        return denied_response(&request, AccessDenied { status, message });
    }
    let is_sound = Authenticator::check_request(&request);
    if let Err(denied) = is_sound.and_then(|()| house.auth.check_caller(&request)) {
        return denied_response(&request, denied);
    }
    match house.auth.allowed_origin(request.headers()) {
        None => next.run(request).await,
        Some(page) if cors::is_preflight(&request) => {
            cors::preflight_response(request.headers(), page)
        }
        Some(page) => cors::with_cors_headers(next.run(request).await, page),
    }
}

/// For what is open without a token, and still no page of others has to read.
async fn refuse_cross_site(
    State(house): State<Arc<GatewayState>>,
    request: Request,
    next: Next,
) -> Response<axum::body::Body> {
    match house.auth.check_fetch_site(&request) {
        Ok(()) => next.run(request).await,
        Err(denied) => denied_response(&request, denied),
    }
}

async fn require_token(
    State(house): State<Arc<GatewayState>>,
    request: Request,
    next: Next,
) -> Response<axum::body::Body> {
    let is_welcome = house.auth.check_fetch_site(&request);
    match is_welcome.and_then(|()| house.auth.check_token(&request)) {
        Ok(()) => next.run(request).await,
        // A client that knows of no token is not guessing.
        Err(denied)
            if denied.status == StatusCode::UNAUTHORIZED && Authenticator::has_key(&request) =>
        {
            let peer = peer_of(&request);
            let denied = delayed_denial(&house, peer, denied).await;
            denied_response(&request, denied)
        }
        Err(denied) => denied_response(&request, denied),
    }
}

/// Wrong tokens of the dashboard are answered as late as those of clients.
async fn delay_wrong_tokens(
    State(house): State<Arc<GatewayState>>,
    request: Request,
    next: Next,
) -> Response<axum::body::Body> {
    let is_shown = dashboard::has_token(&request);
    let peer = peer_of(&request);
    let response = next.run(request).await;
    let is_wrong = is_shown && response.status() == StatusCode::UNAUTHORIZED;
    if is_wrong && house.token_throttle.delay_wrong_token(peer).await.is_err() {
        return handler::text(StatusCode::TOO_MANY_REQUESTS, TOO_MANY_WRONG_TOKENS);
    }
    response
}

fn peer_of(request: &Request) -> Option<IpAddr> {
    request.extensions().get::<PeerAddress>().and_then(|PeerAddress(address)| *address)
}

/// What somebody is told who has shown a wrong token, when it is time to.
async fn delayed_denial(
    house: &GatewayState,
    peer: Option<IpAddr>,
    denied: AccessDenied,
) -> AccessDenied {
    match house.token_throttle.delay_wrong_token(peer).await {
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

async fn resolve_address(wanted: &str) -> Result<SocketAddr, GatewayError> {
    let bad = |problem: String| GatewayError::Address { address: wanted.to_owned(), problem };
    let mut addresses =
        tokio::net::lookup_host(wanted).await.map_err(|error| bad(error.to_string()))?;
    addresses.next().ok_or_else(|| bad("nobody has that name".into()))
}
