//! Reads an upstream's body: frames that are available at once are joined, and nothing else is waited for.

use std::future::Future as _;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::time::{Instant, Sleep, sleep};

/// The size up to which frames are joined. Model deltas are some hundred bytes, and one write costs as much as
/// many.
const JOINED_BYTES: usize = 8 * 1024;

/// The upstream's body broke off.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UpstreamBodyError {
    /// The connection failed.
    #[error(transparent)]
    Connection(#[from] hyper::Error),
    /// Nothing arrived for too long.
    #[error("the upstream sent nothing for {0} ms (idle_timeout_ms)")]
    IdleTimeout(u128),
}

type FrameResult = Result<Frame<Bytes>, UpstreamBodyError>;

/// The body of an upstream.
pub(super) struct UpstreamBody<B = Incoming> {
    /// `None` at the end.
    body: Option<B>,
    held: Vec<Bytes>,
    held_bytes: usize,
    /// Trailers or an error after the held bytes.
    trailing: Option<FrameResult>,
    timer: IdleTimer,
}

impl<B: Body<Data = Bytes> + Unpin> UpstreamBody<B>
where
    UpstreamBodyError: From<B::Error>,
{
    /// A body with an idle timeout; `None` is an empty body.
    pub(super) fn new(body: Option<B>, idle: Duration) -> UpstreamBody<B> {
        UpstreamBody {
            body,
            held: Vec::new(),
            held_bytes: 0,
            trailing: None,
            timer: IdleTimer::new(idle),
        }
    }

    /// The bytes that are available, or the next frame.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<Option<FrameResult>> {
        while let Some(body) = self.body_to_poll() {
            match Pin::new(body).poll_frame(context) {
                Poll::Ready(frame) => self.push_frame(frame),
                Poll::Pending if self.held.is_empty() => {
                    ready!(self.timer.poll(context));
                    self.body = None;
                    let silent = UpstreamBodyError::IdleTimeout(self.timer.idle.as_millis());
                    return Poll::Ready(Some(Err(silent)));
                }
                Poll::Pending => break,
            }
        }
        Poll::Ready(self.join_held().map(Frame::data).map(Ok).or_else(|| self.trailing.take()))
    }

    /// The body, if another frame may be joined.
    fn body_to_poll(&mut self) -> Option<&mut B> {
        let (is_empty, is_full) = (self.held.is_empty(), self.held_bytes >= JOINED_BYTES);
        self.body.as_mut().filter(|body| is_empty || !is_full && !body.is_end_stream())
    }

    fn push_frame(&mut self, frame: Option<Result<Frame<Bytes>, B::Error>>) {
        self.timer.stop();
        // Trailers and errors wait until the held bytes were forwarded.
        self.trailing = match frame.map(|frame| frame.map(Frame::into_data)) {
            Some(Ok(Ok(data))) => return self.hold(data),
            Some(Ok(Err(trailers))) => Some(Ok(trailers)),
            Some(Err(error)) => Some(Err(error.into())),
            None => None,
        };
        self.body = None;
    }

    fn hold(&mut self, data: Bytes) {
        self.held_bytes += data.len();
        self.held.push(data);
    }

    fn join_held(&mut self) -> Option<Bytes> {
        self.held_bytes = 0;
        match self.held.len() {
            0 | 1 => self.held.pop(),
            _ => Some(std::mem::take(&mut self.held).concat().into()),
        }
    }

    /// Whether the body has ended.
    pub(super) fn is_over(&self) -> bool {
        self.held.is_empty()
            && self.trailing.is_none()
            && self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    /// The remaining size.
    pub(super) fn size_hint(&self) -> SizeHint {
        let rest = self.body.as_ref().map_or(SizeHint::with_exact(0), Body::size_hint);
        add_to_hint(&rest, self.held_bytes as u64)
    }
}

/// A size hint plus some bytes.
pub(super) fn add_to_hint(hint: &SizeHint, bytes: u64) -> SizeHint {
    let mut longer = SizeHint::new();
    longer.set_lower(bytes.saturating_add(hint.lower()));
    if let Some(upper) = hint.upper() {
        longer.set_upper(bytes.saturating_add(upper));
    }
    longer
}

/// The idle timeout. It does not run while the client reads slowly.
struct IdleTimer {
    idle: Duration,
    /// When it expires; `None` while nothing is awaited.
    until: Option<Instant>,
    /// Fires at `until` or earlier: resetting a tokio timer for every frame is measurably slower.
    sleep_until: Pin<Box<Sleep>>,
}

impl IdleTimer {
    fn new(idle: Duration) -> IdleTimer {
        IdleTimer { idle, until: None, sleep_until: Box::pin(sleep(idle)) }
    }

    fn stop(&mut self) {
        self.until = None;
    }

    /// Ready when the timeout has expired.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let until = *self.until.get_or_insert_with(|| Instant::now() + self.idle);
        loop {
            ready!(self.sleep_until.as_mut().poll(context));
            if self.sleep_until.deadline() >= until {
                return Poll::Ready(());
            }
            self.sleep_until.as_mut().reset(until);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::future::poll_fn;

    use super::*;

    const IDLE: Duration = Duration::from_secs(60);

    /// A step of a scripted body.
    #[derive(Clone, Debug)]
    enum Step {
        Frame(usize),
        /// Pending once.
        Turn,
        /// Pending for this long.
        Rest(Duration),
        Trailers,
        Break,
    }
    use Step::{Break, Frame as Data, Rest, Trailers, Turn};

    struct Script {
        steps: VecDeque<Step>,
        resting: Option<Pin<Box<Sleep>>>,
    }

    impl Body for Script {
        type Data = Bytes;
        type Error = UpstreamBodyError;

        fn poll_frame(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, UpstreamBodyError>>> {
            if let Some(resting) = &mut self.resting {
                ready!(resting.as_mut().poll(context));
                self.resting = None;
            }
            match self.steps.pop_front() {
                None => Poll::Ready(None),
                Some(Data(bytes)) => Poll::Ready(Some(Ok(Frame::data(vec![b'x'; bytes].into())))),
                Some(Trailers) => Poll::Ready(Some(Ok(Frame::trailers(Default::default())))),
                Some(Break) => Poll::Ready(Some(Err(UpstreamBodyError::IdleTimeout(1)))),
                Some(Turn) => {
                    context.waker().wake_by_ref();
                    Poll::Pending
                }
                Some(Rest(time)) => {
                    self.resting = Some(Box::pin(sleep(time)));
                    self.poll_frame(context)
                }
            }
        }
    }

    /// The times and sizes of forwarded pieces: `0` for trailers, `None` for an error.
    async fn forwarded_pieces(steps: impl IntoIterator<Item = Step>) -> Vec<(u64, Option<usize>)> {
        let script = Script { steps: steps.into_iter().collect(), resting: None };
        let (mut arriving, began) = (UpstreamBody::new(Some(script), IDLE), Instant::now());
        let mut pieces = Vec::new();
        while let Some(received) = poll_fn(|context| arriving.poll(context)).await {
            let bytes = received.ok().map(|frame| frame.data_ref().map_or(0, Bytes::len));
            pieces.push((began.elapsed().as_secs(), bytes));
        }
        assert!(arriving.is_over());
        pieces
    }

    #[tokio::test(start_paused = true)]
    async fn available_frames_are_joined() {
        let steps = [Data(1), Data(2), Data(3), Rest(Duration::from_secs(1)), Data(4)];
        assert_eq!(forwarded_pieces(steps).await, [(0, Some(6)), (1, Some(4))]);
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_waits_for_later_frames() {
        assert_eq!(forwarded_pieces([Data(1), Turn, Data(2)]).await, [(0, Some(1)), (0, Some(2))]);
    }

    #[tokio::test(start_paused = true)]
    async fn bytes_before_an_error_are_forwarded() {
        let steps = [Data(1), Data(1), Break];
        assert_eq!(forwarded_pieces(steps).await, [(0, Some(2)), (0, None)]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_joined_piece_has_a_size_limit() {
        let steps = vec![Data(1_000); 20];
        assert_eq!(
            forwarded_pieces(steps).await,
            [(0, Some(9_000)), (0, Some(9_000)), (0, Some(2_000))]
        );
        assert_eq!(
            forwarded_pieces([Data(100_000), Data(1)]).await,
            [(0, Some(100_000)), (0, Some(1))]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn trailers_follow_the_bytes() {
        assert_eq!(
            forwarded_pieces([Data(1), Data(1), Trailers]).await,
            [(0, Some(2)), (0, Some(0))]
        );
        assert_eq!(forwarded_pieces([]).await, []);
    }

    #[tokio::test(start_paused = true)]
    async fn the_idle_timeout_restarts_with_each_frame() {
        let slow = [Data(1), Rest(IDLE * 3 / 4), Data(1), Rest(IDLE * 3 / 4), Data(1)];
        assert_eq!(forwarded_pieces(slow).await, [(0, Some(1)), (45, Some(1)), (90, Some(1))]);
        let silent = [Rest(IDLE / 2), Data(1), Rest(IDLE * 2), Data(1)];
        assert_eq!(forwarded_pieces(silent).await, [(30, Some(1)), (90, None)]);
    }

    #[tokio::test(start_paused = true)]
    async fn the_idle_timeout_does_not_run_while_the_client_reads() {
        let steps = [Data(1), Rest(IDLE / 2), Data(1)].into();
        let mut arriving = UpstreamBody::new(Some(Script { steps, resting: None }), IDLE);
        let mut next = async || poll_fn(|context| arriving.poll(context)).await.unwrap().is_ok();
        assert!(next().await);
        sleep(IDLE * 3).await;
        assert!(next().await);
    }
}
