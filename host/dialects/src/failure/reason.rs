//! The reasons why a model gave no answer.

use serde::{Deserialize, Serialize};

/// Why a model gave no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureReason {
    /// The request exceeds the model's window. Compaction helps, another model does not.
    ContextOverflow,
    /// The history violates the dialect's rules. Repair helps, compaction does not.
    MalformedHistory,
    /// The requested answer exceeds the model's limit. A smaller limit helps.
    OutputLimit,
    /// The window is too small for the host to work in.
    WindowTooSmall,
    /// Credit, quota or plan is exhausted.
    Billing,
    /// The key is missing or wrong.
    Auth,
    /// The key lacks the permission.
    AuthPermanent,
    /// Too many requests or tokens per time.
    RateLimit,
    /// The provider is overloaded.
    Overloaded,
    /// The provider failed.
    ServerError,
    /// No answer in time.
    Timeout,
    /// The provider's address cannot be reached.
    Connection,
    /// The certificate is not trusted.
    TlsCertificate,
    /// The model does not exist.
    ModelNotFound,
    /// Server-side state that the request refers to no longer exists.
    SessionExpired,
    /// The request is invalid in another way.
    Format,
    /// The answer has no content.
    EmptyResponse,
    /// The stream ended early.
    StreamCut,
    /// The answer does not match the dialect.
    #[serde(rename = "nonsense")]
    InvalidResponse,
    /// The caller cancelled the request.
    Cancelled,
    /// Anything else.
    Unclassified,
}

impl FailureReason {
    /// A short description for messages.
    pub fn describe(self) -> &'static str {
        match self {
            FailureReason::ContextOverflow => "the request is larger than the window",
            FailureReason::MalformedHistory => "the history is not accepted",
            FailureReason::OutputLimit => "the output limit is too high",
            FailureReason::WindowTooSmall => "the window is too small to work in",
            FailureReason::Billing => "no credit",
            FailureReason::Auth => "the key is not accepted",
            FailureReason::AuthPermanent => "the key lacks the permission",
            FailureReason::RateLimit => "rate limit",
            FailureReason::Overloaded => "overloaded",
            FailureReason::ServerError => "the provider failed",
            FailureReason::Timeout => "no answer in time",
            FailureReason::Connection => "the connection failed",
            FailureReason::TlsCertificate => "its certificate is not trusted",
            FailureReason::ModelNotFound => "no such model",
            FailureReason::SessionExpired => "the server-side session has expired",
            FailureReason::Format => "the request is not accepted",
            FailureReason::EmptyResponse => "an empty answer",
            FailureReason::StreamCut => "the answer was cut off",
            FailureReason::InvalidResponse => "an invalid answer",
            FailureReason::Cancelled => "cancelled",
            FailureReason::Unclassified => "an unknown error",
        }
    }
}
