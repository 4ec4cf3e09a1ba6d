//! Bodies that came compressed: they are read for what they say, and go on as they came where nothing of
//! that was changed.

use std::io::Read;

use axum::body::Bytes;
use axum::http::HeaderMap;
use axum::http::header::CONTENT_ENCODING;
use ruzstd::decoding::StreamingDecoder;

use super::body_budget::{BodyBudget, BodyReservation};
use super::limits::BodyReadError;

/// How much of a compressed body is opened in one step, in bytes.
const STEP_BYTES: usize = 64 * 1024;

/// A body as it came, and what it says.
#[derive(Clone, Debug)]
pub(super) struct CompressedBody {
    received: Bytes,
    decoded: Bytes,
}

impl CompressedBody {
    /// A compressed body, opened; `None` for one that is not compressed, or that nobody here can open. What
    /// it says may be `max` bytes long.
    ///
    /// # Errors
    ///
    /// [`BodyReadError::TooLarge`], or [`BodyReadError::NoBudget`] among all bodies.
    pub(super) async fn decode(
        headers: &HeaderMap,
        came: &Bytes,
        max: u64,
        bodies: &BodyBudget,
    ) -> Result<Option<CompressedBody>, BodyReadError> {
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
        let (packed, mut room) = (came.clone(), bodies.reservation());
        let _opening = bodies.decompression_permits().acquire().await;
        let opening = move || (decompress(&packed, max, &mut room), room);
        match tokio::task::spawn_blocking(opening).await {
            Ok((Ok(plain), room)) => {
                Ok(Some(CompressedBody { received: came.clone(), decoded: room.attach(plain) }))
            }
            Ok((Err(DecompressError::Unread(unread)), _)) => Err(unread),
            Ok((Err(DecompressError::Damaged), _)) | Err(_) => {
                tracing::warn!(encoding, "a body that cannot be opened goes on unread");
                Ok(None)
            }
        }
    }

    /// What it says.
    pub(super) fn decoded(&self) -> &Bytes {
        &self.decoded
    }

    /// The body as it came, where these are the very bytes that it says.
    pub(super) fn compressed_form_of(&self, body: &Bytes) -> Option<Bytes> {
        let is_same = body.as_ptr() == self.decoded.as_ptr() && body.len() == self.decoded.len();
        is_same.then(|| self.received.clone())
    }
}

/// Why a compressed body was not opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DecompressError {
    /// It is no such body.
    Damaged,
    /// It may not be read.
    Unread(BodyReadError),
}

/// What frames of zstd say, `max` bytes at the most.
fn decompress(
    packed: &[u8],
    max: u64,
    room: &mut BodyReservation,
) -> Result<Vec<u8>, DecompressError> {
    let (mut rest, mut plain) = (packed, Vec::new());
    let mut step = vec![0; STEP_BYTES];
    while !rest.is_empty() {
        let mut frame = StreamingDecoder::new(&mut rest).map_err(|_| DecompressError::Damaged)?;
        loop {
            let read = frame.read(&mut step).map_err(|_| DecompressError::Damaged)?;
            let Some(piece) = step.get(..read).filter(|piece| !piece.is_empty()) else { break };
            if (plain.len() + piece.len()) as u64 > max {
                return Err(DecompressError::Unread(BodyReadError::TooLarge));
            }
            if !room.try_reserve(piece.len()) {
                return Err(DecompressError::Unread(BodyReadError::NoBudget));
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

    fn room(bytes: u64) -> BodyBudget {
        BodyBudget::new(bytes, prometheus_client::metrics::gauge::Gauge::default())
    }

    fn packed(text: &str) -> Bytes {
        compress_to_vec(text.as_bytes(), CompressionLevel::Fastest).into()
    }

    #[tokio::test]
    async fn what_is_compressed_is_opened_as_far_as_a_body_may_be_long() {
        let text = "the same words ".repeat(1_000);
        let (came, zstd) = (packed(&text), headers(" ZSTD"));
        let all = room(100_000);
        let it = CompressedBody::decode(&zstd, &came, 15_000, &all).await.unwrap().unwrap();
        assert_eq!(it.decoded(), text.as_bytes());
        assert_eq!(it.compressed_form_of(it.decoded()), Some(came.clone()));
        assert_eq!(it.compressed_form_of(&Bytes::from(text.clone())), None);
        assert_eq!(
            CompressedBody::decode(&zstd, &came, 14_999, &all).await.unwrap_err(),
            BodyReadError::TooLarge
        );
        // Frames may follow each other.
        let two = Bytes::from([&came[..], &came[..]].concat());
        let it = CompressedBody::decode(&zstd, &two, 30_000, &all).await.unwrap().unwrap();
        assert_eq!(it.decoded().len(), 30_000);
        assert_eq!(
            CompressedBody::decode(&zstd, &two, 29_999, &all).await.unwrap_err(),
            BodyReadError::TooLarge
        );
        assert_eq!(all.held_bytes(), 15_000 + 30_000);
        let no_room = CompressedBody::decode(&zstd, &two, 100_000, &all);
        drop(it);
        assert!(no_room.await.unwrap().is_some());
        let mut others = all.reservation();
        assert!(others.try_reserve(80_000));
        assert_eq!(
            CompressedBody::decode(&zstd, &two, 100_000, &all).await.unwrap_err(),
            BodyReadError::NoBudget
        );
        assert_eq!(all.held_bytes(), 15_000 + 80_000);
        let never = CompressedBody::decode(&zstd, &two, 100_000, &room(20_000)).await;
        assert_eq!(never.unwrap_err(), BodyReadError::TooLarge);
    }

    #[tokio::test]
    async fn what_nobody_can_open_stays_closed() {
        let came = packed("words");
        let cut = came.slice(..came.len() - 1);
        for (encoding, body) in
            [("identity", &came), ("br", &came), ("zstd", &cut), ("zstd", &Bytes::from("words"))]
        {
            assert!(
                CompressedBody::decode(&headers(encoding), body, 100, &room(1_000))
                    .await
                    .unwrap()
                    .is_none()
            );
        }
        assert!(
            CompressedBody::decode(&HeaderMap::new(), &came, 100, &room(1_000))
                .await
                .unwrap()
                .is_none()
        );
    }
}
