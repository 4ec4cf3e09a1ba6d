//! Size limits and timeouts for bodies.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use http_body_util::BodyExt as _;
use hyper::body::{Body as AnyBody, Frame};
use tokio::sync::Semaphore;
use tokio::time::timeout;

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
    /// The minimum average rate, in bytes per second. Without it a client could hold a permit forever, byte by
    /// byte.
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
    let ReadTimeouts { idle, min_bytes_per_s } = timeouts;
    let bytes = body.size_hint().upper().unwrap_or(max).min(max);
    let seconds = bytes / min_bytes_per_s.max(1);
    // The minimum rate applies after one idle timeout, so that small bodies on slow lines pass.
    let total = idle.saturating_add(Duration::from_secs(seconds));
    let mut reservation = budget.reservation();
    let read = timeout(total, read_within(body, max, idle, &mut reservation)).await;
    Ok(reservation.attach(read.unwrap_or(Err(BodyReadError::TimedOut))?))
}

async fn read_within(
    mut body: Body,
    max: u64,
    idle: Duration,
    reservation: &mut BodyReservation,
) -> Result<Bytes, BodyReadError> {
    let max = usize::try_from(max).unwrap_or(usize::MAX);
    let hint = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    // A declared length is rejected before anything is read.
    if hint > max {
        return Err(BodyReadError::TooLarge);
    }
    let Some(first) = next_data(&mut body, idle).await? else { return Ok(Bytes::new()) };
    if first.len() > max {
        return Err(BodyReadError::TooLarge);
    }
    reserve(reservation, &first)?;
    let mut rest = match next_data(&mut body, idle).await? {
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
        rest = next_data(&mut body, idle).await?;
    }
    Ok(bytes.into())
}

fn reserve(reservation: &mut BodyReservation, piece: &[u8]) -> Result<(), BodyReadError> {
    if reservation.try_reserve(piece.len()) { Ok(()) } else { Err(BodyReadError::NoBudget) }
}

async fn next_data(body: &mut Body, idle: Duration) -> Result<Option<Bytes>, BodyReadError> {
    loop {
        return match timeout(idle, body.frame()).await {
            Err(_) => Err(BodyReadError::TimedOut),
            Ok(Some(Err(_))) => Err(BodyReadError::Disconnected),
            Ok(None) => Ok(None),
            Ok(Some(Ok(frame))) => match frame.into_data() {
                Ok(data) => Ok(Some(data)),
                // Request trailers are not forwarded.
                Err(_) => continue,
            },
        };
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
    use futures_util::stream;
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
