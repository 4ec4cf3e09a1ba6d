//! How much of a body is read, and how long anybody waits for it.

use std::time::Duration;

use axum::body::{Body, Bytes};
use http_body_util::BodyExt as _;
use hyper::body::{Body as AnyBody, Frame};
use tokio::time::timeout;

/// Room that is made at once for a body that says how long it is, in bytes.
const FIRST_ROOM_BYTES: usize = 1024 * 1024;

/// Why a client's body was not read to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unread {
    /// It is larger than it may be.
    TooLarge,
    /// The client paused for too long.
    TooSlow,
    /// The client went away, or spoke no HTTP.
    Broken,
}

/// A whole body, without a copy where it came in one piece.
pub(super) async fn whole(mut body: Body, max: u64, pause: Duration) -> Result<Bytes, Unread> {
    let max = usize::try_from(max).unwrap_or(usize::MAX);
    let hint = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    if hint > max {
        return Err(Unread::TooLarge);
    }
    let Some(first) = next(&mut body, pause).await? else { return Ok(Bytes::new()) };
    let mut rest = match next(&mut body, pause).await? {
        None if first.len() > max => return Err(Unread::TooLarge),
        None => return Ok(first),
        Some(second) => Some(second),
    };
    let mut bytes = Vec::with_capacity(hint.min(FIRST_ROOM_BYTES).max(first.len()));
    bytes.extend_from_slice(&first);
    while let Some(piece) = rest {
        if bytes.len() + piece.len() > max {
            return Err(Unread::TooLarge);
        }
        bytes.extend_from_slice(&piece);
        rest = next(&mut body, pause).await?;
    }
    Ok(bytes.into())
}

async fn next(body: &mut Body, pause: Duration) -> Result<Option<Bytes>, Unread> {
    loop {
        return match timeout(pause, body.frame()).await {
            Err(_) => Err(Unread::TooSlow),
            Ok(Some(Err(_))) => Err(Unread::Broken),
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
pub(super) async fn frame<B>(body: &mut B, pause: Duration) -> Result<Option<Frame<Bytes>>, String>
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

    use super::*;

    const PAUSE: Duration = Duration::from_secs(60);

    fn pieces(pieces: &'static [&'static str]) -> Body {
        Body::from_stream(stream::iter(pieces.iter().map(|it| Ok::<_, std::io::Error>(*it))))
    }

    #[tokio::test]
    async fn a_body_is_whole_or_too_large() {
        let read = |body, max| whole(body, max, PAUSE);
        assert_eq!(read(Body::empty(), 0).await, Ok(Bytes::new()));
        assert_eq!(read(Body::from("abc"), 3).await, Ok("abc".into()));
        assert_eq!(read(Body::from("abc"), 2).await, Err(Unread::TooLarge));
        assert_eq!(read(pieces(&["a", "bc", "d"]), 4).await, Ok("abcd".into()));
        assert_eq!(read(pieces(&["a", "bc", "d"]), 3).await, Err(Unread::TooLarge));
        assert_eq!(read(pieces(&["abcd"]), 3).await, Err(Unread::TooLarge));
    }

    #[tokio::test]
    async fn one_piece_is_not_copied() {
        let sent = Bytes::from_static(b"the very bytes");
        let read = whole(Body::from(sent.clone()), 100, PAUSE).await.unwrap();
        assert_eq!(read.as_ptr(), sent.as_ptr());
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_pauses_is_not_waited_for() {
        let never = Body::from_stream(stream::pending::<Result<Bytes, std::io::Error>>());
        assert_eq!(whole(never, 10, PAUSE).await, Err(Unread::TooSlow));
    }

    #[tokio::test]
    async fn a_client_that_goes_away_is_no_end_of_a_body() {
        let parts = [Ok("a"), Err(std::io::Error::other("gone"))];
        let body = Body::from_stream(stream::iter(parts));
        assert_eq!(whole(body, 10, PAUSE).await, Err(Unread::Broken));
    }
}
