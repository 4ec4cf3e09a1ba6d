//! Errors of engines and of host services, with kinds that the other side acts on.

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The result of every call of an engine and of every service of the host.
pub type Result<T, E = EngineError> = std::result::Result<T, E>;

/// An error of a call or service: a kind to act on, a message to show, details to log.
#[derive(Clone, Debug, thiserror::Error, Serialize, Deserialize)]
#[error("{message}")]
pub struct EngineError {
    /// What the other side should do about it.
    pub kind: ErrorKind,
    /// One lower-case sentence: what failed and what to do next.
    pub message: String,
    /// Machine-readable details, or `null`.
    pub detail: Value,
}

impl EngineError {
    /// An error of a kind with a message.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        EngineError { kind, message: message.into(), detail: Value::Null }
    }

    /// [`ErrorKind::Failed`]: the call failed.
    pub fn failed(message: impl Into<String>) -> Self {
        EngineError::new(ErrorKind::Failed, message)
    }

    /// [`ErrorKind::Config`]: a setting is wrong. `key` is its dotted path below the engine's table.
    pub fn config(key: impl Into<String>, message: impl Into<String>) -> Self {
        let mut error = EngineError::new(ErrorKind::Config, message);
        // The host looks up file and line by this key.
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

/// Defines the enum and both conversions of its numbers from one list.
macro_rules! error_kinds {
    ($( $(#[$doc:meta])* $name:ident = $code:literal, )*) => {
        /// The kinds of error. Numbers are part of the ABI; an unknown number becomes `Other`.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[serde(from = "u32", into = "u32")]
        #[non_exhaustive]
        pub enum ErrorKind {
            $( $(#[$doc])* $name, )*
            /// A kind of a newer version.
            Other(u32),
        }

        impl ErrorKind {
            /// The number in the ABI.
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
    /// The call failed. The host quarantines the engine or fails the turn, as configured.
    Failed = 1,
    /// A setting is wrong. The host reports file and line.
    Config = 2,
    /// The window of the model is too small to work in. The host tries the next model.
    WindowTooSmall = 3,
    /// The call is not implemented. The host uses its default.
    Unsupported = 4,
    /// The pinned entries exceed the budget. The request ends with the engine's message, without quarantine.
    /// Rarely useful: the host can trim a plan of the pinned entries.
    CannotFit = 5,
    /// A panic was caught. The engine is quarantined.
    Panicked = 100,
    /// The call was cancelled. Not a failure: where the host did not, the bundled engine answers.
    Cancelled = 101,
    /// The call exceeded its time limit.
    Deadline = 102,
    /// The host has disposed of the engine; services are revoked.
    Dead = 103,
    /// The other side sent something that does not parse.
    Protocol = 104,
    /// No model is configured for this purpose.
    ModelMissing = 200,
    /// The model's provider rejected the key.
    ModelAuth = 201,
    /// The host's policy does not allow this model or purpose.
    ModelDenied = 202,
    /// The model took too long.
    ModelTimeout = 203,
    /// The model returned no text.
    ModelEmpty = 204,
    /// The answer was truncated at its length limit.
    ModelLength = 205,
    /// The provider limits the request rate.
    ModelRateLimited = 206,
    /// The request exceeds the model's window.
    ModelOverflow = 207,
    /// The model returned a tool call instead of text.
    ModelToolCall = 208,
    /// Any other failure of the provider.
    ModelFailed = 209,
    /// The host's store failed.
    Store = 300,
}
