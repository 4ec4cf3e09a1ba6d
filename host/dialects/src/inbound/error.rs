//! Why a request body of a client cannot be parsed.

use std::fmt;

/// Why a body cannot be parsed. The gateway forwards such a body unchanged, without an engine.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InboundError {
    /// The body is not a JSON request of the dialect.
    #[error("the body is not a request of this dialect: {reason}")]
    InvalidRequest {
        /// The parser's message, with line and column.
        reason: String,
    },
    /// A message is not one of the dialect.
    #[error("message {number} does not match this dialect: {reason}")]
    InvalidMessage {
        /// The message's index, from 0, after the leading instructions.
        number: usize,
        /// The parser's message.
        reason: String,
    },
}

impl InboundError {
    /// The error of a message.
    pub fn in_message(number: usize, reason: impl fmt::Display) -> InboundError {
        InboundError::InvalidMessage { number, reason: reason.to_string() }
    }

    /// The same with the message's number counted from `before` messages earlier.
    #[must_use]
    pub fn after_items(self, before: usize) -> InboundError {
        match self {
            InboundError::InvalidMessage { number, reason } => {
                InboundError::InvalidMessage { number: before + number, reason }
            }
            other => other,
        }
    }
}

pub(crate) fn invalid_request(error: serde_json::Error) -> InboundError {
    InboundError::InvalidRequest { reason: error.to_string() }
}
