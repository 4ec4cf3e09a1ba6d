//! A gateway on a free port, and an upstream that records requests and answers as scripted.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, Method, Request, Response, StatusCode, Uri};
use ctxhost_config::Config;
use ctxhost_gateway::{Gateway, GatewayOptions};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// A request as the upstream got it.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) method: Method,
    pub(crate) uri: Uri,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Seen {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).map(|value| value.to_str().unwrap())
    }
}

/// Everything that came.
type Notes = Arc<Mutex<Vec<Seen>>>;
type Answer = dyn Fn(&Seen) -> Response<Body> + Send + Sync;

/// An upstream. It reads every body whole before it answers.
pub(crate) struct Upstream {
    pub(crate) url: String,
    pub(crate) seen: Notes,
}

impl Upstream {
    pub(crate) async fn start(
        answer: impl Fn(&Seen) -> Response<Body> + Send + Sync + 'static,
    ) -> Upstream {
        let seen = Notes::default();
        let answer: Arc<Answer> = Arc::new(answer);
        let house = Router::new()
            .fallback(note)
            .layer(DefaultBodyLimit::disable())
            .with_state((seen.clone(), answer));
        Upstream { url: serve(house).await, seen }
    }

    pub(crate) fn last(&self) -> Seen {
        self.seen.lock().unwrap().last().expect("a request").clone()
    }

    pub(crate) fn count(&self) -> usize {
        self.seen.lock().unwrap().len()
    }
}

async fn note(
    State((seen, answer)): State<(Notes, Arc<Answer>)>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response<Body> {
    let it = Seen { method, uri, headers, body };
    seen.lock().unwrap().push(it.clone());
    answer(&it)
}

/// Serves on a free port of the loopback; its address.
pub(crate) async fn serve(house: Router) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, house).await });
    format!("http://{address}")
}

/// A gateway that serves.
pub(crate) struct Gate {
    pub(crate) url: String,
    /// A link to its dashboard, which opens once.
    pub(crate) link: String,
    pub(crate) end: CancellationToken,
    pub(crate) task: JoinHandle<()>,
    pub(crate) state: tempfile::TempDir,
}

impl Gate {
    /// In front of one upstream for all dialects, with what the config says beside that.
    pub(crate) async fn before(upstream: &str, config: &str) -> Gate {
        Gate::open(upstream, config, |options| options).await
    }

    pub(crate) async fn open(
        upstream: &str,
        config: &str,
        change: impl FnOnce(GatewayOptions) -> GatewayOptions,
    ) -> Gate {
        Gate::with(upstream, config, tempfile::tempdir().unwrap(), change).await
    }

    /// A new one where another has ended.
    pub(crate) async fn again(upstream: &str, config: &str, state: tempfile::TempDir) -> Gate {
        Gate::with(upstream, config, state, |options| options).await
    }

    async fn with(
        upstream: &str,
        config: &str,
        state: tempfile::TempDir,
        change: impl FnOnce(GatewayOptions) -> GatewayOptions,
    ) -> Gate {
        let config = Config::parse("ctxhost.toml", config).unwrap();
        let mut options = GatewayOptions::from_config(&config, state.path());
        options.listen = Some("127.0.0.1:0".into());
        (options.token, options.watched_config) = (None, None);
        for dialect in ["anthropic", "openai", "gemini", "ollama"] {
            if !upstream.is_empty() && !config.gateway.upstreams.contains_key(dialect) {
                options.upstreams.insert(dialect.into(), upstream.into());
            }
        }
        let gateway = Gateway::bind(change(options)).await.unwrap();
        let (url, end) = (gateway.url(), CancellationToken::new());
        let link = gateway.dashboard_link();
        let task = tokio::spawn(gateway.serve(end.clone()));
        Gate { url, link, end, task, state }
    }

    pub(crate) fn at(&self, path: &str) -> String {
        format!("{}{path}", self.url)
    }
}

/// A client that asks through no proxy of this machine.
pub(crate) fn client() -> reqwest::Client {
    client_builder().build().unwrap()
}

/// What such clients are built with.
pub(crate) fn client_builder() -> reqwest::ClientBuilder {
    // Whatever the process has installed before serves as well.
    _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().no_proxy()
}

pub(crate) fn plain(status: u16, kind: &str, body: impl Into<Body>) -> Response<Body> {
    Response::builder()
        .status(StatusCode::from_u16(status).unwrap())
        .header("content-type", kind)
        .body(body.into())
        .unwrap()
}

/// A stream of events whose pieces are sent when the test sends them.
pub(crate) fn events(pieces: tokio::sync::mpsc::UnboundedReceiver<Bytes>) -> Response<Body> {
    let stream = futures_util::stream::unfold(pieces, |mut pieces| async move {
        let piece = pieces.recv().await?;
        Some((Ok::<_, std::io::Error>(piece), pieces))
    });
    plain(200, "text/event-stream", Body::from_stream(stream))
}

/// A request of axum's, for upstreams that read bodies themselves.
pub(crate) type Raw = Request<Body>;

/// The doors through which models are asked.
pub(crate) const DOORS: [&str; 5] = [
    "/v1/messages?beta=true",
    "/v1/chat/completions",
    "/v1/responses",
    "/v1beta/models/gemini-3-pro:generateContent",
    "/v1beta/models/gemini-3-pro:streamGenerateContent?alt=sse",
];

/// A body that each door can read, in no writer's usual spacing.
pub(crate) fn body_for(door: &str) -> String {
    if door.starts_with("/v1beta") {
        return "{ \"contents\" :[ {\"parts\":[{\"text\":\"h\\u00e9 \"} ], \"role\":\"user\"}],\n\"unknown\" : 1.50 }".into();
    }
    let list = if door.contains("responses") { "input" } else { "messages" };
    format!(
        "{{ \"{list}\" :[ {{\"content\":\"h\\u00e9\\n \", \"role\":\"user\"}} ],\t\"model\":\"some-model\", \"max_tokens\":  5,\n\"unknown\" : 1.50 }}"
    )
}
