//! The log on standard error, and the traces that go to a collector where the config names one.

mod event_lines;
#[cfg(feature = "otel")]
mod traces;
#[cfg(not(feature = "otel"))]
#[path = "log/no_traces.rs"]
mod traces;

use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer as _, fmt};

use super::error::CliError;
use ctxhost_config::TelemetrySettings;

pub(super) use traces::Traces;

/// What is shown unasked, where `CTXHOST_LOG` names nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DefaultLogLevel {
    /// What a report cannot say by itself. A person at a terminal looks at the report.
    Errors,
    /// That something goes on otherwise than it should, too: a server has nothing else to say it with.
    Warnings,
}

/// Starts the log. What engines and the host have to say goes to standard error, so that standard
/// output stays data.
pub(super) fn start() {
    with_traces(&Traces::none(), DefaultLogLevel::Errors, &TelemetrySettings::default());
}

/// Starts the log, and traces where the config says where they go.
///
/// Must not be called or dropped inside a future: the exporter has threads of its own and waits for them.
pub(super) fn start_traced(
    settings: &TelemetrySettings,
    unasked: DefaultLogLevel,
) -> Result<Traces, CliError> {
    let traces = Traces::start(settings)?;
    with_traces(&traces, unasked, settings);
    Ok(traces)
}

fn with_traces(traces: &Traces, unasked: DefaultLogLevel, settings: &TelemetrySettings) {
    let level = match unasked {
        DefaultLogLevel::Errors => "error",
        DefaultLogLevel::Warnings => "warn",
    };
    let filter = EnvFilter::try_from_env("CTXHOST_LOG").unwrap_or_else(|_| EnvFilter::new(level));
    let lines =
        fmt::layer().with_writer(event_lines::stderr_lines).without_time().with_target(false);
    // Who closes the log ends no request.
    let lines = lines.log_internal_errors(false);
    let log =
        tracing_subscriber::registry().with(lines.with_filter(filter)).with(traces.layer(settings));
    // A second start in one process is a test's; the first log stays.
    let _ = log.try_init();
}
