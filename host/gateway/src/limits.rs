//! How much of a body is read, and how long anybody waits for it.

use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use http_body_util::BodyExt as _;
use hyper::body::{Body as AnyBody, Frame};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::body_budget::{BodyBudget, BodyReservation};

/// Room that is made at once for a body that says how long it is, in bytes.
const FIRST_ROOM_BYTES: usize = 1024 * 1024;

/// Why a client's body was not read to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyReadError {
    /// It is larger than it may be.
    TooLarge,
    /// The bodies of all requests together take too much.
    NoBudget,
    /// The client paused for too long.
    TimedOut,
    /// The client went away, or spoke no HTTP.
    Disconnected,
}

/// A time of the config. One without an end is as good as a year, and can be added to now.
pub(super) fn bounded_duration(ms: u64) -> Duration {
    const YEAR: Duration = Duration::from_secs(365 * 24 * 3_600);
    Duration::from_millis(ms).min(YEAR)
}

/// Places for so many.
pub(super) fn permits(most: usize) -> Arc<Semaphore> {
    Arc::new(Semaphore::new(most.min(Semaphore::MAX_PERMITS)))
}

/// How long a body is waited for.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadTimeouts {
    /// Between two pieces of it.
    pub(super) idle: Duration,
    /// What it has to bring on the whole, in bytes a second: drop by drop it would hold a place for ever.
    pub(super) min_bytes_per_s: u64,
}

/// A whole body, without a copy where it came in one piece. It takes room among all bodies until the last clone of it is
/// gone.
pub(super) async fn read_body(
    body: Body,
    max: u64,
    patience: ReadTimeouts,
    bodies: &BodyBudget,
) -> Result<Bytes, BodyReadError> {
    let ReadTimeouts { idle: pause, min_bytes_per_s } = patience;
    let bytes = body.size_hint().upper().unwrap_or(max).min(max);
    let seconds = bytes / min_bytes_per_s.max(1);
    let all = pause.saturating_add(Duration::from_secs(seconds));
    let mut room = bodies.reservation();
    let read = timeout(all, read_within(body, max, pause, &mut room)).await;
    Ok(room.attach(read.unwrap_or(Err(BodyReadError::TimedOut))?))
}

async fn read_within(
    mut body: Body,
    max: u64,
    pause: Duration,
    room: &mut BodyReservation,
) -> Result<Bytes, BodyReadError> {
    let max = usize::try_from(max).unwrap_or(usize::MAX);
    let hint = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    if hint > max {
        return Err(BodyReadError::TooLarge);
    }
    let Some(first) = next_data(&mut body, pause).await? else { return Ok(Bytes::new()) };
    if first.len() > max {
        return Err(BodyReadError::TooLarge);
    }
    reserve(room, &first)?;
    let mut rest = match next_data(&mut body, pause).await? {
        None => return Ok(first),
        Some(second) => Some(second),
    };
    let mut bytes = Vec::with_capacity(hint.min(FIRST_ROOM_BYTES).max(first.len()));
    bytes.extend_from_slice(&first);
    while let Some(piece) = rest {
        if bytes.len() + piece.len() > max {
            return Err(BodyReadError::TooLarge);
        }
        reserve(room, &piece)?;
        bytes.extend_from_slice(&piece);
        rest = next_data(&mut body, pause).await?;
    }
    Ok(bytes.into())
}

fn reserve(room: &mut BodyReservation, piece: &[u8]) -> Result<(), BodyReadError> {
    if room.try_reserve(piece.len()) { Ok(()) } else { Err(BodyReadError::NoBudget) }
}

async fn next_data(body: &mut Body, pause: Duration) -> Result<Option<Bytes>, BodyReadError> {
    loop {
        return match timeout(pause, body.frame()).await {
            Err(_) => Err(BodyReadError::TimedOut),
            Ok(Some(Err(_))) => Err(BodyReadError::Disconnected),
            Ok(None) => Ok(None),
            Ok(Some(Ok(frame))) => match frame.into_data() {
                Ok(data) => Ok(Some(data)),
                // Trailers of a request say nothing that an engine needs.
                Err(_) => continue,
            },
        };
    }
}

/// The next frame of an upstream's answer; `None` at its end.
pub(super) async fn next_frame<B>(
    body: &mut B,
    pause: Duration,
) -> Result<Option<Frame<Bytes>>, String>
where
    B: AnyBody<Data = Bytes> + Unpin,
    B::Error: std::fmt::Display,
{
    match timeout(pause, body.frame()).await {
        Err(_) => Err(format!("it stood still for {} ms", pause.as_millis())),
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

    const PAUSE: Duration = Duration::from_secs(60);
    const PATIENCE: ReadTimeouts = ReadTimeouts { idle: PAUSE, min_bytes_per_s: 100 };

    fn room(bytes: u64) -> BodyBudget {
        BodyBudget::new(bytes, Gauge::default())
    }

    fn pieces(pieces: &'static [&'static str]) -> Body {
        Body::from_stream(stream::iter(pieces.iter().map(|it| Ok::<_, std::io::Error>(*it))))
    }

    #[tokio::test]
    async fn a_body_is_whole_or_too_large() {
        let bodies = room(100);
        let read = |body, max| read_body(body, max, PATIENCE, &bodies);
        assert_eq!(read(Body::empty(), 0).await, Ok(Bytes::new()));
        assert_eq!(read(Body::from("abc"), 3).await, Ok("abc".into()));
        assert_eq!(read(Body::from("abc"), 2).await, Err(BodyReadError::TooLarge));
        assert_eq!(read(pieces(&["a", "bc", "d"]), 4).await, Ok("abcd".into()));
        assert_eq!(read(pieces(&["a", "bc", "d"]), 3).await, Err(BodyReadError::TooLarge));
        assert_eq!(read(pieces(&["abcd"]), 3).await, Err(BodyReadError::TooLarge));
    }

    #[tokio::test]
    async fn all_bodies_together_are_no_larger_than_there_is_room() {
        let bodies = room(6);
        let read = |body| read_body(body, 6, PATIENCE, &bodies);
        let held = read(pieces(&["a", "bc", "d"])).await.unwrap();
        assert_eq!(read(pieces(&["a", "bc"])).await, Err(BodyReadError::NoBudget));
        assert_eq!(bodies.held_bytes(), 4, "what was read of it is given back");
        assert_eq!(read(Body::from("ef")).await, Ok("ef".into()));
        drop(held);
        assert_eq!(read(pieces(&["abc", "def"])).await.unwrap().len(), 6);
        assert_eq!(bodies.held_bytes(), 0);
    }

    #[tokio::test]
    async fn one_piece_is_not_copied() {
        let sent = Bytes::from_static(b"the very bytes");
        let read = read_body(Body::from(sent.clone()), 100, PATIENCE, &room(100)).await.unwrap();
        assert_eq!(read.as_ptr(), sent.as_ptr());
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_pauses_is_not_waited_for() {
        let never = Body::from_stream(stream::pending::<Result<Bytes, std::io::Error>>());
        assert_eq!(read_body(never, 10, PATIENCE, &room(10)).await, Err(BodyReadError::TimedOut));
    }

    #[tokio::test(start_paused = true)]
    async fn drops_do_not_keep_a_place_for_ever() {
        let drops = stream::unfold((), |()| async {
            tokio::time::sleep(PAUSE / 2).await;
            Some((Ok::<_, std::io::Error>("x"), ()))
        });
        let bodies = room(1_000);
        let body = read_body(Body::from_stream(drops), 1_000, PATIENCE, &bodies);
        assert_eq!(body.await, Err(BodyReadError::TimedOut));
    }

    #[tokio::test]
    async fn a_client_that_goes_away_is_no_end_of_a_body() {
        let parts = [Ok("a"), Err(std::io::Error::other("gone"))];
        let body = Body::from_stream(stream::iter(parts));
        assert_eq!(
            read_body(body, 10, PATIENCE, &room(10)).await,
            Err(BodyReadError::Disconnected)
        );
    }
}
