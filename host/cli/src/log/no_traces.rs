//! What stands for traces where the program was built without OpenTelemetry.

use tracing_subscriber::layer::Identity;

use crate::failure::Failure;
use ctxhost_config::TelemetrySettings;

/// No traces: a config that names a collector is refused.
#[derive(Debug)]
pub(crate) struct Traces;

impl Traces {
    /// No traces.
    pub(super) fn none() -> Traces {
        Traces
    }

    /// Refuses a config that names a collector.
    pub(super) fn start(settings: &TelemetrySettings) -> Result<Traces, Failure> {
        match &settings.otlp_endpoint {
            None => Ok(Traces),
            Some(endpoint) => {
                let message = format!(
                    "no traces can be sent to {endpoint}: this ctxhost was built without OpenTelemetry"
                );
                let hint =
                    "build it with the cargo feature `otel`, or leave telemetry.otlp_endpoint out";
                Err(Failure::caller(message).hint(hint))
            }
        }
    }

    /// Nothing takes spans.
    pub(super) fn layer(&self, _settings: &TelemetrySettings) -> Option<Identity> {
        None
    }
}
