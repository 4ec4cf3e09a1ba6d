//! The log on standard error, and the traces that go to a collector where the config names one.

mod one_line;

use std::time::Duration;

use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::{SpanExporter, WithExportConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{Sampler, SdkTracerProvider};
use tracing_subscriber::filter::{FilterExt as _, LevelFilter, Targets, filter_fn};
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer as _, fmt};

use super::failure::Failure;
use ctxhost_config::TelemetrySettings;

/// The name of this program in traces.
const SERVICE: &str = "ctxhost";

/// Traces on their way to a collector. What is still here is sent when this is dropped.
#[derive(Debug)]
pub(super) struct Traces {
    provider: Option<SdkTracerProvider>,
}

/// What is shown unasked, where `CTXHOST_LOG` names nothing else.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unasked {
    /// What a report cannot say by itself. A person at a terminal looks at the report.
    Errors,
    /// That something goes on otherwise than it should, too: a server has nothing else to say it with.
    Warnings,
}

/// Starts the log. What engines and the host have to say goes to standard error, so that standard
/// output stays data.
pub(super) fn start() {
    with_traces(None, Unasked::Errors, &TelemetrySettings::default());
}

/// Starts the log, and traces where the config says where they go.
///
/// Must not be called or dropped inside a future: the exporter has threads of its own and waits for them.
pub(super) fn start_traced(
    settings: &TelemetrySettings,
    unasked: Unasked,
) -> Result<Traces, Failure> {
    let provider =
        settings.otlp_endpoint.as_deref().map(|to| provider(to, settings)).transpose()?;
    with_traces(provider.as_ref(), unasked, settings);
    Ok(Traces { provider })
}

fn with_traces(
    provider: Option<&SdkTracerProvider>,
    unasked: Unasked,
    settings: &TelemetrySettings,
) {
    let level = match unasked {
        Unasked::Errors => "error",
        Unasked::Warnings => "warn",
    };
    let filter = EnvFilter::try_from_env("CTXHOST_LOG").unwrap_or_else(|_| EnvFilter::new(level));
    let lines = fmt::layer().with_writer(one_line::stderr).without_time().with_target(false);
    // Who closes the log ends no request.
    let lines = lines.log_internal_errors(false);
    let spans = provider.map(|provider| {
        let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer(SERVICE));
        // Ours alone: libraries speak of addresses and headers. What is told on the way may quote a
        // conversation, engines' words above all, so that it goes only where words may.
        let ours = Targets::new().with_target(SERVICE, LevelFilter::INFO);
        let with_words = settings.log_content;
        layer.with_filter(ours.and(filter_fn(move |it| it.is_span() || with_words)))
    });
    let log = tracing_subscriber::registry().with(lines.with_filter(filter)).with(spans);
    // A second start in one process is a test's; the first log stays.
    let _ = log.try_init();
}

fn provider(endpoint: &str, settings: &TelemetrySettings) -> Result<SdkTracerProvider, Failure> {
    let exporter = SpanExporter::builder()
        .with_http()
        .with_endpoint(endpoint)
        .with_timeout(Duration::from_millis(settings.otlp_timeout_ms))
        .build()
        .map_err(|error| {
            let message = format!("no traces can be sent to {endpoint}: {error}");
            Failure::caller(message).hint("mend telemetry.otlp_endpoint, or leave it out")
        })?;
    let provider = SdkTracerProvider::builder()
        .with_batch_exporter(exporter)
        .with_sampler(Sampler::TraceIdRatioBased(settings.otlp_sample_share))
        .with_resource(Resource::builder().with_service_name(SERVICE).build());
    Ok(provider.build())
}

impl Drop for Traces {
    fn drop(&mut self) {
        let ended = self.provider.as_ref().map(SdkTracerProvider::shutdown);
        if let Some(Err(error)) = ended {
            tracing::error!(%error, "the last traces were not sent");
        }
    }
}
