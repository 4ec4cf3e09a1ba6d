//! An answer on its way to the client: every frame as it came, and what it says of tokens noted in
//! passing.

use std::collections::VecDeque;
use std::future::Future as _;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::{Instant, Sleep, sleep};

mod counting;

pub(super) use counting::Counting;

use crate::provider::message::Usage;

/// Who wants to know that an answer has come to its end, and what it cost.
pub(super) type AtEnd = Box<dyn FnOnce(Option<Usage>) + Send>;

/// The body of an answer. Frames are neither held back nor joined nor copied.
pub(super) struct Passing {
    head: VecDeque<Frame<Bytes>>,
    rest: Option<Incoming>,
    idle: Duration,
    /// When the upstream has stood still for too long. Nobody waits while the client reads slowly.
    deadline: Pin<Box<Sleep>>,
    is_waiting: bool,
    counting: Option<(Counting, AtEnd)>,
    /// The place among the requests, free again when the body is gone.
    _place: Option<OwnedSemaphorePermit>,
}

/// The upstream broke off in the middle of an answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum Broken {
    /// The connection did.
    #[error(transparent)]
    Connection(#[from] hyper::Error),
    /// It said nothing for too long.
    #[error("the upstream stood still for {0} ms")]
    Silent(u128),
}

impl Passing {
    /// `head` has been read of it already; `rest` is `None` where that was all.
    pub(super) fn new(
        head: Vec<Frame<Bytes>>,
        rest: Option<Incoming>,
        idle: Duration,
        place: Option<OwnedSemaphorePermit>,
    ) -> Passing {
        Passing {
            head: head.into(),
            rest,
            idle,
            deadline: Box::pin(sleep(idle)),
            is_waiting: false,
            counting: None,
            _place: place,
        }
    }

    /// Notes what it says of tokens, and tells it at the end.
    pub(super) fn counting(mut self, counting: Counting, at_end: AtEnd) -> Passing {
        self.counting = Some((counting, at_end));
        self
    }

    fn pass(&mut self, frame: Frame<Bytes>) -> Frame<Bytes> {
        if let (Some((counting, _)), Some(data)) = (&mut self.counting, frame.data_ref()) {
            counting.see(data);
        }
        frame
    }

    fn end(&mut self) {
        if let Some((counting, at_end)) = self.counting.take() {
            at_end(counting.counted());
        }
    }

    fn poll_rest(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        let Some(rest) = &mut self.rest else { return Poll::Ready(None) };
        if let Poll::Ready(frame) = Pin::new(rest).poll_frame(context) {
            self.is_waiting = false;
            return Poll::Ready(frame.map(|frame| frame.map_err(Broken::from)));
        }
        if !self.is_waiting {
            self.is_waiting = true;
            self.deadline.as_mut().reset(Instant::now() + self.idle);
        }
        ready!(self.deadline.as_mut().poll(context));
        (self.rest, self.counting) = (None, None);
        Poll::Ready(Some(Err(Broken::Silent(self.idle.as_millis()))))
    }
}

impl Drop for Passing {
    /// Of a body whose length is known nobody asks for more than that, not even for its end.
    fn drop(&mut self) {
        let is_whole = self.is_end_stream();
        // Who is told may have work to do, which a program that has ended does no more.
        if is_whole && tokio::runtime::Handle::try_current().is_ok() {
            self.end();
        }
    }
}

impl Body for Passing {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        if let Some(frame) = self.head.pop_front() {
            return Poll::Ready(Some(Ok(self.pass(frame))));
        }
        match ready!(self.poll_rest(context)) {
            Some(Ok(frame)) => Poll::Ready(Some(Ok(self.pass(frame)))),
            Some(Err(error)) => {
                self.counting = None;
                Poll::Ready(Some(Err(error)))
            }
            None => {
                self.end();
                Poll::Ready(None)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.head.is_empty() && self.rest.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        let held = |frame: &Frame<Bytes>| frame.data_ref().map_or(0, Bytes::len) as u64;
        let head: u64 = self.head.iter().map(held).sum();
        let rest =
            self.rest.as_ref().map(Body::size_hint).unwrap_or_else(|| SizeHint::with_exact(0));
        let mut hint = SizeHint::new();
        hint.set_lower(head.saturating_add(rest.lower()));
        if let Some(upper) = rest.upper() {
            hint.set_upper(head.saturating_add(upper));
        }
        hint
    }
}
