//! Ends an HTTP/2 connection whose client does not take a response that is ready.
//!
//! HTTP/1 needs none of this: there a client that does not read stalls the socket, which has a write timeout. An HTTP/2
//! client stops single responses by flow control and still answers pings.

use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, HttpBody};
use hyper::body::{Frame, SizeHint};
use tokio::time::Instant;

/// Checks in one limit: a stall is noticed at most this share of the limit late.
const CHECKS: u32 = 4;

/// Milliseconds since the connection began at which a response was ready to be taken; 0 while it waits for its upstream.
type ReadySince = AtomicU64;

/// The responses of one connection.
#[derive(Clone, Debug)]
pub(super) struct ResponseWatch {
    began: Instant,
    responses: Arc<Mutex<Vec<Weak<ReadySince>>>>,
}

impl ResponseWatch {
    pub(super) fn new() -> ResponseWatch {
        ResponseWatch { began: Instant::now(), responses: Arc::default() }
    }

    /// Watches a response until its body is dropped.
    pub(super) fn watch(&self, body: Body) -> Body {
        let ready_since = Arc::new(ReadySince::new(self.elapsed_ms()));
        let mut responses = self.responses.lock().unwrap_or_else(PoisonError::into_inner);
        responses.retain(|response| response.strong_count() > 0);
        responses.push(Arc::downgrade(&ready_since));
        Body::new(WatchedBody { body, ready_since, watch: self.clone() })
    }

    /// Returns when the client has not taken a response for `limit` that was ready.
    pub(super) async fn stalled(&self, limit: Duration) {
        loop {
            tokio::time::sleep((limit / CHECKS).max(Duration::from_millis(1))).await;
            let now_ms = self.elapsed_ms();
            let responses = self.responses.lock().unwrap_or_else(PoisonError::into_inner);
            let ready_since = responses
                .iter()
                .filter_map(Weak::upgrade)
                .map(|since| since.load(Ordering::Relaxed));
            let mut waiting = ready_since.filter(|since| *since > 0);
            if waiting.any(|since| u128::from(now_ms.saturating_sub(since)) >= limit.as_millis()) {
                return;
            }
        }
    }

    /// At least 1, since 0 has a meaning of its own.
    fn elapsed_ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX).max(1)
    }
}

/// A response body that records when it was ready.
struct WatchedBody {
    body: Body,
    ready_since: Arc<ReadySince>,
    watch: ResponseWatch,
}

impl HttpBody for WatchedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        // hyper asks for a frame once the client has room for it.
        let polled = Pin::new(&mut self.body).poll_frame(context);
        let ready_ms = if polled.is_pending() { 0 } else { self.watch.elapsed_ms() };
        self.ready_since.store(ready_ms, Ordering::Relaxed);
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
