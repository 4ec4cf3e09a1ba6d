//! What a running gateway tells about itself: traces, and what its dashboard shows.

use serde::{Deserialize, Serialize};

ctxhost_engine_api::settings! {
    /// `[telemetry]`.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    pub struct TelemetrySettings {
        /// Where traces go as OTLP over HTTP, the whole address, such as
        /// `http://127.0.0.1:4318/v1/traces`; nowhere, because nothing leaves this machine unasked.
        pub otlp_endpoint: Option<String> = None, Url;
        /// The share of requests that are traced; all, because an agent makes few.
        pub otlp_sample_share: f64 = 1.0, Number(0.0, 1.0), "share";
        /// How long the collector may take for a batch of traces; as the OTLP specification has it.
        pub otlp_timeout_ms: u64 = 10_000, Whole(1), "ms";
        /// True lets words of conversations into the dashboard: how the entries begin that were
        /// dropped. Not for whoever only looks after the machine.
        pub log_content: bool = false, Flag;
        /// What the dashboard shows; the one that rested longest gives way to a new one.
        pub dashboard_sessions: usize = 100, Whole(1), "sessions";
        /// The requests of a session in its curve; one for each point of its width.
        pub dashboard_points: usize = 500, Whole(1), "requests";
    }
}
