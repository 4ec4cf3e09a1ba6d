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
mod conversations;
mod middleware;

use std::sync::Arc;

use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::routing::get;

use super::dashboard::{self, DashboardLogin};
use super::metrics::{self, EdgeMetrics, GatewayTotals, Metrics};
use super::proxy::Endpoint;
use ctxhost_agent::Runtime;
use ctxhost_agent::event::RuntimeEvent;
use ctxhost_config::TelemetrySettings;
use ctxhost_dialects::message::TokenUsage;

pub use conversations::{
    ConversationStats, DroppedEntries, LiveStats, OccupancySample, StatsEvent, StatsSnapshot,
};

/// Who looks on. Cheap to clone; all clones are the same.
#[derive(Clone, Debug)]
pub struct GatewayStats {
    metrics: Arc<Metrics>,
    board: Arc<LiveStats>,
    pass: Arc<DashboardLogin>,
}

impl GatewayStats {
    /// Looks on from now: what happens in a runtime is heard as long as that is there.
    pub fn start(runtime: &Runtime, settings: &TelemetrySettings) -> GatewayStats {
        let watch = GatewayStats::new(&runtime.engine(), settings);
        let hears = watch.clone();
        runtime.add_listener(Arc::new(move |event| hears.record_event(event, now_ms())));
        watch
    }

    /// Looks on without a runtime: whoever has events tells them by [`record_event`](Self::heard).
    pub fn new(engine: &str, settings: &TelemetrySettings) -> GatewayStats {
        GatewayStats {
            metrics: Arc::new(Metrics::new(engine)),
            board: Arc::new(LiveStats::new(engine, settings)),
            pass: Arc::default(),
        }
    }

    /// Hears an event.
    pub fn record_event(&self, event: &RuntimeEvent, now_ms: u64) {
        let folded_tokens = self.board.record_event(event, now_ms);
        self.metrics.record_event(&event.kind, folded_tokens);
    }

    /// What a provider counted for a request through a door.
    pub fn record_usage(&self, door: &Endpoint, usage: &TokenUsage) {
        self.metrics.record_usage(middleware::dialect_label(door), usage);
    }

    /// What is counted at the edge, for those who count it.
    pub(super) fn edge(&self) -> EdgeMetrics {
        self.metrics.edge()
    }

    /// What came of all requests so far.
    pub fn totals(&self) -> GatewayTotals {
        self.metrics.totals()
    }

    /// Counts what goes through `doors`: requests, answers, how long both took.
    pub fn measure(&self, doors: Router) -> Router {
        middleware::measure(self.metrics.clone(), self.board.clone(), doors)
    }

    /// `GET /metrics`. No word of a conversation stands there.
    pub fn metrics_routes(&self) -> Router {
        let metrics = self.metrics.clone();
        let text = move || async move { ([(CONTENT_TYPE, metrics::CONTENT_TYPE)], metrics.text()) };
        Router::new().route("/metrics", get(text))
    }

    /// The dashboard, below `/ui`. It asks for a token of its own, see [`link`](Self::link).
    pub fn dashboard_routes(&self) -> Router {
        dashboard::routes(self.board.clone(), self.pass.clone())
    }

    /// The path of the dashboard with a token in it. Whoever opens it first is let in, and nobody after.
    pub fn dashboard_link(&self) -> String {
        self.pass.new_link()
    }
}

/// Milliseconds since 1970.
fn now_ms() -> u64 {
    u64::try_from(ctxhost_engine::HostClock::default().now_ms()).unwrap_or(0)
}

#[cfg(test)]
mod tests;
