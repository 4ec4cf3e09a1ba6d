//! Streams a response to the client unchanged, and reads what it reports of itself on the way.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::sync::OwnedSemaphorePermit;

mod report;
mod upstream_body;

use upstream_body::{UpstreamBody, UpstreamBodyError, add_to_hint};

pub(super) use report::ReportReader;

use ctxhost_dialects::usage::AnswerReport;

/// Called when a response is complete.
pub(super) type EndCallback = Box<dyn FnOnce(AnswerReport) + Send>;

/// The body of a forwarded response. No frame is changed or delayed.
pub(super) struct StreamingBody {
    head: VecDeque<Frame<Bytes>>,
    rest: UpstreamBody,
    reader: Option<(ReportReader, EndCallback)>,
    /// Releases the request's permit when the body is dropped.
    _place: Option<OwnedSemaphorePermit>,
}

impl StreamingBody {
    /// `head` are the frames that were read already; `rest` is `None` if there are no more.
    pub(super) fn new(
        head: Vec<Frame<Bytes>>,
        rest: Option<Incoming>,
        idle: Duration,
        place: Option<OwnedSemaphorePermit>,
    ) -> StreamingBody {
        StreamingBody {
            head: head.into(),
            rest: UpstreamBody::new(rest, idle),
            reader: None,
            _place: place,
        }
    }

    /// Reads the report, and passes it to `at_end` when the response is complete.
    pub(super) fn with_report(
        mut self,
        reader: ReportReader,
        at_end: EndCallback,
    ) -> StreamingBody {
        self.reader = Some((reader, at_end));
        self
    }

    fn observe(&mut self, frame: Frame<Bytes>) -> Frame<Bytes> {
        if let (Some((reader, _)), Some(data)) = (&mut self.reader, frame.data_ref()) {
            reader.push(data);
        }
        frame
    }

    fn finish(&mut self) {
        if let Some((reader, at_end)) = self.reader.take() {
            at_end(reader.report());
        }
    }
}

impl From<StreamingBody> for axum::body::Body {
    fn from(body: StreamingBody) -> Self {
        axum::body::Body::new(body)
    }
}

impl Drop for StreamingBody {
    /// hyper does not poll a body with a known length after its last byte, so the end is detected here.
    fn drop(&mut self) {
        let is_whole = self.is_end_stream();
        // The callback spawns tasks, which needs a running runtime.
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
            // An incomplete response has no usable report.
            Some(Err(error)) => {
                self.reader = None;
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
