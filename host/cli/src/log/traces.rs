//! Traces of this program on their way to an OpenTelemetry collector.

use std::time::Duration;

use opentelemetry::trace::TracerProvider as _;
use opentelemetry_otlp::{SpanExporter, WithExportConfig as _};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{Sampler, SdkTracerProvider};
use tracing::Subscriber;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{FilterExt as _, LevelFilter, Targets, filter_fn};
use tracing_subscriber::registry::LookupSpan;

use crate::error::CliError;
use ctxhost_config::TelemetrySettings;

/// The name of this program in traces.
const SERVICE: &str = "ctxhost";

/// Traces on their way to a collector. What is still here is sent when this is dropped.
#[derive(Debug)]
pub(crate) struct Traces {
    provider: Option<SdkTracerProvider>,
}

impl Traces {
    /// No traces.
    pub(super) fn none() -> Traces {
        Traces { provider: None }
    }

    /// Traces to the collector that the config names, if it names one.
    pub(super) fn start(settings: &TelemetrySettings) -> Result<Traces, CliError> {
        let endpoint = settings.otlp_endpoint.as_deref();
        let provider = endpoint.map(|to| provider(to, settings)).transpose()?;
        Ok(Traces { provider })
    }

    /// What takes spans for them from the log.
    pub(super) fn layer<S>(&self, settings: &TelemetrySettings) -> Option<impl Layer<S> + use<S>>
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        let provider = self.provider.as_ref()?;
        let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer(SERVICE));
        // Only our own crates, whose names all begin so: libraries log addresses and headers. What is logged on the way
        // may quote a conversation, engines' words above all, so that it is sent only where words may.
        let ours = Targets::new().with_target(SERVICE, LevelFilter::INFO);
        let with_words = settings.log_content;
        Some(layer.with_filter(ours.and(filter_fn(move |it| it.is_span() || with_words))))
    }
}

fn provider(endpoint: &str, settings: &TelemetrySettings) -> Result<SdkTracerProvider, CliError> {
    // The exporter's client takes the cryptography of the process.
    _ = rustls::crypto::ring::default_provider().install_default();
    let exporter = SpanExporter::builder()
        .with_http()
        .with_endpoint(endpoint)
        .with_timeout(Duration::from_millis(settings.otlp_timeout_ms))
        .build()
        .map_err(|error| {
            let message = format!("no traces can be sent to {endpoint}: {error}");
            CliError::user(message).hint("mend telemetry.otlp_endpoint, or leave it out")
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
