//! Decompresses request bodies. An unchanged body is forwarded in its compressed form.

use std::io::Read;

use axum::body::Bytes;
use axum::http::HeaderMap;
use axum::http::header::CONTENT_ENCODING;
use ctxhost_files::ZstdReader;

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

/// A body as its `content-encoding` lets the gateway read it.
#[derive(Debug)]
pub(super) enum ReceivedBody {
    /// It is not compressed.
    Plain,
    /// It was decompressed.
    Compressed(CompressedBody),
    /// It cannot be read.
    Unread(UnreadBody),
}

/// Why the gateway cannot read a body. Its bytes mean nothing to a parser.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum UnreadBody {
    /// Only zstd is decompressed.
    #[error("the content-encoding {0:?} is not supported")]
    Unsupported(String),
    /// The data is invalid or ends early.
    #[error("the body cannot be decompressed (content-encoding zstd)")]
    Damaged,
}

impl ReceivedBody {
    /// Decompresses a body to at most `max` bytes.
    ///
    /// # Errors
    ///
    /// [`BodyReadError::TooLarge`] or [`BodyReadError::NoBudget`].
    pub(super) async fn decode(
        headers: &HeaderMap,
        received: &Bytes,
        max: u64,
        budget: &BodyBudget,
    ) -> Result<ReceivedBody, BodyReadError> {
        /// The longest name that a message shows.
        const MAX_NAME_CHARS: usize = 40;
        let Some(encoding) = headers.get(CONTENT_ENCODING) else { return Ok(ReceivedBody::Plain) };
        let encoding = String::from_utf8_lossy(encoding.as_bytes()).trim().to_ascii_lowercase();
        match encoding.as_str() {
            "" | "identity" => return Ok(ReceivedBody::Plain),
            // Codex compresses requests to providers that it takes for OpenAI.
            "zstd" => {}
            _ => {
                let name = encoding.chars().take(MAX_NAME_CHARS).collect();
                return Ok(ReceivedBody::Unread(UnreadBody::Unsupported(name)));
            }
        }
        // Both forms are held at once, so a body can never have more than the rest of the budget.
        let max = max.min(budget.limit_bytes().saturating_sub(received.len() as u64));
        let (compressed, mut reservation) = (received.clone(), budget.reservation());
        let _permit = budget.decompression_permits().acquire().await;
        let decompressing = move || (decompress(&compressed, max, &mut reservation), reservation);
        // CPU-bound: the largest body takes a good part of a second.
        match tokio::task::spawn_blocking(decompressing).await {
            Ok((Ok(decoded), reservation)) => Ok(ReceivedBody::Compressed(CompressedBody {
                received: received.clone(),
                decoded: reservation.attach(decoded),
            })),
            Ok((Err(DecompressError::Limit(error)), _)) => Err(error),
            Ok((Err(DecompressError::Damaged), _)) | Err(_) => {
                Ok(ReceivedBody::Unread(UnreadBody::Damaged))
            }
        }
    }
}

impl CompressedBody {
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
    let (mut content, mut decoded) = (ZstdReader::new(compressed), Vec::new());
    let mut step = vec![0; STEP_BYTES];
    loop {
        let read = content.read(&mut step).map_err(|_| DecompressError::Damaged)?;
        let Some(chunk) = step.get(..read).filter(|chunk| !chunk.is_empty()) else { break };
        if (decoded.len() + chunk.len()) as u64 > max {
            return Err(DecompressError::Limit(BodyReadError::TooLarge));
        }
        if !reservation.try_reserve(chunk.len()) {
            return Err(DecompressError::Limit(BodyReadError::NoBudget));
        }
        decoded.extend_from_slice(chunk);
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

    fn decoded(body: ReceivedBody) -> CompressedBody {
        match body {
            ReceivedBody::Compressed(body) => body,
            other => panic!("not decoded: {other:?}"),
        }
    }

    #[tokio::test]
    async fn zstd_bodies_are_decompressed_up_to_a_limit() {
        let text = "the same words ".repeat(1_000);
        let (received, zstd) = (compressed(&text), headers(" ZSTD"));
        let all = budget(100_000);
        let both = decoded(ReceivedBody::decode(&zstd, &received, 15_000, &all).await.unwrap());
        assert_eq!(both.decoded(), text.as_bytes());
        assert_eq!(both.compressed_form_of(both.decoded()), Some(received.clone()));
        assert_eq!(both.compressed_form_of(&Bytes::from(text.clone())), None);
        assert_eq!(
            ReceivedBody::decode(&zstd, &received, 14_999, &all).await.unwrap_err(),
            BodyReadError::TooLarge
        );
        // A body may have several frames.
        let two = Bytes::from([&received[..], &received[..]].concat());
        let both = decoded(ReceivedBody::decode(&zstd, &two, 30_000, &all).await.unwrap());
        assert_eq!(both.decoded().len(), 30_000);
        assert_eq!(
            ReceivedBody::decode(&zstd, &two, 29_999, &all).await.unwrap_err(),
            BodyReadError::TooLarge
        );
        assert_eq!(all.held_bytes(), 15_000 + 30_000);
        let later = ReceivedBody::decode(&zstd, &two, 100_000, &all);
        drop(both);
        assert_eq!(decoded(later.await.unwrap()).decoded().len(), 30_000);
        let mut others = all.reservation();
        assert!(others.try_reserve(80_000));
        assert_eq!(
            ReceivedBody::decode(&zstd, &two, 100_000, &all).await.unwrap_err(),
            BodyReadError::NoBudget
        );
        assert_eq!(all.held_bytes(), 15_000 + 80_000);
        let never = ReceivedBody::decode(&zstd, &two, 100_000, &budget(20_000)).await;
        assert_eq!(never.unwrap_err(), BodyReadError::TooLarge);
    }

    #[tokio::test]
    async fn other_encodings_and_damaged_bodies_are_not_decoded() {
        let received = compressed("words");
        let cut = received.slice(..received.len() - 1);
        let budget = budget(1_000);
        let unread = async |encoding: &str, body: &Bytes| match ReceivedBody::decode(
            &headers(encoding),
            body,
            100,
            &budget,
        )
        .await
        .unwrap()
        {
            ReceivedBody::Unread(unread) => Some(unread),
            ReceivedBody::Plain => None,
            ReceivedBody::Compressed(body) => panic!("decoded: {body:?}"),
        };
        assert_eq!(unread("identity", &received).await, None);
        assert_eq!(unread(" BR", &received).await, Some(UnreadBody::Unsupported("br".into())));
        assert_eq!(unread("zstd", &cut).await, Some(UnreadBody::Damaged));
        assert_eq!(unread("zstd", &Bytes::from("words")).await, Some(UnreadBody::Damaged));
        let long = unread(&"x".repeat(5_000), &received).await.unwrap().to_string();
        assert!(long.len() < 100, "{long}");
        let plain = ReceivedBody::decode(&HeaderMap::new(), &received, 100, &budget).await.unwrap();
        assert!(matches!(plain, ReceivedBody::Plain));
    }
}
