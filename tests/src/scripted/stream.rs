//! Streams bytes in chunks of any size, cut at bad places, sometimes incomplete.

use std::convert::Infallible;
use std::io;

use axum::body::{Body, Bytes};
use futures_util::StreamExt;
use futures_util::stream;

/// How a stream ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// With its last byte.
    Whole,
    /// At a random byte, with the connection.
    Cut,
    /// At a random byte, well-formed.
    Early,
    /// At a random byte, and the connection stays.
    Hang,
}

/// The last frames of a stream say that it is whole: what is cut is cut before them.
const CLOSING_FRAMES: usize = 3;

/// A body of random chunks.
pub(super) fn body(frames: &[String], end: End, random: &mut fastrand::Rng) -> Body {
    let bytes = frames.concat().into_bytes();
    let until = if end == End::Whole { bytes.len() } else { cut_place(frames, random) };
    let chunks = chunks(bytes.get(..until).unwrap_or_default(), random);
    let sending = stream::iter(chunks).then(|chunk| async move {
        // Without a pause the chunks would be sent as one.
        tokio::task::yield_now().await;
        Ok::<Bytes, io::Error>(chunk)
    });
    match end {
        End::Whole | End::Early => Body::from_stream(sending),
        End::Cut => Body::from_stream(sending.chain(stream::once(async { Err(cut()) }))),
        End::Hang => Body::from_stream(sending.chain(stream::once(hang()))),
    }
}

fn cut_place(frames: &[String], random: &mut fastrand::Rng) -> usize {
    let cuttable = frames.len().saturating_sub(CLOSING_FRAMES);
    let bytes: usize = frames.iter().take(cuttable).map(String::len).sum();
    // Of a short stream the first half of its only frame.
    let first = frames.first().map_or(0, String::len) / 2;
    random.usize(0..bytes.max(first).max(1))
}

fn cut() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionAborted, "cut by the script")
}

async fn hang() -> io::Result<Bytes> {
    match std::future::pending::<Infallible>().await {}
}

/// Chunks of random sizes, many of which end inside a character.
fn chunks(bytes: &[u8], random: &mut fastrand::Rng) -> Vec<Bytes> {
    let mut left = bytes;
    let mut chunks = Vec::new();
    while !left.is_empty() {
        let most = if random.u8(0..4) == 0 { 8 } else { 400 };
        let size = random.usize(1..=most).min(left.len());
        let size = if random.bool() { inside_character(left, size) } else { size };
        let (chunk, rest) = left.split_at(size);
        chunks.push(Bytes::copy_from_slice(chunk));
        left = rest;
    }
    chunks
}

/// The place behind the first byte of a long character within so many bytes, or the last of them.
fn inside_character(bytes: &[u8], size: usize) -> usize {
    let within = bytes.iter().take(size);
    within.clone().position(|byte| *byte >= 0xC0).map_or(size, |at| at + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_the_bytes_and_split_characters() {
        let text = "日志 naïve 部署 ".repeat(50);
        let chunks = chunks(text.as_bytes(), &mut fastrand::Rng::with_seed(1));
        assert_eq!(chunks.concat(), text.as_bytes());
        assert!(chunks.iter().any(|chunk| std::str::from_utf8(chunk).is_err()));
    }
}
