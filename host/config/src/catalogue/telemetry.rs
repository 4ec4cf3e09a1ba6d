//! Settings of what a running gateway tells about itself.

use super::{Allowed, MS, SHARE, Setting, setting};

/// In the order in which people read about them.
pub(super) const SETTINGS: &[Setting] = &[
    setting(
        "telemetry.otlp_endpoint",
        "",
        Allowed::Url,
        "where traces go as OTLP over HTTP, the whole address, such as `http://127.0.0.1:4318/v1/traces`; nowhere, because nothing leaves this machine unasked",
    ),
    setting(
        "telemetry.otlp_sample_share",
        SHARE,
        Allowed::Number(0.0, 1.0),
        "the share of requests that are traced; all, because an agent makes few",
    ),
    setting(
        "telemetry.otlp_timeout_ms",
        MS,
        Allowed::Whole(1),
        "how long the collector may take for a batch of traces; as the OTLP specification has it",
    ),
    setting(
        "telemetry.log_content",
        "",
        Allowed::Flag,
        "true lets words of conversations into the dashboard: how the entries begin that were dropped. Not for whoever only looks after the machine",
    ),
    setting(
        "telemetry.dashboard_sessions",
        "sessions",
        Allowed::Whole(1),
        "what the dashboard shows; the one that rested longest gives way to a new one",
    ),
    setting(
        "telemetry.dashboard_points",
        "requests",
        Allowed::Whole(1),
        "the requests of a session in its curve; one for each point of its width",
    ),
];
