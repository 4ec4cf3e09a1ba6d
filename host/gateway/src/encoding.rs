//! Bodies that came compressed: they are read for what they say, and go on as they came where nothing of
//! that was changed.

use std::io::Read;

use axum::body::Bytes;
use axum::http::HeaderMap;
use axum::http::header::CONTENT_ENCODING;
use ruzstd::decoding::StreamingDecoder;

use super::limits::Unread;

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
    /// [`Unread::TooLarge`].
    pub(super) async fn of(
        headers: &HeaderMap,
        came: &Bytes,
        max: u64,
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
        let packed = came.clone();
        let opened = tokio::task::spawn_blocking(move || opened(&packed, max)).await;
        let Ok(Some(plain)) = opened else {
            tracing::warn!(encoding, "a body that cannot be opened goes on unread");
            return Ok(None);
        };
        if plain.len() as u64 > max {
            return Err(Unread::TooLarge);
        }
        Ok(Some(Packed { came: came.clone(), plain: plain.into() }))
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

/// What frames of zstd say, and one byte more than they may at the most.
fn opened(packed: &[u8], max: u64) -> Option<Vec<u8>> {
    let (mut rest, mut plain) = (packed, Vec::new());
    while !rest.is_empty() {
        let mut frame = StreamingDecoder::new(&mut rest).ok()?;
        let room = max.saturating_add(1).saturating_sub(plain.len() as u64);
        frame.by_ref().take(room).read_to_end(&mut plain).ok()?;
        if plain.len() as u64 > max {
            break;
        }
    }
    Some(plain)
}

#[cfg(test)]
mod tests {
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};

    use super::*;

    fn headers(encoding: &str) -> HeaderMap {
        HeaderMap::from_iter([(CONTENT_ENCODING, encoding.parse().unwrap())])
    }

    fn packed(text: &str) -> Bytes {
        compress_to_vec(text.as_bytes(), CompressionLevel::Fastest).into()
    }

    #[tokio::test]
    async fn what_is_compressed_is_opened_as_far_as_a_body_may_be_long() {
        let text = "the same words ".repeat(1_000);
        let (came, zstd) = (packed(&text), headers(" ZSTD"));
        let it = Packed::of(&zstd, &came, 15_000).await.unwrap().unwrap();
        assert_eq!(it.plain(), text.as_bytes());
        assert_eq!(it.came_as(it.plain()), Some(came.clone()));
        assert_eq!(it.came_as(&Bytes::from(text.clone())), None);
        assert_eq!(Packed::of(&zstd, &came, 14_999).await.unwrap_err(), Unread::TooLarge);
        // Frames may follow each other.
        let two = Bytes::from([&came[..], &came[..]].concat());
        let it = Packed::of(&zstd, &two, 30_000).await.unwrap().unwrap();
        assert_eq!(it.plain().len(), 30_000);
        assert_eq!(Packed::of(&zstd, &two, 29_999).await.unwrap_err(), Unread::TooLarge);
    }

    #[tokio::test]
    async fn what_nobody_can_open_stays_closed() {
        let came = packed("words");
        let cut = came.slice(..came.len() - 1);
        for (encoding, body) in
            [("identity", &came), ("br", &came), ("zstd", &cut), ("zstd", &Bytes::from("words"))]
        {
            assert!(Packed::of(&headers(encoding), body, 100).await.unwrap().is_none());
        }
        assert!(Packed::of(&HeaderMap::new(), &came, 100).await.unwrap().is_none());
    }
}
