//! Why an upstream sent no response.

use std::error::Error;

use hyper_util::client::legacy;

/// Why an upstream sent no response head.
#[derive(Debug)]
pub(crate) enum UpstreamError {
    /// The connection failed.
    Unreachable(String),
    /// A connection broke, or what came over it is not a response.
    NoResponse(String),
    /// No response head within this time, in milliseconds.
    TimedOut(u128),
    /// Its API key could not be read.
    NoKey(String),
}

impl UpstreamError {
    /// The error of a request that was sent, or that found no connection.
    pub(super) fn from_client(error: &legacy::Error) -> UpstreamError {
        let cause = error_chain(error);
        if error.is_connect() {
            UpstreamError::Unreachable(cause)
        } else {
            UpstreamError::NoResponse(cause)
        }
    }
}

/// An error and its causes, the innermost last.
fn error_chain(error: &(dyn Error + 'static)) -> String {
    let mut messages: Vec<String> = Vec::new();
    let mut next = Some(error);
    while let Some(error) = next {
        let message = error.to_string();
        if messages.last() != Some(&message) {
            messages.push(message);
        }
        next = error.source();
    }
    messages.join(": ")
}
