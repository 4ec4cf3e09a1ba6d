//! Who looks on: counts what goes through the gateway, keeps what a dashboard shows, and serves both.
//!
//! ```text
//!  runtime events ──────► board ──► metrics        GET /metrics
//!                           │          ▲           GET /ui
//!  requests ──► around ─────┼──────────┘
//!                           └─► dashboard
//! ```
//!
//! It looks on and decides nothing: no request is another one for it. It hears of an event while that
//! happens, which takes a few counters and one lock.

mod access_line;
mod around;
mod board;

use std::sync::Arc;

use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::routing::get;

use super::dashboard::{self, Pass};
use super::exchange::Door;
use super::metrics::{self, Edge, Metrics, Sums};
use ctxhost_config::TelemetrySettings;
use ctxhost_dialects::message::Usage;
use ctxhost_runtime::Runtime;
use ctxhost_runtime::event::Event;

pub use board::{Board, Dropped, Live, Mark, Occupied, Shown};

/// Who looks on. Cheap to clone; all clones are the same.
#[derive(Clone, Debug)]
pub struct Watch {
    metrics: Arc<Metrics>,
    board: Arc<Board>,
    pass: Arc<Pass>,
}

impl Watch {
    /// Looks on from now: what happens in a runtime is heard as long as that is there.
    pub fn start(runtime: &Runtime, settings: &TelemetrySettings) -> Watch {
        let watch = Watch::new(&runtime.engine(), settings);
        let hears = watch.clone();
        runtime.listen(Arc::new(move |event| hears.heard(event, now_ms())));
        watch
    }

    /// Looks on without a runtime: whoever has events tells them by [`heard`](Self::heard).
    pub fn new(engine: &str, settings: &TelemetrySettings) -> Watch {
        Watch {
            metrics: Arc::new(Metrics::new(engine)),
            board: Arc::new(Board::new(engine, settings)),
            pass: Arc::default(),
        }
    }

    /// Hears an event.
    pub fn heard(&self, event: &Event, now_ms: u64) {
        let folded_tokens = self.board.heard(event, now_ms);
        self.metrics.heard(&event.what, folded_tokens);
    }

    /// What a provider counted for a request through a door.
    pub fn used(&self, door: &Door, usage: &Usage) {
        self.metrics.used(around::word(door), usage);
    }

    /// What is counted at the edge, for those who count it.
    pub(super) fn edge(&self) -> Edge {
        self.metrics.edge()
    }

    /// What came of all requests so far.
    pub fn sums(&self) -> Sums {
        self.metrics.sums()
    }

    /// Counts what goes through `doors`: requests, answers, how long both took.
    pub fn around(&self, doors: Router) -> Router {
        around::around(self.metrics.clone(), self.board.clone(), doors)
    }

    /// `GET /metrics`. No word of a conversation stands there.
    pub fn counts(&self) -> Router {
        let metrics = self.metrics.clone();
        let text = move || async move { ([(CONTENT_TYPE, metrics::CONTENT_TYPE)], metrics.text()) };
        Router::new().route("/metrics", get(text))
    }

    /// The dashboard, below `/ui`. It asks for a token of its own, see [`link`](Self::link).
    pub fn dashboard(&self) -> Router {
        dashboard::routes(self.board.clone(), self.pass.clone())
    }

    /// The path of the dashboard with a token in it. Whoever opens it first is let in, and nobody after.
    pub fn link(&self) -> String {
        self.pass.link()
    }
}

/// Milliseconds since 1970.
fn now_ms() -> u64 {
    u64::try_from(ctxhost_engine::Clock::default().now_ms()).unwrap_or(0)
}

#[cfg(test)]
mod tests;
