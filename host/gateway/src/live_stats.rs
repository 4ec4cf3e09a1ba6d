//! Metrics, dashboard and access log of a gateway. It observes requests and never changes them.
//!
//! ```text
//!  runtime events ──────► record_event ──► metrics        GET /metrics
//!                              │              ▲           GET /ui
//!  requests ──► middleware ────┼──────────────┘
//!                              └─► dashboard
//! ```

mod access_line;
pub(crate) mod conversations;
mod middleware;

use std::sync::Arc;

use axum::Router;
use axum::http::header::CONTENT_TYPE;
use axum::routing::get;

use super::dashboard::{self, DashboardLogin};
use super::metrics::{self, EdgeMetrics, GatewayTotals, Metrics};
use super::proxy::Endpoint;
use ctxhost_agent::event::RuntimeEvent;
use ctxhost_agent::{Runtime, SlotStatus};
use ctxhost_config::TelemetrySettings;
use ctxhost_dialects::message::TokenUsage;

pub use conversations::{
    ConversationStats, DroppedEntries, LiveStats, OccupancySample, RecordedStats, StatsEvent,
    StatsSnapshot,
};

/// The statistics of a gateway. Clones share them.
#[derive(Clone, Debug)]
pub struct GatewayStats {
    metrics: Arc<Metrics>,
    live: Arc<LiveStats>,
}

impl GatewayStats {
    /// Statistics of a runtime's events, from now on.
    pub fn start(runtime: &Runtime, settings: &TelemetrySettings) -> GatewayStats {
        let stats = GatewayStats::new(&runtime.engine(), settings);
        let listener = stats.clone();
        // Listeners run inside the request that causes the event, so this takes one lock and some counters
        // only.
        runtime.add_listener(Arc::new(move |event| listener.record_event(event, now_ms())));
        stats
    }

    /// Statistics without a runtime: the caller passes events to [`record_event`](Self::record_event).
    pub fn new(engine: &str, settings: &TelemetrySettings) -> GatewayStats {
        GatewayStats {
            metrics: Arc::new(Metrics::new(engine)),
            live: Arc::new(LiveStats::new(settings)),
        }
    }

    /// Records an event.
    pub fn record_event(&self, event: &RuntimeEvent, now_ms: u64) {
        let folded_tokens = self.live.record_event(event, now_ms);
        self.metrics.record_event(&event.kind, folded_tokens);
    }

    /// Records the token usage of a response.
    pub fn record_usage(&self, endpoint: &Endpoint, usage: &TokenUsage) {
        self.metrics.record_usage(middleware::dialect_label(endpoint), usage);
    }

    /// The metrics that other modules update.
    pub(super) fn edge(&self) -> EdgeMetrics {
        self.metrics.edge()
    }

    /// The totals of all requests so far.
    pub fn totals(&self) -> GatewayTotals {
        self.metrics.totals()
    }

    /// Measures requests and responses of `routes`.
    pub fn measure(&self, routes: Router) -> Router {
        middleware::measure(self.metrics.clone(), self.live.clone(), routes)
    }

    /// `GET /metrics`.
    pub fn metrics_routes(&self) -> Router {
        let metrics = self.metrics.clone();
        let text = move || async move { ([(CONTENT_TYPE, metrics::CONTENT_TYPE)], metrics.text()) };
        Router::new().route("/metrics", get(text))
    }

    /// The dashboard below `/ui`, which has a login of its own; `slot` reads the state of the slot.
    pub fn dashboard_routes(
        &self,
        login: Arc<DashboardLogin>,
        slot: impl Fn() -> SlotStatus + Clone + Send + Sync + 'static,
    ) -> Router {
        let stats = self.clone();
        dashboard::routes(login, move || stats.live.snapshot(slot(), stats.totals()))
    }
}

/// Milliseconds since 1970.
fn now_ms() -> u64 {
    u64::try_from(ctxhost_engine::HostClock::default().now_ms()).unwrap_or(0)
}

#[cfg(test)]
mod tests;
