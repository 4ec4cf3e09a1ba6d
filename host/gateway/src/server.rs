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

use super::access::{Access, Denied};
use super::bodies::Bodies;
use super::complaint::complaint;
use super::cors;
use super::dashboard::{self, OverTls};
use super::door::dialect_of;
use super::error::GatewayError;
use super::exchange::Exchange;
use super::guesses::Guesses;
use super::house::House;
use super::limits;
use super::neutral;
use super::opening::Opening;
use super::options::{GatewayOptions, refuse_exposure};
use super::traffic;
use super::upstream::Upstreams;
use super::watch::Watch;
use ctxhost_config::GatewaySettings;
use ctxhost_runtime::Runtime;

/// A gateway that is bound to its port. Requests wait until it serves.
pub struct Gateway {
    listener: TcpListener,
    address: SocketAddr,
    acceptor: Option<TlsAcceptor>,
    house: Arc<House>,
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
            let wanted = resolved(wanted).await?;
            if !options.is_exposed {
                refuse_exposure(wanted, options.token.is_some(), acceptor.is_some())?;
            }
            let upstreams = Upstreams::of(&options.config, &options.upstreams)?;
            let runtime = options.runtime().await?;
            let watch = Watch::start(&runtime, &options.config.telemetry);
            let edge = watch.edge();
            let (state, conversations) = (&options.state, edge.conversations);
            let exchange =
                Exchange::counted(runtime.clone(), &options.config, state, conversations);
            let listener = TcpListener::bind(wanted);
            let unbound = |cause| GatewayError::Bind { address: wanted.to_string(), cause };
            let listener = listener.await.map_err(unbound)?;
            let address = listener.local_addr().map_err(unbound)?;
            upstreams.refuse_itself(address)?;
            let token = options.token.as_ref();
            let house = Arc::new(House {
                access: Access::new(token, address, &settings.hosts, &settings.origins),
                exchange: Arc::new(exchange),
                upstreams,
                guesses: Guesses::new(edge.wrong_tokens),
                bodies: Bodies::new(settings.max_bodies_bytes, edge.body_bytes),
                places: limits::places(settings.max_requests),
                is_closing: AtomicBool::new(false),
                models: options.config.models.clone(),
                settings,
                watch,
            });
            // What is counted holds no word of a conversation, but it is nobody's business elsewhere, and none
            // of others on this machine where the gateway is for one client.
            let see = middleware::from_fn_with_state(house.clone(), refuse_strange_pages);
            let counts = house.watch.counts().layer(see);
            let (guarded, open) = match address.ip().is_loopback() && !options.token_in_path {
                true => (Router::new(), counts),
                false => (counts, Router::new()),
            };
            let dashboard = match acceptor.is_some() {
                true => house.watch.dashboard().layer(Extension(OverTls)),
                false => house.watch.dashboard(),
            };
            let look = middleware::from_fn_with_state(house.clone(), slow_guesses);
            let routes = routes(&house, guarded, open.merge(dashboard.layer(look)));
            let routes = if options.token_in_path { behind_token(&house, routes) } else { routes };
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
    pub fn watch(&self) -> &Watch {
        &self.house.watch
    }

    /// Serves until `end` is cancelled, and then until the answers that are on their way are whole, at
    /// most for `gateway.drain_ms`. Connections end with it: who drops this future cuts answers off, and loses what
    /// was not written yet.
    pub fn serve(self, end: CancellationToken) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let Gateway { listener, acceptor, house, runtime, routes, .. } = self;
            let places = limits::places(house.settings.max_connections);
            let mut connections = JoinSet::new();
            let door = Arc::new(DoorKeeper::new(&house.settings, acceptor, routes));
            let open = GracefulShutdown::new();
            while let Some(stream) = next(&listener, &end).await {
                let place = tokio::select! {
                    place = places.clone().acquire_owned() => place,
                    () = end.cancelled() => break,
                };
                let (door, watcher) = (door.clone(), open.watcher());
                connections.spawn(async move {
                    let _place = place;
                    door.let_in(stream, watcher).await;
                });
                while connections.try_join_next().is_some() {}
            }
            house.is_closing.store(true, Ordering::Relaxed);
            drop(listener);
            let drain = limits::time(house.settings.drain_ms);
            if timeout(drain, open.shutdown()).await.is_err() {
                tracing::warn!(
                    "answers were cut off that had not ended in time; see gateway.drain_ms"
                );
            }
            house.exchange.finish().await;
            runtime.finish().await;
        })
    }
}

/// The next client; `None` when it is time to end.
async fn next(listener: &TcpListener, end: &CancellationToken) -> Option<TcpStream> {
    /// After an error such as too many open files: trying at once would only burn the processor.
    const PAUSE: Duration = Duration::from_millis(50);
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = end.cancelled() => return None,
        };
        match accepted {
            Ok((stream, _)) => return Some(stream),
            Err(error) if is_of_the_client(&error) => {}
            Err(error) => {
                tracing::error!(%error, "no connection can be taken");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

fn is_of_the_client(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset)
}

/// What somebody is told while too many wrong tokens wait for their answers.
const TOO_MANY_GUESSES: &str =
    "too many wrong tokens were shown here; come again in some seconds, with the right one";

/// Put on requests: the address at the other end of their connection.
#[derive(Clone, Copy, Debug)]
struct Peer(Option<IpAddr>);

/// Who lets connections in.
struct DoorKeeper {
    http: auto::Builder<TokioExecutor>,
    acceptor: Option<TlsAcceptor>,
    patience: Duration,
    stall: Duration,
    routes: Router,
}

impl DoorKeeper {
    fn new(settings: &GatewaySettings, acceptor: Option<TlsAcceptor>, routes: Router) -> Self {
        let patience = limits::time(settings.client_timeout_ms);
        let mut http = auto::Builder::new(TokioExecutor::new());
        http.http1().timer(TokioTimer::new()).header_read_timeout(patience);
        http.http2()
            .timer(TokioTimer::new())
            .keep_alive_interval(patience)
            .max_header_list_size(settings.max_header_bytes);
        let stall = limits::time(settings.client_stall_ms);
        DoorKeeper { http, acceptor, patience, stall, routes }
    }

    async fn let_in(&self, stream: TcpStream, watcher: Watcher) {
        // Small events shall arrive as they are sent; that they may not is no reason to refuse them.
        let _ = stream.set_nodelay(true);
        let peer = stream.peer_addr().ok().map(|address| address.ip());
        let outcome = match &self.acceptor {
            None => self.serve(stream, watcher, peer).await,
            Some(acceptor) => match timeout(self.patience, acceptor.accept(stream)).await {
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
            request.extensions_mut().insert(Peer(peer));
            // They are always ready.
            routes.clone().call(request)
        });
        let mut stream = TimeoutWriter::new(Opening::new(stream, self.patience));
        stream.set_timeout(Some(self.stall));
        let connection = self.http.serve_connection(TokioIo::new(Box::pin(stream)), service);
        // It is large, and each future around it would make room for it again.
        Box::pin(watcher.watch(connection.into_owned())).await
    }
}

/// Everything that can be asked here, behind its checks.
fn routes(house: &Arc<House>, guarded: Router, open: Router) -> Router {
    let guarded = Router::new()
        .fallback(|State(house): State<Arc<House>>, request: Request| {
            traffic::answer(house, request)
        })
        .with_state(house.clone())
        .merge(neutral::routes(house))
        .merge(guarded)
        .layer(middleware::from_fn_with_state(house.clone(), ask_for_token));
    let guarded = house.watch.around(guarded);
    Router::new()
        .route("/", get(|| async { "ctxhost\n" }))
        .route("/health", get(health))
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .with_state(house.clone())
        .merge(open)
        .fallback_service(guarded)
        .layer(middleware::from_fn_with_state(house.clone(), look_at_caller))
}

/// The same for clients whose paths begin with the token.
fn behind_token(house: &Arc<House>, routes: Router) -> Router {
    let take = |State(house): State<Arc<House>>, mut request: Request, next: Next| async move {
        house.access.take_from_path(&mut request);
        next.run(request).await
    };
    Router::new()
        .fallback_service(routes)
        .layer(middleware::from_fn_with_state(house.clone(), take))
}

async fn health(State(house): State<Arc<House>>) -> Response<axum::body::Body> {
    let status = if house.is_ready() { "healthy" } else { "busy" };
    let body = serde_json::json!({
        "status": status, "service": "ctxhost", "version": env!("CARGO_PKG_VERSION"),
    });
    traffic::json(StatusCode::OK, body.to_string().into())
}

async fn ready(State(house): State<Arc<House>>) -> (StatusCode, &'static str) {
    match house.is_ready() {
        true => (StatusCode::OK, "ready\n"),
        false => (StatusCode::SERVICE_UNAVAILABLE, "not ready\n"),
    }
}

async fn look_at_caller(
    State(house): State<Arc<House>>,
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
        return sent_away(&request, Denied { status, message });
    }
    let is_sound = Access::check_form(&request);
    if let Err(denied) = is_sound.and_then(|()| house.access.check_caller(&request)) {
        return sent_away(&request, denied);
    }
    match house.access.named_page(request.headers()) {
        None => next.run(request).await,
        Some(page) if cors::is_preflight(&request) => cors::permission(request.headers(), page),
        Some(page) => cors::readable(next.run(request).await, page),
    }
}

/// For what is open without a token, and still no page of others has to read.
async fn refuse_strange_pages(
    State(house): State<Arc<House>>,
    request: Request,
    next: Next,
) -> Response<axum::body::Body> {
    match house.access.check_page(&request) {
        Ok(()) => next.run(request).await,
        Err(denied) => sent_away(&request, denied),
    }
}

async fn ask_for_token(
    State(house): State<Arc<House>>,
    request: Request,
    next: Next,
) -> Response<axum::body::Body> {
    let is_welcome = house.access.check_page(&request);
    match is_welcome.and_then(|()| house.access.check_token(&request)) {
        Ok(()) => next.run(request).await,
        // A client that knows of no token is not guessing.
        Err(denied) if denied.status == StatusCode::UNAUTHORIZED && Access::shows_key(&request) => {
            let peer = peer_of(&request);
            let denied = guessed(&house, peer, denied).await;
            sent_away(&request, denied)
        }
        Err(denied) => sent_away(&request, denied),
    }
}

/// Wrong tokens of the dashboard are answered as late as those of clients.
async fn slow_guesses(
    State(house): State<Arc<House>>,
    request: Request,
    next: Next,
) -> Response<axum::body::Body> {
    let is_shown = dashboard::shows_token(&request);
    let peer = peer_of(&request);
    let response = next.run(request).await;
    let is_wrong = is_shown && response.status() == StatusCode::UNAUTHORIZED;
    if is_wrong && house.guesses.wrong(peer).await.is_err() {
        return traffic::text(StatusCode::TOO_MANY_REQUESTS, TOO_MANY_GUESSES);
    }
    response
}

fn peer_of(request: &Request) -> Option<IpAddr> {
    request.extensions().get::<Peer>().and_then(|Peer(address)| *address)
}

/// What somebody is told who has shown a wrong token, when it is time to.
async fn guessed(house: &House, peer: Option<IpAddr>, denied: Denied) -> Denied {
    match house.guesses.wrong(peer).await {
        Ok(()) => denied,
        Err(_) => {
            Denied { status: StatusCode::TOO_MANY_REQUESTS, message: TOO_MANY_GUESSES.into() }
        }
    }
}

fn sent_away(request: &Request, denied: Denied) -> Response<axum::body::Body> {
    let dialect = dialect_of(request.uri(), request.headers());
    complaint(dialect, denied.status, &denied.message)
}

async fn resolved(wanted: &str) -> Result<SocketAddr, GatewayError> {
    let bad = |problem: String| GatewayError::Address { address: wanted.to_owned(), problem };
    let mut addresses =
        tokio::net::lookup_host(wanted).await.map_err(|error| bad(error.to_string()))?;
    addresses.next().ok_or_else(|| bad("nobody has that name".into()))
}
