//! Replaces the trace exporter in builds without OpenTelemetry.

use tracing_subscriber::layer::Identity;

use crate::error::CliError;
use ctxhost_config::TelemetrySettings;

/// Exports nothing; a config with a collector is rejected.
#[derive(Debug)]
pub(crate) struct NoTraceExporter;

impl NoTraceExporter {
    pub(super) fn none() -> NoTraceExporter {
        NoTraceExporter
    }

    /// Rejects a config that names a collector.
    pub(super) fn start(settings: &TelemetrySettings) -> Result<NoTraceExporter, CliError> {
        match &settings.otlp_endpoint {
            None => Ok(NoTraceExporter),
            Some(endpoint) => {
                let message =
                    format!("cannot send traces to {endpoint}: built without OpenTelemetry");
                let hint = "build with the cargo feature `otel`, or remove telemetry.otlp_endpoint";
                Err(CliError::user(message).hint(hint))
            }
        }
    }

    pub(super) fn layer(&self, _settings: &TelemetrySettings) -> Option<Identity> {
        None
    }
}
