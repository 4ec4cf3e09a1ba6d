//! Bodies that came compressed: they are read for what they say, and go on as they came where nothing of
//! that was changed.

use std::io::Read;

use axum::body::Bytes;
use axum::http::HeaderMap;
use axum::http::header::CONTENT_ENCODING;
use ruzstd::decoding::StreamingDecoder;

use super::bodies::{Bodies, Room};
use super::limits::Unread;

/// How much of a compressed body is opened in one step, in bytes.
const STEP_BYTES: usize = 64 * 1024;

/// A body as it came, and what it says.
#[derive(Clone, Debug)]
pub(super) struct Packed {
    came: Bytes,
    plain: Bytes,
}

impl Packed {
    /// A compressed body, opened; `None` for one that is not compressed, or that nobody here can open. What
    /// it says may be `max` bytes long.
    ///
    /// # Errors
    ///
    /// [`Unread::TooLarge`], or [`Unread::NoRoom`] among all bodies.
    pub(super) async fn of(
        headers: &HeaderMap,
        came: &Bytes,
        max: u64,
        bodies: &Bodies,
    ) -> Result<Option<Packed>, Unread> {
        let Some(encoding) = headers.get(CONTENT_ENCODING) else { return Ok(None) };
        let encoding = encoding.to_str().unwrap_or_default().trim().to_ascii_lowercase();
        match encoding.as_str() {
            "" | "identity" => return Ok(None),
            // Codex compresses for whom it takes for OpenAI.
            "zstd" => {}
            _ => {
                tracing::warn!(encoding, "a compressed body goes on unread, and no engine sees it");
                return Ok(None);
            }
        }
        // Both are in memory, and no other body can leave room for more.
        let max = max.min(bodies.limit_bytes().saturating_sub(came.len() as u64));
        let (packed, mut room) = (came.clone(), bodies.room());
        let _opening = bodies.openings().acquire().await;
        let opening = move || (opened(&packed, max, &mut room), room);
        match tokio::task::spawn_blocking(opening).await {
            Ok((Ok(plain), room)) => {
                Ok(Some(Packed { came: came.clone(), plain: room.hold(plain) }))
            }
            Ok((Err(Unopened::Unread(unread)), _)) => Err(unread),
            Ok((Err(Unopened::Damaged), _)) | Err(_) => {
                tracing::warn!(encoding, "a body that cannot be opened goes on unread");
                Ok(None)
            }
        }
    }

    /// What it says.
    pub(super) fn plain(&self) -> &Bytes {
        &self.plain
    }

    /// The body as it came, where these are the very bytes that it says.
    pub(super) fn came_as(&self, body: &Bytes) -> Option<Bytes> {
        let is_same = body.as_ptr() == self.plain.as_ptr() && body.len() == self.plain.len();
        is_same.then(|| self.came.clone())
    }
}

/// Why a compressed body was not opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unopened {
    /// It is no such body.
    Damaged,
    /// It may not be read.
    Unread(Unread),
}

/// What frames of zstd say, `max` bytes at the most.
fn opened(packed: &[u8], max: u64, room: &mut Room) -> Result<Vec<u8>, Unopened> {
    let (mut rest, mut plain) = (packed, Vec::new());
    let mut step = vec![0; STEP_BYTES];
    while !rest.is_empty() {
        let mut frame = StreamingDecoder::new(&mut rest).map_err(|_| Unopened::Damaged)?;
        loop {
            let read = frame.read(&mut step).map_err(|_| Unopened::Damaged)?;
            let Some(piece) = step.get(..read).filter(|piece| !piece.is_empty()) else { break };
            if (plain.len() + piece.len()) as u64 > max {
                return Err(Unopened::Unread(Unread::TooLarge));
            }
            if !room.take(piece.len()) {
                return Err(Unopened::Unread(Unread::NoRoom));
            }
            plain.extend_from_slice(piece);
        }
    }
    Ok(plain)
}

#[cfg(test)]
mod tests {
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};

    use super::*;

    fn headers(encoding: &str) -> HeaderMap {
        HeaderMap::from_iter([(CONTENT_ENCODING, encoding.parse().unwrap())])
    }

    fn room(bytes: u64) -> Bodies {
        Bodies::new(bytes, prometheus_client::metrics::gauge::Gauge::default())
    }

    fn packed(text: &str) -> Bytes {
        compress_to_vec(text.as_bytes(), CompressionLevel::Fastest).into()
    }

    #[tokio::test]
    async fn what_is_compressed_is_opened_as_far_as_a_body_may_be_long() {
        let text = "the same words ".repeat(1_000);
        let (came, zstd) = (packed(&text), headers(" ZSTD"));
        let all = room(100_000);
        let it = Packed::of(&zstd, &came, 15_000, &all).await.unwrap().unwrap();
        assert_eq!(it.plain(), text.as_bytes());
        assert_eq!(it.came_as(it.plain()), Some(came.clone()));
        assert_eq!(it.came_as(&Bytes::from(text.clone())), None);
        assert_eq!(Packed::of(&zstd, &came, 14_999, &all).await.unwrap_err(), Unread::TooLarge);
        // Frames may follow each other.
        let two = Bytes::from([&came[..], &came[..]].concat());
        let it = Packed::of(&zstd, &two, 30_000, &all).await.unwrap().unwrap();
        assert_eq!(it.plain().len(), 30_000);
        assert_eq!(Packed::of(&zstd, &two, 29_999, &all).await.unwrap_err(), Unread::TooLarge);
        assert_eq!(all.held_bytes(), 15_000 + 30_000);
        let no_room = Packed::of(&zstd, &two, 100_000, &all);
        drop(it);
        assert!(no_room.await.unwrap().is_some());
        let mut others = all.room();
        assert!(others.take(80_000));
        assert_eq!(Packed::of(&zstd, &two, 100_000, &all).await.unwrap_err(), Unread::NoRoom);
        assert_eq!(all.held_bytes(), 15_000 + 80_000);
        let never = Packed::of(&zstd, &two, 100_000, &room(20_000)).await;
        assert_eq!(never.unwrap_err(), Unread::TooLarge);
    }

    #[tokio::test]
    async fn what_nobody_can_open_stays_closed() {
        let came = packed("words");
        let cut = came.slice(..came.len() - 1);
        for (encoding, body) in
            [("identity", &came), ("br", &came), ("zstd", &cut), ("zstd", &Bytes::from("words"))]
        {
            assert!(
                Packed::of(&headers(encoding), body, 100, &room(1_000)).await.unwrap().is_none()
            );
        }
        assert!(Packed::of(&HeaderMap::new(), &came, 100, &room(1_000)).await.unwrap().is_none());
    }
}
