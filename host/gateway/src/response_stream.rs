//! An answer on its way to the client: every byte as it came, and what it says of tokens noted in
//! passing.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::sync::OwnedSemaphorePermit;

mod upstream_body;
mod usage;

use upstream_body::{UpstreamBody, UpstreamBodyError, add_to_hint};

pub(super) use usage::UsageReader;

use ctxhost_dialects::message::TokenUsage;

/// Who wants to know that an answer has come to its end, and what it cost.
pub(super) type EndCallback = Box<dyn FnOnce(Option<TokenUsage>) + Send>;

/// The body of an answer: nothing in it is changed or waits for what comes behind it.
pub(super) struct StreamingBody {
    head: VecDeque<Frame<Bytes>>,
    rest: UpstreamBody,
    counting: Option<(UsageReader, EndCallback)>,
    /// The place among the requests, free again when the body is gone.
    _place: Option<OwnedSemaphorePermit>,
}

impl StreamingBody {
    /// `head` has been read of it already; `rest` is `None` where that was all.
    pub(super) fn new(
        head: Vec<Frame<Bytes>>,
        rest: Option<Incoming>,
        idle: Duration,
        place: Option<OwnedSemaphorePermit>,
    ) -> StreamingBody {
        StreamingBody {
            head: head.into(),
            rest: UpstreamBody::new(rest, idle),
            counting: None,
            _place: place,
        }
    }

    /// Notes what it says of tokens, and tells it at the end.
    pub(super) fn with_usage(
        mut self,
        counting: UsageReader,
        at_end: EndCallback,
    ) -> StreamingBody {
        self.counting = Some((counting, at_end));
        self
    }

    fn observe(&mut self, frame: Frame<Bytes>) -> Frame<Bytes> {
        if let (Some((counting, _)), Some(data)) = (&mut self.counting, frame.data_ref()) {
            counting.push(data);
        }
        frame
    }

    fn finish(&mut self) {
        if let Some((counting, at_end)) = self.counting.take() {
            at_end(counting.usage());
        }
    }
}

impl From<StreamingBody> for axum::body::Body {
    fn from(body: StreamingBody) -> Self {
        axum::body::Body::new(body)
    }
}

impl Drop for StreamingBody {
    /// Of a body whose length is known nobody asks for more than that, not even for its end.
    fn drop(&mut self) {
        let is_whole = self.is_end_stream();
        // Who is told may have work to do, which a program that has ended does no more.
        if is_whole && tokio::runtime::Handle::try_current().is_ok() {
            self.finish();
        }
    }
}

impl Body for StreamingBody {
    type Data = Bytes;
    type Error = UpstreamBodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, UpstreamBodyError>>> {
        if let Some(frame) = self.head.pop_front() {
            return Poll::Ready(Some(Ok(self.observe(frame))));
        }
        match ready!(self.rest.poll(context)) {
            Some(Ok(frame)) => Poll::Ready(Some(Ok(self.observe(frame)))),
            Some(Err(error)) => {
                self.counting = None;
                Poll::Ready(Some(Err(error)))
            }
            None => {
                self.finish();
                Poll::Ready(None)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.head.is_empty() && self.rest.is_over()
    }

    fn size_hint(&self) -> SizeHint {
        let held = |frame: &Frame<Bytes>| frame.data_ref().map_or(0, Bytes::len) as u64;
        add_to_hint(&self.rest.size_hint(), self.head.iter().map(held).sum())
    }
}
