//! The middleware around the doors: it measures a request and its answer and touches neither.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Instant;

use axum::Router;
use axum::body::{Body, Bytes, HttpBody};
use axum::extract::Request;
use axum::middleware::{self, Next};
use axum::response::Response;
use hyper::body::{Frame, SizeHint};
use tracing::{Instrument as _, Span};

use super::access_line::AccessLine;
use super::board::Board;
use super::now_ms;
use crate::door::door;
use crate::exchange::{Door, Truth};
use crate::metrics::Metrics;

/// Counts what goes through `doors`.
pub(super) fn around(metrics: Arc<Metrics>, board: Arc<Board>, doors: Router) -> Router {
    let look = Look { metrics, board };
    doors.layer(middleware::from_fn(move |request, next| look.clone().on(request, next)))
}

#[derive(Clone)]
struct Look {
    metrics: Arc<Metrics>,
    board: Arc<Board>,
}

impl Look {
    async fn on(self, request: Request, next: Next) -> Response {
        let door = door(request.method(), request.uri().path());
        let mut line = AccessLine::begin(&request);
        let Some(door) = door.filter(Door::is_answered_by_a_model) else {
            let response = next.run(request).await;
            if let Some(line) = &mut line {
                line.headed(&response);
            }
            return response;
        };
        let dialect = word(&door);
        let span = tracing::info_span!(
            "request",
            dialect,
            status = tracing::field::Empty,
            engine = tracing::field::Empty,
            session = tracing::field::Empty,
            tokens = tracing::field::Empty,
            compaction = tracing::field::Empty,
        );
        let mut watched = Watched::begin(self.metrics.clone(), dialect, span.clone(), line);
        let response = next.run(request).instrument(span).await;
        watched.headed(&response);
        if let Some(truth) = response.extensions().get::<Truth>() {
            self.board.came(&truth.session, dialect, now_ms());
        }
        // A body that is empty from the start is never asked for a frame.
        watched.to_its_end = response.body().is_end_stream();
        response.map(|body| Body::new(Stream { body, watched }))
    }
}

/// The dialect that is spoken behind a door, as sessions name it.
pub(super) fn word(door: &Door) -> &'static str {
    door.dialect().word()
}

/// A request that is being answered. Whatever becomes of it is counted when this is dropped.
struct Watched {
    metrics: Arc<Metrics>,
    dialect: &'static str,
    began: Instant,
    to_its_end: bool,
    span: Span,
    line: Option<AccessLine>,
}

impl Watched {
    fn begin(
        metrics: Arc<Metrics>,
        dialect: &'static str,
        span: Span,
        line: Option<AccessLine>,
    ) -> Watched {
        metrics.began();
        Watched { metrics, dialect, began: Instant::now(), to_its_end: false, span, line }
    }

    fn headed(&mut self, response: &Response) {
        if let Some(line) = &mut self.line {
            line.headed(response);
        }
        let status = response.status().as_u16();
        self.metrics.headed(self.dialect, status, self.began.elapsed());
        self.span.record("status", status);
        let Some(truth) = response.extensions().get::<Truth>() else { return };
        if truth.engine == "none" {
            self.metrics.unshaped(if truth.is_unshaped() { "failed" } else { "unread" });
        }
        self.span.record("engine", truth.engine.as_str());
        self.span.record("session", truth.session.as_str());
        self.span.record("compaction", truth.compaction);
        if let Some(tokens) = truth.tokens {
            self.span.record("tokens", tokens);
        }
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.metrics.ended(self.dialect, self.began.elapsed(), self.to_its_end);
    }
}

/// An answer's body as it is; its end is noticed.
struct Stream {
    body: Body,
    watched: Watched,
}

impl HttpBody for Stream {
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
        self.watched.to_its_end |= is_over;
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
