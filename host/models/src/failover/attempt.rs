//! Failed attempts, and advice for users.

use std::fmt;

use crate::name::ModelName;
use ctxhost_dialects::{FailureReason, ProviderError};

/// A model without an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModelAttempt {
    /// The model.
    pub model: ModelName,
    /// The reason.
    pub reason: FailureReason,
    /// The provider's message; empty for a model in cooldown.
    pub message: String,
    /// The rest of its cooldown, for a model that was not tried, in milliseconds.
    pub cooldown_ms: Option<u64>,
}

impl ModelAttempt {
    pub(crate) fn failed(model: ModelName, error: &ProviderError) -> ModelAttempt {
        let message = error.message.trim().to_owned();
        ModelAttempt { model, reason: error.reason, message, cooldown_ms: None }
    }

    pub(crate) fn cooling(
        model: ModelName,
        reason: FailureReason,
        cooldown_ms: u64,
    ) -> ModelAttempt {
        ModelAttempt { model, reason, message: String::new(), cooldown_ms: Some(cooldown_ms) }
    }
}

impl fmt::Display for ModelAttempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (model, name) = (&self.model, self.reason.describe());
        write!(f, "{model}: {name}")?;
        match self.cooldown_ms {
            // Rounded up: `0 s` would read as if the cooldown were over.
            Some(cooldown_ms) => write!(f, ", in cooldown for {} s", cooldown_ms.div_ceil(1_000))?,
            None if self.message.is_empty() => {}
            None => write!(f, " ({})", self.message)?,
        }
        write!(f, "; {}", advice(self.reason))
    }
}

/// No model of the chain gave an answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct FailoverError {
    /// The models that were tried, in order, then those in cooldown.
    pub attempts: Vec<ModelAttempt>,
}

impl fmt::Display for FailoverError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.attempts.as_slice() {
            [] => write!(f, "no model is configured; set one in the config"),
            [only] => write!(f, "no answer from {only}"),
            all => {
                write!(f, "no answer from any of {} models:", all.len())?;
                all.iter().try_for_each(|attempt| write!(f, "\n  {attempt}"))
            }
        }
    }
}

/// What a user can do about a reason.
pub fn advice(reason: FailureReason) -> &'static str {
    match reason {
        FailureReason::ContextOverflow => {
            "compact the session, or use a model with a larger window"
        }
        FailureReason::MalformedHistory => {
            "undo the last turn, or report this as a bug with the session"
        }
        FailureReason::OutputLimit => "lower the output limit of the model in the config",
        FailureReason::WindowTooSmall => {
            "use a larger model, or raise the window where the server allows it"
        }
        FailureReason::Billing => "add credit with the provider",
        FailureReason::Auth => "check the key and the variable or command that it comes from",
        FailureReason::AuthPermanent => "ask for access to the model, or use another key",
        FailureReason::RateLimit => "wait a minute, or add a second model to the chain",
        FailureReason::Overloaded | FailureReason::ServerError | FailureReason::Timeout => {
            "try again later, or add a second provider to the chain"
        }
        FailureReason::Connection => "check the base URL, the proxy and the network",
        FailureReason::TlsCertificate => {
            "check the clock, the proxy and the certificates of this machine"
        }
        FailureReason::ModelNotFound => "check the name of the model with the provider",
        FailureReason::SessionExpired => "send the message again",
        FailureReason::Format => "check the dialect and the settings of the model in the config",
        FailureReason::EmptyResponse
        | FailureReason::StreamCut
        | FailureReason::InvalidResponse => {
            "send the message again, or check the dialect and the base URL in the config"
        }
        FailureReason::Cancelled => "send the message again",
        FailureReason::Unclassified => "read the provider's message",
    }
}
