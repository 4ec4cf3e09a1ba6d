//! The log on standard error, and traces to an OpenTelemetry collector if one is configured.

mod event_lines;
#[cfg(not(feature = "otel"))]
mod no_traces;
#[cfg(feature = "otel")]
mod traces;

use std::io::IsTerminal as _;

use tracing::Level;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{Layer as _, fmt};

use super::error::CliError;
use ctxhost_config::TelemetrySettings;

#[cfg(not(feature = "otel"))]
pub(super) use no_traces::NoTraceExporter as TraceExporter;
#[cfg(feature = "otel")]
pub(super) use traces::TraceExporter;

/// Log level without `CTXHOST_LOG`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DefaultLogLevel {
    /// For commands with a report: only what the report does not show.
    Errors,
    /// For a server, whose log is its only output.
    Warnings,
}

/// Starts the log on standard error; standard output is reserved for data.
pub(super) fn start() {
    with_traces(&TraceExporter::none(), DefaultLogLevel::Errors, &TelemetrySettings::default());
}

/// Starts the log, and traces if the config names a collector.
///
/// Must not be called or dropped inside a future: the exporter waits for its own threads.
pub(super) fn start_traced(
    settings: &TelemetrySettings,
    default_level: DefaultLogLevel,
) -> Result<TraceExporter, CliError> {
    let traces = TraceExporter::start(settings)?;
    with_traces(&traces, default_level, settings);
    Ok(traces)
}

/// Whether lines have the time: where a server writes them to a file, which neither a person watches as it grows nor the
/// journal of systemd, which adds its own.
fn needs_time(level: DefaultLogLevel, is_watched: bool) -> bool {
    level == DefaultLogLevel::Warnings && !is_watched
}

fn with_traces(
    traces: &TraceExporter,
    default_level: DefaultLogLevel,
    settings: &TelemetrySettings,
) {
    let level = match default_level {
        DefaultLogLevel::Errors => Level::ERROR,
        DefaultLogLevel::Warnings => Level::WARN,
    };
    // An invalid CTXHOST_LOG falls back to the default instead of ending the program.
    let filter = std::env::var("CTXHOST_LOG").ok().and_then(|text| text.parse().ok());
    let filter = filter.unwrap_or_else(|| Targets::new().with_default(level));
    let lines = fmt::layer().with_writer(event_lines::stderr_lines).with_target(false);
    // A closed standard error must not fail a request.
    let lines = lines.log_internal_errors(false);
    let is_watched =
        std::io::stderr().is_terminal() || std::env::var_os("JOURNAL_STREAM").is_some();
    let lines = if needs_time(default_level, is_watched) {
        lines.boxed()
    } else {
        lines.without_time().boxed()
    };
    let log =
        tracing_subscriber::registry().with(lines.with_filter(filter)).with(traces.layer(settings));
    // Only tests start a second log in one process; the first one stays.
    let _ = log.try_init();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_server_writes_to_a_file_has_the_time() {
        assert!(needs_time(DefaultLogLevel::Warnings, false));
        assert!(!needs_time(DefaultLogLevel::Warnings, true));
        assert!(!needs_time(DefaultLogLevel::Errors, false));
    }
}
