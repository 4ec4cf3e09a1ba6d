//! What the server records of a request.

use std::fmt::Write;
use std::sync::Arc;

use axum::http::HeaderMap;
use serde_json::Value;
use sha2::{Digest, Sha256};

use super::fault::Fault;
use super::model::OverflowForm;
use crate::rules::Broken;

/// Headers of which only a hash is kept.
const SECRETS: [&str; 5] = ["authorization", "x-api-key", "x-goog-api-key", "api-key", "cookie"];

/// One request.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Its number, from 0.
    pub n: usize,
    /// Its path, with what stands behind a question mark; a key there is left out.
    pub path: String,
    /// Its headers; of keys the hash alone.
    pub headers: Vec<(String, String)>,
    /// Its body; null where it was no JSON or is kept no longer.
    pub body: Arc<Value>,
    /// Its prompt, in tokens of the model.
    pub prompt_tokens: u64,
    /// The longest answer that it asks for, in tokens; 0 where it does not say.
    pub output_tokens: u64,
    /// Whether the answer is wanted as a stream.
    pub is_stream: bool,
    /// How many results of tools stand in it.
    pub tool_results: usize,
    /// The rules that it breaks.
    pub broken: Vec<Broken>,
    /// What was done with it.
    pub answered: Answered,
}

/// What was done with a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answered {
    /// The script spoke.
    Answer {
        /// How many calls it made.
        calls: usize,
    },
    /// A summary.
    Summary,
    /// The count of its tokens.
    Counted,
    /// A compaction by the provider.
    Compacted,
    /// It was too large, and this was how it was said.
    Overflow(OverflowForm),
    /// It asked for a longer answer than the model gives.
    OutputLimit,
    /// It broke a rule.
    Malformed,
    /// Nothing is at its path.
    NotFound,
    /// Something went wrong.
    Fault(Fault),
}

/// Headers as they are kept.
pub(super) fn headers(headers: &HeaderMap) -> Vec<(String, String)> {
    let reported = |(name, value): (&axum::http::HeaderName, &axum::http::HeaderValue)| {
        let secret = SECRETS.contains(&name.as_str());
        let value = if secret {
            hash(value.as_bytes())
        } else {
            String::from_utf8_lossy(value.as_bytes()).into_owned()
        };
        (name.to_string(), value)
    };
    headers.iter().map(reported).collect()
}

/// A path without a key.
pub(super) fn path(path: &str) -> String {
    let Some((path, query)) = path.split_once('?') else { return path.to_owned() };
    let pairs = query.split('&').filter(|pair| !pair.starts_with("key="));
    format!("{path}?{}", pairs.collect::<Vec<_>>().join("&"))
}

fn hash(secret: &[u8]) -> String {
    let digest = Sha256::digest(secret);
    let mut reported = "sha256:".to_owned();
    for byte in digest.iter().take(8) {
        // Writing into a text cannot fail.
        let _ = write!(reported, "{byte:02x}");
    }
    reported
}
