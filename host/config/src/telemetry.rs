//! What a running gateway tells about itself: traces, and what its dashboard shows.

use serde::{Deserialize, Serialize};

/// `[telemetry]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TelemetrySettings {
    /// Where traces go, as OTLP over HTTP: the whole address, such as `http://127.0.0.1:4318/v1/traces`.
    /// Default none: nothing leaves this machine unasked.
    pub otlp_endpoint: Option<String>,
    /// The share of requests that are traced, from 0 to 1. Default 1: an agent makes few requests.
    pub otlp_sample_share: f64,
    /// How long the collector may take for a batch of traces, in milliseconds. Default 10,000, as the OTLP
    /// specification has it.
    pub otlp_timeout_ms: u64,
    /// Whether words of conversations may stand in the dashboard: how the entries begin that were dropped.
    /// Default false: they are nobody's business who only looks after the machine.
    pub log_content: bool,
    /// Sessions that the dashboard shows; the one that rested longest gives way. Default 100: more do
    /// not fit on a page that a person reads.
    pub dashboard_sessions: usize,
    /// Requests of a session in its curve. Default 500: one for each point of its width.
    pub dashboard_points: usize,
}

impl Default for TelemetrySettings {
    fn default() -> Self {
        TelemetrySettings {
            otlp_endpoint: None,
            otlp_sample_share: 1.0,
            otlp_timeout_ms: 10_000,
            log_content: false,
            dashboard_sessions: 100,
            dashboard_points: 500,
        }
    }
}
