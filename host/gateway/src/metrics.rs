//! The metrics of a gateway, in the OpenMetrics text format. They contain no conversation text.

mod edge;

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::{Registry, Unit};
use serde::Serialize;

use ctxhost_agent::event::EventKind;
use ctxhost_context::{CompactionOutcome, CompactionVerdict};
use ctxhost_dialects::message::TokenUsage;

pub use edge::EdgeMetrics;

/// The content type of [`Metrics::text`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Histogram buckets for requests, in seconds: models respond within a second or think for minutes.
const REQUEST_SECONDS: [f64; 12] =
    [0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 180.0, 600.0];

/// Histogram buckets for engines, in seconds: most shape a request within a millisecond.
const ENGINE_SECONDS: [f64; 10] =
    [0.000_05, 0.000_2, 0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0, 60.0];

/// The slot of the gateway's engine.
const SLOT: &str = "context_engine";

/// The metrics of a gateway.
pub struct Metrics {
    registry: Registry,
    families: MetricFamilies,
    edge: EdgeMetrics,
    totals: AtomicTotals,
    /// The engine that is configured now.
    configured: Mutex<String>,
}

/// Totals over all requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct GatewayTotals {
    /// Generation requests.
    pub requests: u64,
    /// Applied compactions.
    pub compactions: u64,
    /// Requests that the configured engine did not shape.
    pub fallbacks: u64,
    /// Requests that no engine could shape.
    pub unshaped: u64,
    /// Estimated tokens that were not sent: full conversation minus prompt, over all requests.
    pub saved_tokens: u64,
    /// Estimated tokens of the conversations that were sent.
    pub sent_tokens: u64,
    /// What providers counted in their responses.
    pub usage: UsageTotals,
}

/// The usage that providers report, over all responses that report one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct UsageTotals {
    /// Responses with a usage.
    pub responses: u64,
    /// Prompt tokens that were not read from a cache.
    pub input_tokens: u64,
    /// Prompt tokens read from a cache.
    pub cache_read_tokens: u64,
    /// Prompt tokens written to a cache.
    pub cache_write_tokens: u64,
    /// Output tokens.
    pub output_tokens: u64,
}

#[derive(Debug, Default)]
struct AtomicTotals {
    requests: AtomicU64,
    compactions: AtomicU64,
    fallbacks: AtomicU64,
    unshaped: AtomicU64,
    saved_tokens: AtomicU64,
    sent_tokens: AtomicU64,
    usage: Mutex<UsageTotals>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SlotLabels {
    slot: &'static str,
    configured: String,
    active: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct EngineLabels {
    engine: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct CompactionLabels {
    engine: String,
    trigger: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct DialectLabels {
    dialect: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ReasonLabels {
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct FileCheckLabels {
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct StatusLabels {
    dialect: &'static str,
    status: u16,
}

/// With a constructor function, because a histogram needs its buckets.
type SecondsFamily<Labels> = Family<Labels, Histogram, fn() -> Histogram>;

#[derive(Clone, Debug)]
struct MetricFamilies {
    engine_active: Family<SlotLabels, Gauge>,
    fallback: Family<EngineLabels, Counter>,
    rejected_plans: Family<EngineLabels, Counter>,
    unshaped: Family<ReasonLabels, Counter>,
    compaction: Family<CompactionLabels, Counter>,
    engine_seconds: SecondsFamily<EngineLabels>,
    saved_tokens: Counter,
    truncated_upstream: Counter,
    request: Family<StatusLabels, Counter>,
    aborted_responses: Family<DialectLabels, Counter>,
    session_file: Family<FileCheckLabels, Counter>,
    in_flight: Gauge,
    first_byte_seconds: SecondsFamily<DialectLabels>,
    request_seconds: SecondsFamily<DialectLabels>,
    input_tokens: Family<DialectLabels, Counter>,
    output_tokens: Family<DialectLabels, Counter>,
    cache_read_tokens: Family<DialectLabels, Counter>,
    cache_write_tokens: Family<DialectLabels, Counter>,
}

impl Default for MetricFamilies {
    fn default() -> Self {
        let requests: fn() -> Histogram = || Histogram::new(REQUEST_SECONDS);
        let engines: fn() -> Histogram = || Histogram::new(ENGINE_SECONDS);
        MetricFamilies {
            engine_active: Family::default(),
            fallback: Family::default(),
            rejected_plans: Family::default(),
            unshaped: Family::default(),
            compaction: Family::default(),
            engine_seconds: Family::new_with_constructor(engines),
            saved_tokens: Counter::default(),
            truncated_upstream: Counter::default(),
            request: Family::default(),
            aborted_responses: Family::default(),
            session_file: Family::default(),
            in_flight: Gauge::default(),
            first_byte_seconds: Family::new_with_constructor(requests),
            request_seconds: Family::new_with_constructor(requests),
            input_tokens: Family::default(),
            output_tokens: Family::default(),
            cache_read_tokens: Family::default(),
            cache_write_tokens: Family::default(),
        }
    }
}

impl Metrics {
    /// Metrics of a gateway with this engine configured.
    pub fn new(configured: &str) -> Metrics {
        let families = MetricFamilies::default();
        let (mut registry, edge) = (families.registered(), EdgeMetrics::default());
        edge.register(&mut registry);
        let metrics = Metrics {
            registry,
            families,
            edge,
            totals: AtomicTotals::default(),
            configured: Mutex::default(),
        };
        // Created with 0, so that Prometheus sees the first increment as an increase.
        for reason in ["failed", "unparsed", "unsupported"] {
            metrics.families.unshaped.get_or_create(&ReasonLabels { reason }).inc_by(0);
        }
        for outcome in ["recreated", "gone"] {
            metrics.families.session_file.get_or_create(&FileCheckLabels { outcome }).inc_by(0);
        }
        metrics.set_configured(configured);
        metrics
    }

    /// The metrics that other modules update.
    pub fn edge(&self) -> EdgeMetrics {
        self.edge.clone()
    }

    /// Records an event of a session. `folded_tokens` is what compactions have removed from it so far.
    pub fn record_event(&self, kind: &EventKind, folded_tokens: u64) {
        match kind {
            EventKind::Assembled {
                engine,
                fallback,
                tokens,
                live_tokens,
                rejected_plans,
                took,
                ..
            } => {
                let configured = self.configured();
                self.set_active(&configured, engine);
                if fallback.is_some() {
                    self.families.fallback.get_or_create(&engine_labels(&configured)).inc();
                    self.totals.fallbacks.fetch_add(1, Ordering::Relaxed);
                }
                self.families
                    .rejected_plans
                    .get_or_create(&engine_labels(&configured))
                    .inc_by(*rejected_plans);
                let seconds = self.families.engine_seconds.get_or_create(&engine_labels(engine));
                seconds.observe(took.as_secs_f64());
                self.record_saved(
                    live_tokens.saturating_sub(*tokens).saturating_add(folded_tokens),
                );
                self.totals.sent_tokens.fetch_add(*tokens, Ordering::Relaxed);
            }
            EventKind::Compaction(outcome) => self.record_compaction(outcome),
            EventKind::SilentTruncation { .. } => drop(self.families.truncated_upstream.inc()),
            EventKind::SessionFileRecreated { .. } => self.session_file("recreated"),
            EventKind::SessionFileMissing { .. } => self.session_file("gone"),
            EventKind::EngineChanged { engine, .. } => self.set_configured(engine),
            EventKind::EngineRolledBack { serving, .. } => {
                self.set_active(&self.configured(), serving)
            }
            _ => {}
        }
    }

    /// Records a request that no engine shaped: `failed`, `unparsed` if its body could not be parsed, or `unsupported` if
    /// its API is none that engines can shape.
    pub fn record_unshaped(&self, reason: &'static str) {
        self.families.unshaped.get_or_create(&ReasonLabels { reason }).inc();
        if reason == "failed" {
            self.totals.unshaped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Records the start of a request.
    pub fn request_started(&self) {
        self.families.in_flight.inc();
    }

    /// Records a response head and its latency.
    pub fn response_started(&self, dialect: &'static str, status: u16, took: Duration) {
        self.families.request.get_or_create(&StatusLabels { dialect, status }).inc();
        let seconds = self.families.first_byte_seconds.get_or_create(&DialectLabels { dialect });
        seconds.observe(took.as_secs_f64());
    }

    /// Counts a request in the totals.
    pub fn count_request(&self) {
        self.totals.requests.fetch_add(1, Ordering::Relaxed);
    }

    /// Records the end of a response, complete or aborted.
    pub fn request_ended(&self, dialect: &'static str, took: Duration, is_complete: bool) {
        self.families.in_flight.dec();
        let seconds = self.families.request_seconds.get_or_create(&DialectLabels { dialect });
        seconds.observe(took.as_secs_f64());
        if !is_complete {
            self.families.aborted_responses.get_or_create(&DialectLabels { dialect }).inc();
        }
    }

    /// Records token usage.
    pub fn record_usage(&self, dialect: &'static str, usage: &TokenUsage) {
        let by = DialectLabels { dialect };
        let count = |family: &Family<DialectLabels, Counter>, tokens| {
            family.get_or_create(&by).inc_by(tokens);
        };
        count(&self.families.input_tokens, usage.input);
        count(&self.families.output_tokens, usage.output);
        count(&self.families.cache_read_tokens, usage.cache_read);
        count(&self.families.cache_write_tokens, usage.cache_write);
        let mut totals = self.totals.usage.lock().unwrap_or_else(PoisonError::into_inner);
        totals.responses += 1;
        // An upstream may state any number.
        let add = |total: &mut u64, tokens| *total = total.saturating_add(tokens);
        add(&mut totals.input_tokens, usage.input);
        add(&mut totals.cache_read_tokens, usage.cache_read);
        add(&mut totals.cache_write_tokens, usage.cache_write);
        add(&mut totals.output_tokens, usage.output);
    }

    /// The totals.
    pub fn totals(&self) -> GatewayTotals {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        GatewayTotals {
            requests: read(&self.totals.requests),
            compactions: read(&self.totals.compactions),
            fallbacks: read(&self.totals.fallbacks),
            unshaped: read(&self.totals.unshaped),
            saved_tokens: read(&self.totals.saved_tokens),
            sent_tokens: read(&self.totals.sent_tokens),
            usage: *self.totals.usage.lock().unwrap_or_else(PoisonError::into_inner),
        }
    }

    /// All metrics as [`CONTENT_TYPE`].
    pub fn text(&self) -> String {
        let mut text = String::new();
        // Writing to a String cannot fail.
        let _ = encode(&mut text, &self.registry);
        text
    }

    fn session_file(&self, outcome: &'static str) {
        self.families.session_file.get_or_create(&FileCheckLabels { outcome }).inc();
    }

    fn record_compaction(&self, outcome: &CompactionOutcome) {
        let label = match outcome.verdict {
            CompactionVerdict::Applied => "applied",
            CompactionVerdict::Rejected { .. } => "rejected",
            CompactionVerdict::NotTried { .. } => "not_tried",
        };
        let (engine, trigger) = (outcome.engine.clone(), outcome.trigger.name());
        let by = CompactionLabels { engine, trigger, outcome: label };
        self.families.compaction.get_or_create(&by).inc();
        if outcome.verdict == CompactionVerdict::Applied {
            self.totals.compactions.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn record_saved(&self, tokens: u64) {
        self.families.saved_tokens.inc_by(tokens);
        self.totals.saved_tokens.fetch_add(tokens, Ordering::Relaxed);
    }

    /// Sets the configured engine, and creates its counters with 0.
    fn set_configured(&self, engine: &str) {
        *self.configured.lock().unwrap_or_else(PoisonError::into_inner) = engine.to_owned();
        self.families.fallback.get_or_create(&engine_labels(engine)).inc_by(0);
        self.families.rejected_plans.get_or_create(&engine_labels(engine)).inc_by(0);
        self.set_active(engine, engine);
    }

    fn set_active(&self, configured: &str, active: &str) {
        let (configured, active) = (configured.to_owned(), active.to_owned());
        let by = SlotLabels { slot: SLOT, configured, active };
        let family = &self.families.engine_active;
        if family.get(&by).is_none() {
            // Only the current pair is exported: a stale 1 would look like two active engines.
            family.clear();
        }
        family.get_or_create(&by).set(1);
    }

    fn configured(&self) -> String {
        self.configured.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl MetricFamilies {
    fn registered(&self) -> Registry {
        // The encoder adds `_total` to counters and the unit to the others.
        let mut all = Registry::with_prefix("ctxhost");
        let f = self.clone();
        all.register("engine_active", "The active engine", f.engine_active);
        all.register("fallback", "Requests not shaped by the configured engine", f.fallback);
        all.register("rejected_plans", "Plans that violated an invariant", f.rejected_plans);
        all.register("unshaped", "Requests shaped by no engine", f.unshaped);
        all.register("compaction", "Compactions by outcome", f.compaction);
        let name = "engine_duration";
        all.register_with_unit(name, "Engine time per request", Unit::Seconds, f.engine_seconds);
        all.register("saved_tokens", "Estimated tokens not sent to models", f.saved_tokens);
        let help = "Prompts silently truncated by a provider";
        all.register("truncated_upstream", help, f.truncated_upstream);
        all.register("request", "Generation requests by response status", f.request);
        all.register("aborted_responses", "Aborted responses", f.aborted_responses);
        let help = "Session files deleted or replaced by others, by outcome";
        all.register("session_file_lost", help, f.session_file);
        all.register("in_flight", "Requests in flight", f.in_flight);
        let (name, help) = ("first_byte_duration", "Time to the response head");
        all.register_with_unit(name, help, Unit::Seconds, f.first_byte_seconds);
        let (name, help) = ("request_duration", "Time to the response end");
        all.register_with_unit(name, help, Unit::Seconds, f.request_seconds);
        all.register("input_tokens", "Prompt tokens not read from a cache", f.input_tokens);
        all.register("output_tokens", "Output tokens", f.output_tokens);
        let help = "Prompt tokens read from the provider's cache";
        all.register("cache_read_tokens", help, f.cache_read_tokens);
        let help = "Prompt tokens written to the provider's cache";
        all.register("cache_write_tokens", help, f.cache_write_tokens);
        all
    }
}

fn engine_labels(engine: &str) -> EngineLabels {
    EngineLabels { engine: engine.to_owned() }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").field("totals", &self.totals()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
