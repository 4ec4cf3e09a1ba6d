//! Size limits and timeouts for bodies.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use http_body_util::BodyExt as _;
use hyper::body::{Body as AnyBody, Frame};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout, timeout_at};

use super::body_budget::{BodyBudget, BodyReservation};

/// The buffer allocated at once for a body with a declared length, in bytes.
const FIRST_BUFFER_BYTES: usize = 1024 * 1024;

/// Why a client's body was not read completely.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyReadError {
    /// It exceeds the size limit.
    TooLarge,
    /// The budget for all bodies is exhausted.
    NoBudget,
    /// It is too slow.
    TimedOut,
    /// The client disconnected or violated HTTP.
    Disconnected,
}

/// A configured duration, capped at a year so that it can be added to an `Instant`.
pub(super) fn bounded_duration(ms: u64) -> Duration {
    const YEAR: Duration = Duration::from_secs(365 * 24 * 3_600);
    Duration::from_millis(ms).min(YEAR)
}

/// A semaphore of this size.
pub(super) fn permits(most: usize) -> Arc<Semaphore> {
    Arc::new(Semaphore::new(most.min(Semaphore::MAX_PERMITS)))
}

/// The timeouts for a body.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadTimeouts {
    /// The longest pause between two chunks.
    pub(super) idle: Duration,
    /// The minimum average rate after the first `idle`, in bytes per second. Without it a client could hold a permit
    /// forever, byte by byte.
    pub(super) min_bytes_per_s: u64,
}

/// Reads a complete body, without copying if it arrives in one chunk. It holds its reservation until the last clone
/// is dropped.
pub(super) async fn read_body(
    body: Body,
    max: u64,
    timeouts: ReadTimeouts,
    budget: &BodyBudget,
) -> Result<Bytes, BodyReadError> {
    let mut reservation = budget.reservation();
    let mut reader = BodyReader::new(body, timeouts);
    let bytes = read_within(&mut reader, max, &mut reservation).await?;
    Ok(reservation.attach(bytes))
}

/// A client's body, and how fast it arrives.
struct BodyReader {
    body: Body,
    timeouts: ReadTimeouts,
    started: Instant,
    received_bytes: u64,
}

async fn read_within(
    reader: &mut BodyReader,
    max: u64,
    reservation: &mut BodyReservation,
) -> Result<Bytes, BodyReadError> {
    let max = usize::try_from(max).unwrap_or(usize::MAX);
    let hint = usize::try_from(reader.body.size_hint().lower()).unwrap_or(usize::MAX);
    // A declared length is rejected before anything is read.
    if hint > max {
        return Err(BodyReadError::TooLarge);
    }
    let Some(first) = reader.next_data().await? else { return Ok(Bytes::new()) };
    if first.len() > max {
        return Err(BodyReadError::TooLarge);
    }
    reserve(reservation, &first)?;
    let mut rest = match reader.next_data().await? {
        // One chunk is returned as it is, without a copy.
        None => return Ok(first),
        Some(second) => Some(second),
    };
    // A declared length is not trusted for the allocation.
    let mut bytes = Vec::with_capacity(hint.min(FIRST_BUFFER_BYTES).max(first.len()));
    bytes.extend_from_slice(&first);
    while let Some(piece) = rest {
        if bytes.len() + piece.len() > max {
            return Err(BodyReadError::TooLarge);
        }
        reserve(reservation, &piece)?;
        bytes.extend_from_slice(&piece);
        rest = reader.next_data().await?;
    }
    Ok(bytes.into())
}

fn reserve(reservation: &mut BodyReservation, piece: &[u8]) -> Result<(), BodyReadError> {
    if reservation.try_reserve(piece.len()) { Ok(()) } else { Err(BodyReadError::NoBudget) }
}

impl BodyReader {
    fn new(body: Body, timeouts: ReadTimeouts) -> BodyReader {
        BodyReader { body, timeouts, started: Instant::now(), received_bytes: 0 }
    }

    async fn next_data(&mut self) -> Result<Option<Bytes>, BodyReadError> {
        loop {
            let deadline = self.deadline();
            return match timeout_at(deadline, self.body.frame()).await {
                Err(_) => Err(BodyReadError::TimedOut),
                Ok(Some(Err(_))) => Err(BodyReadError::Disconnected),
                Ok(None) => Ok(None),
                Ok(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => {
                        self.received_bytes = self.received_bytes.saturating_add(data.len() as u64);
                        Ok(Some(data))
                    }
                    // Request trailers are not forwarded.
                    Err(_) => continue,
                },
            };
        }
    }

    /// When the next chunk must have arrived. Only received bytes count: a declared length is the client's claim.
    fn deadline(&self) -> Instant {
        let ReadTimeouts { idle, min_bytes_per_s } = self.timeouts;
        let ms = self.received_bytes.saturating_mul(1_000) / min_bytes_per_s.max(1);
        // The rate applies after one idle timeout, so that small bodies on slow lines pass.
        let by_rate = self.started + idle + bounded_duration(ms);
        by_rate.min(Instant::now() + idle)
    }
}

/// The next frame of an upstream's response; `None` at its end.
pub(super) async fn next_frame<B>(
    body: &mut B,
    idle: Duration,
) -> Result<Option<Frame<Bytes>>, String>
where
    B: AnyBody<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    match timeout(idle, body.frame()).await {
        Err(_) => Err(format!("no data for {} ms (idle_timeout_ms)", idle.as_millis())),
        Ok(None) => Ok(None),
        Ok(Some(Ok(frame))) => Ok(Some(frame)),
        Ok(Some(Err(error))) => Err(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use futures_util::{StreamExt as _, stream};
    use prometheus_client::metrics::gauge::Gauge;

    use super::*;

    const IDLE: Duration = Duration::from_secs(60);
    const TIMEOUTS: ReadTimeouts = ReadTimeouts { idle: IDLE, min_bytes_per_s: 100 };

    fn room(bytes: u64) -> BodyBudget {
        BodyBudget::new(bytes, Gauge::default())
    }

    fn pieces(pieces: &'static [&'static str]) -> Body {
        Body::from_stream(stream::iter(pieces.iter().map(|piece| Ok::<_, std::io::Error>(*piece))))
    }

    #[tokio::test]
    async fn a_body_is_whole_or_too_large() {
        let budget = room(100);
        let read = |body, max| read_body(body, max, TIMEOUTS, &budget);
        assert_eq!(read(Body::empty(), 0).await, Ok(Bytes::new()));
        assert_eq!(read(Body::from("abc"), 3).await, Ok("abc".into()));
        assert_eq!(read(Body::from("abc"), 2).await, Err(BodyReadError::TooLarge));
        assert_eq!(read(pieces(&["a", "bc", "d"]), 4).await, Ok("abcd".into()));
        assert_eq!(read(pieces(&["a", "bc", "d"]), 3).await, Err(BodyReadError::TooLarge));
        assert_eq!(read(pieces(&["abcd"]), 3).await, Err(BodyReadError::TooLarge));
    }

    #[tokio::test]
    async fn all_bodies_together_fit_the_budget() {
        let budget = room(6);
        let read = |body| read_body(body, 6, TIMEOUTS, &budget);
        let held = read(pieces(&["a", "bc", "d"])).await.unwrap();
        assert_eq!(read(pieces(&["a", "bc"])).await, Err(BodyReadError::NoBudget));
        assert_eq!(budget.held_bytes(), 4, "what was read of it is given back");
        assert_eq!(read(Body::from("ef")).await, Ok("ef".into()));
        drop(held);
        assert_eq!(read(pieces(&["abc", "def"])).await.unwrap().len(), 6);
        assert_eq!(budget.held_bytes(), 0);
    }

    #[tokio::test]
    async fn one_piece_is_not_copied() {
        let sent = Bytes::from_static(b"the very bytes");
        let read = read_body(Body::from(sent.clone()), 100, TIMEOUTS, &room(100)).await.unwrap();
        assert_eq!(read.as_ptr(), sent.as_ptr());
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_pauses_times_out() {
        let never = Body::from_stream(stream::pending::<Result<Bytes, std::io::Error>>());
        assert_eq!(read_body(never, 10, TIMEOUTS, &room(10)).await, Err(BodyReadError::TimedOut));
    }

    #[tokio::test(start_paused = true)]
    async fn a_slow_trickle_times_out() {
        let trickle = stream::unfold((), |()| async {
            tokio::time::sleep(IDLE / 2).await;
            Some((Ok::<_, std::io::Error>("x"), ()))
        });
        let budget = room(1_000);
        let body = read_body(Body::from_stream(trickle), 1_000, TIMEOUTS, &budget);
        assert_eq!(body.await, Err(BodyReadError::TimedOut));
    }

    /// How long a client holds its permit with a chunk of `bytes` every `pause`, of a body that may be large.
    async fn held_for(bytes: usize, pause: Duration) -> (Result<usize, BodyReadError>, Duration) {
        const BODY_BYTES: usize = 100_000;
        let chunks = stream::unfold(0, move |sent| async move {
            tokio::time::sleep(pause).await;
            let chunk = vec![b'x'; bytes];
            (sent < BODY_BYTES).then(|| (Ok::<_, std::io::Error>(chunk), sent + bytes))
        });
        let (budget, started) = (room(1 << 40), Instant::now());
        let read = read_body(Body::from_stream(chunks), 1 << 40, TIMEOUTS, &budget).await;
        (read.map(|bytes| bytes.len()), started.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn the_rate_counts_received_bytes_and_not_allowed_ones() {
        let (read, held) = held_for(10, Duration::from_secs(1)).await;
        assert_eq!(read, Err(BodyReadError::TimedOut));
        // The first minute is free, and its bytes allow some seconds more.
        assert!(held < IDLE + IDLE / 4, "{held:?}");
        let (read, held) = held_for(100, Duration::from_secs(1)).await;
        assert_eq!(read, Ok(100_000));
        assert!(held > IDLE * 10, "{held:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_small_body_on_a_slow_line_passes() {
        let chunks = stream::iter(["a", "b"]).then(|chunk| async move {
            tokio::time::sleep(IDLE / 3).await;
            Ok::<_, std::io::Error>(chunk)
        });
        let body = Body::from_stream(chunks);
        assert_eq!(read_body(body, 10, TIMEOUTS, &room(10)).await, Ok("ab".into()));
    }

    #[tokio::test]
    async fn a_disconnect_is_an_error() {
        let parts = [Ok("a"), Err(std::io::Error::other("gone"))];
        let body = Body::from_stream(stream::iter(parts));
        assert_eq!(
            read_body(body, 10, TIMEOUTS, &room(10)).await,
            Err(BodyReadError::Disconnected)
        );
    }
}
