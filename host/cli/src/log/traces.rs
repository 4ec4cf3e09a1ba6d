//! Exports traces to an OpenTelemetry collector.

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

/// The service name in traces.
const SERVICE: &str = "ctxhost";

/// The exporter of traces. Dropping it sends what is still buffered.
#[derive(Debug)]
pub(crate) struct TraceExporter {
    provider: Option<SdkTracerProvider>,
}

impl TraceExporter {
    pub(super) fn none() -> TraceExporter {
        TraceExporter { provider: None }
    }

    /// An exporter to the configured collector, if there is one.
    pub(super) fn start(settings: &TelemetrySettings) -> Result<TraceExporter, CliError> {
        let endpoint = settings.otlp_endpoint.as_deref();
        let provider = endpoint.map(|to| provider(to, settings)).transpose()?;
        Ok(TraceExporter { provider })
    }

    /// The log layer that collects spans.
    pub(super) fn layer<S>(&self, settings: &TelemetrySettings) -> Option<impl Layer<S> + use<S>>
    where
        S: Subscriber + for<'a> LookupSpan<'a>,
    {
        let provider = self.provider.as_ref()?;
        let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer(SERVICE));
        // Only crates whose names start with ours: libraries log addresses and headers. Events may
        // quote conversations, so they are exported only if log_content is set; spans do not.
        let ours = Targets::new().with_target(SERVICE, LevelFilter::INFO);
        let with_words = settings.log_content;
        Some(layer.with_filter(ours.and(filter_fn(move |record| record.is_span() || with_words))))
    }
}

fn provider(endpoint: &str, settings: &TelemetrySettings) -> Result<SdkTracerProvider, CliError> {
    // The exporter's HTTP client uses the process-wide crypto provider.
    _ = rustls::crypto::ring::default_provider().install_default();
    let exporter = SpanExporter::builder()
        .with_http()
        .with_endpoint(endpoint)
        .with_timeout(Duration::from_millis(settings.otlp_timeout_ms))
        .build()
        .map_err(|error| {
            let message = format!("cannot send traces to {endpoint}: {error}");
            CliError::user(message).hint("correct telemetry.otlp_endpoint, or remove it")
        })?;
    let provider = SdkTracerProvider::builder()
        .with_batch_exporter(exporter)
        // By trace id, so that all spans of one request are sampled or none.
        .with_sampler(Sampler::TraceIdRatioBased(settings.otlp_sample_share))
        .with_resource(Resource::builder().with_service_name(SERVICE).build());
    Ok(provider.build())
}

impl Drop for TraceExporter {
    fn drop(&mut self) {
        let ended = self.provider.as_ref().map(SdkTracerProvider::shutdown);
        if let Some(Err(error)) = ended {
            tracing::error!(%error, "could not send the last traces");
        }
    }
}
