//! `[telemetry]`: traces and the dashboard of a gateway.

use serde::{Deserialize, Serialize};

ctxhost_engine_api::settings! {
    /// `[telemetry]`.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    pub struct TelemetrySettings {
        /// URL for traces as OTLP over HTTP, such as `http://127.0.0.1:4318/v1/traces`; none, because
        /// nothing leaves this machine unless asked to.
        pub otlp_endpoint: Option<String> = None, Url;
        /// Share of requests that are traced; all, because an agent makes few.
        pub otlp_sample_share: f64 = 1.0, Number(0.0, 1.0), "share";
        /// Timeout of one batch to the collector; the default of the OTLP specification.
        pub otlp_timeout_ms: u64 = 10_000, Whole(1), "ms";
        /// True shows conversation text in the dashboard: the beginnings of dropped entries. False, because
        /// an operator need not read conversations.
        pub log_content: bool = false, Flag;
        /// Sessions in the dashboard; a new one replaces the one that was idle longest.
        pub dashboard_sessions: usize = 100, Whole(1), "sessions";
        /// Requests in a session's curve; one for each pixel of its width.
        pub dashboard_points: usize = 500, Whole(1), "requests";
    }
}
