//! What was tried in vain, and what a person can do about it.

use std::fmt;

use crate::name::ModelName;
use ctxhost_dialects::{ProviderError, Reason};

/// A model that gave no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attempt {
    /// The model.
    pub model: ModelName,
    /// Why.
    pub reason: Reason,
    /// What the provider said; empty for a model that was passed over.
    pub message: String,
    /// How long it still rests, for a model that was passed over, in milliseconds.
    pub resting_ms: Option<u64>,
}

impl Attempt {
    pub(crate) fn failed(model: ModelName, error: &ProviderError) -> Attempt {
        let message = error.message.trim().to_owned();
        Attempt { model, reason: error.reason, message, resting_ms: None }
    }

    pub(crate) fn resting(model: ModelName, reason: Reason, rest_ms: u64) -> Attempt {
        Attempt { model, reason, message: String::new(), resting_ms: Some(rest_ms) }
    }
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (model, name) = (&self.model, self.reason.in_words());
        write!(f, "{model}: {name}")?;
        match self.resting_ms {
            Some(rest_ms) => write!(f, ", passed over for {} s more", rest_ms.div_ceil(1_000))?,
            None if self.message.is_empty() => {}
            None => write!(f, " ({})", self.message)?,
        }
        write!(f, "; {}", advice(self.reason))
    }
}

/// No model of the chain gave an answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct AllModelsFailed {
    /// What was tried, in this order, and what was passed over.
    pub attempts: Vec<Attempt>,
}

impl fmt::Display for AllModelsFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.attempts.as_slice() {
            [] => write!(f, "no model to ask; name one in the config"),
            [only] => write!(f, "no answer from {only}"),
            all => {
                write!(f, "no answer from any of {} models:", all.len())?;
                all.iter().try_for_each(|attempt| write!(f, "\n  {attempt}"))
            }
        }
    }
}

/// What a person can do about a reason.
pub fn advice(reason: Reason) -> &'static str {
    match reason {
        Reason::ContextOverflow => "compact the session, or use a model with a larger window",
        Reason::MalformedHistory => "undo the last turn, or report this as a bug with the session",
        Reason::OutputLimit => "lower the output limit of the model in the config",
        Reason::WindowTooSmall => {
            "use a larger model, or raise the window where the server allows it"
        }
        Reason::Billing => "add credit with the provider",
        Reason::Auth => "check the key and the variable or command that it comes from",
        Reason::AuthPermanent => "ask for access to the model, or use another key",
        Reason::RateLimit => "wait a minute, or add a second model to the chain",
        Reason::Overloaded | Reason::ServerError | Reason::Timeout => {
            "try again later, or add a second provider to the chain"
        }
        Reason::Connection => "check the base URL, the proxy and the network",
        Reason::TlsCertificate => "check the clock, the proxy and the certificates of this machine",
        Reason::ModelNotFound => "check the name of the model with the provider",
        Reason::SessionExpired => "send the message again",
        Reason::Format => "check the dialect and the settings of the model in the config",
        Reason::EmptyResponse | Reason::StreamCut | Reason::Nonsense => {
            "send the message again, or check the dialect and the base URL in the config"
        }
        Reason::Cancelled => "send the message again",
        Reason::Unclassified => "read the provider's message",
    }
}
