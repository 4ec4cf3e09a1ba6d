//! What can go wrong on either side of the border, as kinds the other side acts on.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The result of every call of an engine and of every service of the host.
pub type Result<T, E = EngineError> = std::result::Result<T, E>;

/// An error that crosses the border: a kind to act on, a sentence to show, details to log.
#[derive(Clone, Debug, thiserror::Error, Serialize, Deserialize)]
#[error("{message}")]
pub struct EngineError {
    /// What the other side should do about it.
    pub kind: ErrorKind,
    /// One lower-case sentence that names the thing and says what to do next.
    pub message: String,
    /// Machine-readable details; `null` where there are none.
    pub detail: Value,
}

impl EngineError {
    /// An error of a kind, with its sentence.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        EngineError { kind, message: message.into(), detail: Value::Null }
    }

    /// [`ErrorKind::Failed`]: the engine could not do it.
    pub fn failed(message: impl Into<String>) -> Self {
        EngineError::new(ErrorKind::Failed, message)
    }

    /// [`ErrorKind::Config`]: a setting is wrong. `key` is its dotted path below the engine's table.
    pub fn config(key: impl Into<String>, message: impl Into<String>) -> Self {
        let mut error = EngineError::new(ErrorKind::Config, message);
        error.detail = serde_json::json!({ "key": key.into() });
        error
    }

    /// Adds details.
    #[must_use]
    pub fn with_detail(mut self, detail: Value) -> Self {
        self.detail = detail;
        self
    }
}

/// Makes the enum and both ways of its numbers, so that the two can never disagree.
macro_rules! error_kinds {
    ($( $(#[$doc:meta])* $name:ident = $code:literal, )*) => {
        /// The kinds of error. Numbers are part of the ABI; an unknown one reads as `Other`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[serde(from = "u32", into = "u32")]
        #[non_exhaustive]
        pub enum ErrorKind {
            $( $(#[$doc])* $name, )*
            /// A kind that a newer side sent.
            Other(u32),
        }

        impl ErrorKind {
            /// The number that crosses.
            pub const fn code(self) -> u32 {
                match self {
                    $( ErrorKind::$name => $code, )*
                    ErrorKind::Other(code) => code,
                }
            }

            /// The kind of a number.
            pub const fn from_code(code: u32) -> Self {
                match code {
                    $( $code => ErrorKind::$name, )*
                    other => ErrorKind::Other(other),
                }
            }
        }
    };
}

impl From<u32> for ErrorKind {
    fn from(code: u32) -> Self {
        ErrorKind::from_code(code)
    }
}

impl From<ErrorKind> for u32 {
    fn from(kind: ErrorKind) -> Self {
        kind.code()
    }
}

error_kinds! {
    /// The engine could not do it. The host quarantines the engine or fails, as configured.
    Failed = 1,
    /// A setting is wrong. The host names the file and the line.
    Config = 2,
    /// The window of the model is too small to work in. The host tries the next model.
    WindowTooSmall = 3,
    /// The call is not offered. The host takes its default.
    Unsupported = 4,
    /// What must stay does not fit into the budget. The request ends with the engine's sentence, and the
    /// engine is not blamed. Rarely worth it: a plan of what must stay lets the host make room.
    CannotFit = 5,
    /// A panic was stopped at the border. The engine is quarantined.
    Panicked = 100,
    /// The call was cancelled. Not a failure.
    Cancelled = 101,
    /// The call took longer than its deadline.
    Deadline = 102,
    /// The host has disposed of the engine; no service answers any more.
    Dead = 103,
    /// The other side sent something that does not parse.
    Protocol = 104,
    /// No model is configured for this purpose.
    ModelMissing = 200,
    /// The model's provider refused the key.
    ModelAuth = 201,
    /// The host's policy does not allow this model or purpose.
    ModelDenied = 202,
    /// The model took too long.
    ModelTimeout = 203,
    /// The model answered nothing.
    ModelEmpty = 204,
    /// The answer was cut at its length limit.
    ModelLength = 205,
    /// The provider throttles.
    ModelRateLimited = 206,
    /// The request did not fit the model's window.
    ModelOverflow = 207,
    /// The model answered with a tool call where text was asked for.
    ModelToolCall = 208,
    /// Any other failure of the provider.
    ModelFailed = 209,
    /// The host's store failed.
    Store = 300,
}
