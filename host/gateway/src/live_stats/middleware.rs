//! The middleware that measures requests and responses.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use axum::Router;
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::Request;
use axum::http::StatusCode;
use axum::middleware::{self, Next};
use axum::response::Response;
use hyper::body::{Frame, SizeHint};
use tracing::{Instrument as _, Span};

use super::access_line::AccessLine;
use super::conversations::LiveStats;
use super::now_ms;
use crate::metrics::Metrics;
use crate::proxy::{Endpoint, ShapingReport};
use crate::routes::endpoint_for;

/// Measures the requests of `routes`.
pub(super) fn measure(metrics: Arc<Metrics>, live: Arc<LiveStats>, routes: Router) -> Router {
    let layer = StatsLayer { metrics, live };
    routes.layer(middleware::from_fn(move |request, next| layer.clone().handle(request, next)))
}

#[derive(Clone)]
struct StatsLayer {
    metrics: Arc<Metrics>,
    live: Arc<LiveStats>,
}

impl StatsLayer {
    async fn handle(self, request: Request, next: Next) -> Response {
        let endpoint = endpoint_for(&request);
        let mut line = AccessLine::start(&request);
        let Some(endpoint) = endpoint.filter(Endpoint::is_generation) else {
            let response = next.run(request).await;
            if let Some(line) = &mut line {
                line.record_head(&response);
            }
            return response;
        };
        let dialect = dialect_label(&endpoint);
        let span = tracing::info_span!(
            "request",
            dialect,
            status = tracing::field::Empty,
            engine = tracing::field::Empty,
            session = tracing::field::Empty,
            tokens = tracing::field::Empty,
            compaction = tracing::field::Empty,
        );
        let mut measurement =
            RequestMeasurement::start(self.metrics.clone(), dialect, span.clone(), line);
        // The span covers the work until the response head. The body streams outside of it.
        let response = next.run(request).instrument(span).await;
        measurement.record_head(&response);
        if let Some(report) = response.extensions().get::<ShapingReport>() {
            self.live.record_request(dialect, report, now_ms());
        }
        // A body that is empty from the start is never polled.
        measurement.is_complete = response.body().is_end_stream();
        response.map(|body| Body::new(MeasuredBody { body, measurement }))
    }
}

/// The dialect label of metrics.
pub(super) fn dialect_label(endpoint: &Endpoint) -> &'static str {
    endpoint.dialect.as_str()
}

/// A request in progress, recorded when dropped.
struct RequestMeasurement {
    metrics: Arc<Metrics>,
    dialect: &'static str,
    began: Instant,
    is_complete: bool,
    span: Span,
    line: Option<AccessLine>,
}

impl RequestMeasurement {
    fn start(
        metrics: Arc<Metrics>,
        dialect: &'static str,
        span: Span,
        line: Option<AccessLine>,
    ) -> RequestMeasurement {
        metrics.request_started();
        RequestMeasurement {
            metrics,
            dialect,
            began: Instant::now(),
            is_complete: false,
            span,
            line,
        }
    }

    fn record_head(&mut self, response: &Response) {
        if let Some(line) = &mut self.line {
            line.record_head(response);
        }
        let status = response.status();
        let report = response.extensions().get::<ShapingReport>();
        self.metrics.response_started(self.dialect, status.as_u16(), self.began.elapsed());
        // A request with a wrong token belongs to no conversation.
        if status != StatusCode::UNAUTHORIZED || report.is_some() {
            self.metrics.count_request();
        }
        self.span.record("status", status.as_u16());
        let Some(report) = report else { return };
        if let Some(reason) = report.unshaped_reason() {
            self.metrics.record_unshaped(reason);
        }
        self.span.record("engine", report.engine.as_str());
        self.span.record("session", report.session.as_str());
        self.span.record("compaction", report.compaction);
        if let Some(tokens) = report.tokens {
            self.span.record("tokens", tokens);
        }
    }
}

impl Drop for RequestMeasurement {
    fn drop(&mut self) {
        self.metrics.request_ended(self.dialect, self.began.elapsed(), self.is_complete);
    }
}

/// A response body whose end is recorded.
struct MeasuredBody {
    body: Body,
    measurement: RequestMeasurement,
}

impl HttpBody for MeasuredBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let frame = Pin::new(&mut self.body).poll_frame(context);
        let is_over = match &frame {
            Poll::Ready(None) => true,
            Poll::Ready(Some(Ok(_))) => self.body.is_end_stream(),
            _ => false,
        };
        self.measurement.is_complete |= is_over;
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
