//! Decompresses request bodies. An unchanged body is forwarded in its compressed form.

use std::io::Read;

use axum::body::Bytes;
use axum::http::HeaderMap;
use axum::http::header::CONTENT_ENCODING;
use ruzstd::decoding::StreamingDecoder;

use super::body_budget::{BodyBudget, BodyReservation};
use super::limits::BodyReadError;

/// Bytes that are decompressed per step.
const STEP_BYTES: usize = 64 * 1024;

/// A compressed body in both forms.
#[derive(Clone, Debug)]
pub(super) struct CompressedBody {
    received: Bytes,
    decoded: Bytes,
}

impl CompressedBody {
    /// Decompresses a body to at most `max` bytes; `None` if it is not compressed, or not with zstd.
    ///
    /// # Errors
    ///
    /// [`BodyReadError::TooLarge`] or [`BodyReadError::NoBudget`].
    pub(super) async fn decode(
        headers: &HeaderMap,
        received: &Bytes,
        max: u64,
        budget: &BodyBudget,
    ) -> Result<Option<CompressedBody>, BodyReadError> {
        let Some(encoding) = headers.get(CONTENT_ENCODING) else { return Ok(None) };
        let encoding = encoding.to_str().unwrap_or_default().trim().to_ascii_lowercase();
        match encoding.as_str() {
            "" | "identity" => return Ok(None),
            // Codex compresses requests to providers that it takes for OpenAI.
            "zstd" => {}
            _ => {
                tracing::warn!(
                    encoding,
                    "unsupported content-encoding: the request is forwarded unshaped"
                );
                return Ok(None);
            }
        }
        // Both forms are held at once, so a body can never have more than the rest of the budget.
        let max = max.min(budget.limit_bytes().saturating_sub(received.len() as u64));
        let (compressed, mut reservation) = (received.clone(), budget.reservation());
        let _permit = budget.decompression_permits().acquire().await;
        let decompressing = move || (decompress(&compressed, max, &mut reservation), reservation);
        // CPU-bound: the largest body takes a good part of a second.
        match tokio::task::spawn_blocking(decompressing).await {
            Ok((Ok(decoded), reservation)) => Ok(Some(CompressedBody {
                received: received.clone(),
                decoded: reservation.attach(decoded),
            })),
            Ok((Err(DecompressError::Limit(error)), _)) => Err(error),
            Ok((Err(DecompressError::Damaged), _)) | Err(_) => {
                tracing::warn!(
                    encoding,
                    "cannot decompress the body: the request is forwarded unshaped"
                );
                Ok(None)
            }
        }
    }

    /// The decompressed body.
    pub(super) fn decoded(&self) -> &Bytes {
        &self.decoded
    }

    /// The compressed form, if `body` is the decompressed one (by pointer).
    pub(super) fn compressed_form_of(&self, body: &Bytes) -> Option<Bytes> {
        let is_same = body.as_ptr() == self.decoded.as_ptr() && body.len() == self.decoded.len();
        is_same.then(|| self.received.clone())
    }
}

/// Why a body was not decompressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DecompressError {
    /// Invalid zstd data.
    Damaged,
    /// A limit is exceeded.
    Limit(BodyReadError),
}

/// Decompresses zstd frames to at most `max` bytes.
fn decompress(
    compressed: &[u8],
    max: u64,
    reservation: &mut BodyReservation,
) -> Result<Vec<u8>, DecompressError> {
    let (mut rest, mut decoded) = (compressed, Vec::new());
    let mut step = vec![0; STEP_BYTES];
    while !rest.is_empty() {
        // A body may be several concatenated frames (RFC 8878, 3.1); the decoder reads one.
        let mut frame = StreamingDecoder::new(&mut rest).map_err(|_| DecompressError::Damaged)?;
        loop {
            let read = frame.read(&mut step).map_err(|_| DecompressError::Damaged)?;
            let Some(chunk) = step.get(..read).filter(|chunk| !chunk.is_empty()) else { break };
            if (decoded.len() + chunk.len()) as u64 > max {
                return Err(DecompressError::Limit(BodyReadError::TooLarge));
            }
            if !reservation.try_reserve(chunk.len()) {
                return Err(DecompressError::Limit(BodyReadError::NoBudget));
            }
            decoded.extend_from_slice(chunk);
        }
    }
    Ok(decoded)
}

#[cfg(test)]
mod tests {
    use ruzstd::encoding::{CompressionLevel, compress_to_vec};

    use super::*;

    fn headers(encoding: &str) -> HeaderMap {
        HeaderMap::from_iter([(CONTENT_ENCODING, encoding.parse().unwrap())])
    }

    fn budget(bytes: u64) -> BodyBudget {
        BodyBudget::new(bytes, prometheus_client::metrics::gauge::Gauge::default())
    }

    fn compressed(text: &str) -> Bytes {
        compress_to_vec(text.as_bytes(), CompressionLevel::Fastest).into()
    }

    #[tokio::test]
    async fn zstd_bodies_are_decompressed_up_to_a_limit() {
        let text = "the same words ".repeat(1_000);
        let (received, zstd) = (compressed(&text), headers(" ZSTD"));
        let all = budget(100_000);
        let both = CompressedBody::decode(&zstd, &received, 15_000, &all).await.unwrap().unwrap();
        assert_eq!(both.decoded(), text.as_bytes());
        assert_eq!(both.compressed_form_of(both.decoded()), Some(received.clone()));
        assert_eq!(both.compressed_form_of(&Bytes::from(text.clone())), None);
        assert_eq!(
            CompressedBody::decode(&zstd, &received, 14_999, &all).await.unwrap_err(),
            BodyReadError::TooLarge
        );
        // A body may have several frames.
        let two = Bytes::from([&received[..], &received[..]].concat());
        let both = CompressedBody::decode(&zstd, &two, 30_000, &all).await.unwrap().unwrap();
        assert_eq!(both.decoded().len(), 30_000);
        assert_eq!(
            CompressedBody::decode(&zstd, &two, 29_999, &all).await.unwrap_err(),
            BodyReadError::TooLarge
        );
        assert_eq!(all.held_bytes(), 15_000 + 30_000);
        let later = CompressedBody::decode(&zstd, &two, 100_000, &all);
        drop(both);
        assert!(later.await.unwrap().is_some());
        let mut others = all.reservation();
        assert!(others.try_reserve(80_000));
        assert_eq!(
            CompressedBody::decode(&zstd, &two, 100_000, &all).await.unwrap_err(),
            BodyReadError::NoBudget
        );
        assert_eq!(all.held_bytes(), 15_000 + 80_000);
        let never = CompressedBody::decode(&zstd, &two, 100_000, &budget(20_000)).await;
        assert_eq!(never.unwrap_err(), BodyReadError::TooLarge);
    }

    #[tokio::test]
    async fn other_encodings_and_damaged_bodies_are_not_decoded() {
        let received = compressed("words");
        let cut = received.slice(..received.len() - 1);
        for (encoding, body) in [
            ("identity", &received),
            ("br", &received),
            ("zstd", &cut),
            ("zstd", &Bytes::from("words")),
        ] {
            assert!(
                CompressedBody::decode(&headers(encoding), body, 100, &budget(1_000))
                    .await
                    .unwrap()
                    .is_none()
            );
        }
        assert!(
            CompressedBody::decode(&HeaderMap::new(), &received, 100, &budget(1_000))
                .await
                .unwrap()
                .is_none()
        );
    }
}
