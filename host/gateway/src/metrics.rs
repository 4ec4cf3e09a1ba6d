//! What a gateway counts, in the text form that Prometheus reads. No word of a conversation stands there.

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

use ctxhost_context::{CompactionOutcome, Verdict};
use ctxhost_dialects::message::Usage;
use ctxhost_runtime::event::What;

pub use edge::Edge;

/// The content type of [`Metrics::text`].
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Upper bounds of the buckets for whole requests, in seconds: models answer within a second or think
/// for minutes.
const REQUEST_SECONDS: [f64; 12] =
    [0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 180.0, 600.0];

/// Upper bounds of the buckets for engines, in seconds: most shape a request within a millisecond.
const ENGINE_SECONDS: [f64; 10] =
    [0.000_05, 0.000_2, 0.001, 0.005, 0.02, 0.1, 0.5, 2.0, 10.0, 60.0];

/// The slot that engines of a gateway stand in.
const SLOT: &str = "context_engine";

/// What a gateway counts.
pub struct Metrics {
    registry: Registry,
    families: Families,
    edge: Edge,
    totals: Totals,
    /// The engine that the config names, as of now.
    configured: Mutex<String>,
}

/// What came of all requests so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sums {
    /// Requests that asked a model for an answer.
    pub requests: u64,
    /// Compactions that were applied.
    pub compactions: u64,
    /// Requests that another engine than the configured one had to shape.
    pub fallbacks: u64,
    /// What models did not have to read, as entries count tokens: over all requests, the conversation
    /// less what was sent of it.
    pub saved_tokens: u64,
}

#[derive(Debug, Default)]
struct Totals {
    requests: AtomicU64,
    compactions: AtomicU64,
    fallbacks: AtomicU64,
    saved_tokens: AtomicU64,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct InSlot {
    slot: &'static str,
    configured: String,
    effective: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByEngine {
    engine: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByOutcome {
    engine: String,
    trigger: &'static str,
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByDialect {
    dialect: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByReason {
    reason: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByFileCheck {
    outcome: &'static str,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
struct ByStatus {
    dialect: &'static str,
    status: u16,
}

/// Made by a function, because a histogram has to be told its buckets.
type Seconds<Labels> = Family<Labels, Histogram, fn() -> Histogram>;

#[derive(Clone, Debug)]
struct Families {
    engine_effective: Family<InSlot, Gauge>,
    fallback: Family<ByEngine, Counter>,
    illegal_output: Family<ByEngine, Counter>,
    unshaped: Family<ByReason, Counter>,
    compaction: Family<ByOutcome, Counter>,
    engine_seconds: Seconds<ByEngine>,
    saved_tokens: Counter,
    truncated_upstream: Counter,
    request: Family<ByStatus, Counter>,
    broken_off: Family<ByDialect, Counter>,
    session_file: Family<ByFileCheck, Counter>,
    in_flight: Gauge,
    first_byte_seconds: Seconds<ByDialect>,
    request_seconds: Seconds<ByDialect>,
    input_tokens: Family<ByDialect, Counter>,
    output_tokens: Family<ByDialect, Counter>,
    cache_read_tokens: Family<ByDialect, Counter>,
    cache_write_tokens: Family<ByDialect, Counter>,
}

impl Default for Families {
    fn default() -> Self {
        let requests: fn() -> Histogram = || Histogram::new(REQUEST_SECONDS);
        let engines: fn() -> Histogram = || Histogram::new(ENGINE_SECONDS);
        Families {
            engine_effective: Family::default(),
            fallback: Family::default(),
            illegal_output: Family::default(),
            unshaped: Family::default(),
            compaction: Family::default(),
            engine_seconds: Family::new_with_constructor(engines),
            saved_tokens: Counter::default(),
            truncated_upstream: Counter::default(),
            request: Family::default(),
            broken_off: Family::default(),
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
    /// Nothing counted yet, for a slot in which the config puts `configured`.
    pub fn new(configured: &str) -> Metrics {
        let families = Families::default();
        let (mut registry, edge) = (families.registered(), Edge::default());
        edge.register(&mut registry);
        let metrics = Metrics {
            registry,
            families,
            edge,
            totals: Totals::default(),
            configured: Mutex::default(),
        };
        // A zero is seen before a one.
        for reason in ["failed", "unread"] {
            metrics.families.unshaped.get_or_create(&ByReason { reason }).inc_by(0);
        }
        for outcome in ["made_again", "gone"] {
            metrics.families.session_file.get_or_create(&ByFileCheck { outcome }).inc_by(0);
        }
        metrics.seat(configured);
        metrics
    }

    /// What is counted at the edge, for those who count it.
    pub fn edge(&self) -> Edge {
        self.edge.clone()
    }

    /// What happened in a session. `folded_tokens` is what compactions have taken out of it so far.
    pub fn heard(&self, what: &What, folded_tokens: u64) {
        match what {
            What::Assembled { engine, fallback, tokens, live_tokens, illegal, took, .. } => {
                let configured = self.configured();
                self.serves(&configured, engine);
                if fallback.is_some() {
                    self.families.fallback.get_or_create(&by_engine(&configured)).inc();
                    self.totals.fallbacks.fetch_add(1, Ordering::Relaxed);
                }
                self.families
                    .illegal_output
                    .get_or_create(&by_engine(&configured))
                    .inc_by(*illegal);
                let seconds = self.families.engine_seconds.get_or_create(&by_engine(engine));
                seconds.observe(took.as_secs_f64());
                self.saved(live_tokens.saturating_sub(*tokens).saturating_add(folded_tokens));
            }
            What::Compaction(outcome) => self.compacted(outcome),
            What::SilentTruncation { .. } => drop(self.families.truncated_upstream.inc()),
            What::SessionFileMadeAgain { .. } => self.session_file("made_again"),
            What::SessionFileGone { .. } => self.session_file("gone"),
            What::EngineChanged { engine, .. } => self.seat(engine),
            What::EngineRolledBack { serving, .. } => self.serves(&self.configured(), serving),
            _ => {}
        }
    }

    /// No engine shaped a request: it `failed`, or nobody could read it (`unread`).
    pub fn unshaped(&self, reason: &'static str) {
        self.families.unshaped.get_or_create(&ByReason { reason }).inc();
    }

    /// A request came in.
    pub fn began(&self) {
        self.families.in_flight.inc();
    }

    /// The head of an answer is here: its status, and how long that took.
    pub fn headed(&self, dialect: &'static str, status: u16, took: Duration) {
        self.families.request.get_or_create(&ByStatus { dialect, status }).inc();
        let seconds = self.families.first_byte_seconds.get_or_create(&ByDialect { dialect });
        seconds.observe(took.as_secs_f64());
        self.totals.requests.fetch_add(1, Ordering::Relaxed);
    }

    /// An answer is over: to its end, or broken off by one of both sides.
    pub fn ended(&self, dialect: &'static str, took: Duration, to_its_end: bool) {
        self.families.in_flight.dec();
        let seconds = self.families.request_seconds.get_or_create(&ByDialect { dialect });
        seconds.observe(took.as_secs_f64());
        if !to_its_end {
            self.families.broken_off.get_or_create(&ByDialect { dialect }).inc();
        }
    }

    /// What a provider counted.
    pub fn used(&self, dialect: &'static str, usage: &Usage) {
        let by = ByDialect { dialect };
        let count = |family: &Family<ByDialect, Counter>, tokens| {
            family.get_or_create(&by).inc_by(tokens);
        };
        count(&self.families.input_tokens, usage.input);
        count(&self.families.output_tokens, usage.output);
        count(&self.families.cache_read_tokens, usage.cache_read);
        count(&self.families.cache_write_tokens, usage.cache_write);
    }

    /// What came of all requests so far.
    pub fn sums(&self) -> Sums {
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Sums {
            requests: read(&self.totals.requests),
            compactions: read(&self.totals.compactions),
            fallbacks: read(&self.totals.fallbacks),
            saved_tokens: read(&self.totals.saved_tokens),
        }
    }

    /// Everything, as [`CONTENT_TYPE`].
    pub fn text(&self) -> String {
        let mut text = String::new();
        // A String takes whatever is written into it.
        let _ = encode(&mut text, &self.registry);
        text
    }

    fn session_file(&self, outcome: &'static str) {
        self.families.session_file.get_or_create(&ByFileCheck { outcome }).inc();
    }

    fn compacted(&self, outcome: &CompactionOutcome) {
        let words = match outcome.verdict {
            Verdict::Applied => "applied",
            Verdict::Rejected { .. } => "rejected",
            Verdict::NotTried { .. } => "not_tried",
        };
        let (engine, trigger) = (outcome.engine.clone(), outcome.trigger.name());
        let by = ByOutcome { engine, trigger, outcome: words };
        self.families.compaction.get_or_create(&by).inc();
        if outcome.verdict == Verdict::Applied {
            self.totals.compactions.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn saved(&self, tokens: u64) {
        self.families.saved_tokens.inc_by(tokens);
        self.totals.saved_tokens.fetch_add(tokens, Ordering::Relaxed);
    }

    /// An engine was put into the slot. Its counts begin, so that a zero is seen before a one.
    fn seat(&self, engine: &str) {
        *self.configured.lock().unwrap_or_else(PoisonError::into_inner) = engine.to_owned();
        self.families.fallback.get_or_create(&by_engine(engine)).inc_by(0);
        self.families.illegal_output.get_or_create(&by_engine(engine)).inc_by(0);
        self.serves(engine, engine);
    }

    fn serves(&self, configured: &str, effective: &str) {
        let (configured, effective) = (configured.to_owned(), effective.to_owned());
        let by = InSlot { slot: SLOT, configured, effective };
        let family = &self.families.engine_effective;
        if family.get(&by).is_none() {
            family.clear();
        }
        family.get_or_create(&by).set(1);
    }

    fn configured(&self) -> String {
        self.configured.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Families {
    fn registered(&self) -> Registry {
        let mut all = Registry::with_prefix("ctxhost");
        let f = self.clone();
        all.register("engine_effective", "The engine that shapes requests", f.engine_effective);
        all.register("fallback", "Requests that another engine had to shape", f.fallback);
        all.register("illegal_output", "Plans that the law refused", f.illegal_output);
        all.register("unshaped", "Requests that no engine shaped", f.unshaped);
        all.register("compaction", "Compactions, by what became of them", f.compaction);
        let name = "engine_duration";
        all.register_with_unit(name, "Time in engines", Unit::Seconds, f.engine_seconds);
        all.register("saved_tokens", "Tokens that models did not have to read", f.saved_tokens);
        let help = "Prompts that a provider took and did not read whole";
        all.register("truncated_upstream", help, f.truncated_upstream);
        all.register("request", "Requests for an answer, by its status", f.request);
        all.register("broken_off", "Answers that did not come to their end", f.broken_off);
        let help = "Session files that were gone from their place, by what became of them";
        all.register("session_file_lost", help, f.session_file);
        all.register("in_flight", "Requests that are being answered", f.in_flight);
        let (name, help) = ("first_byte_duration", "Time to the head of an answer");
        all.register_with_unit(name, help, Unit::Seconds, f.first_byte_seconds);
        let (name, help) = ("request_duration", "Time to the end of an answer");
        all.register_with_unit(name, help, Unit::Seconds, f.request_seconds);
        all.register("input_tokens", "Prompt tokens that came from no cache", f.input_tokens);
        all.register("output_tokens", "Tokens of answers", f.output_tokens);
        let help = "Prompt tokens that came from the provider's cache";
        all.register("cache_read_tokens", help, f.cache_read_tokens);
        let help = "Prompt tokens written to the provider's cache";
        all.register("cache_write_tokens", help, f.cache_write_tokens);
        all
    }
}

fn by_engine(engine: &str) -> ByEngine {
    ByEngine { engine: engine.to_owned() }
}

impl fmt::Debug for Metrics {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Metrics").field("sums", &self.sums()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
