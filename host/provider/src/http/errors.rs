//! Errors of a request, told without the key.

use std::error::Error;

use reqwest::header::HeaderMap;
use secrecy::{ExposeSecret, SecretString};

use super::frames::StreamReadError;
use super::retry::retry_after_ms;
use ctxhost_dialects::dialect::{ModelResponse, StreamError};
use ctxhost_dialects::failure::{
    Classification, Classifier, FailureReason, ProviderError, ProviderRefusal, excerpt,
};

/// The shortest secret that is looked for in texts: anything shorter is a word of its own.
const SECRET_MIN_CHARS: usize = 4;

/// Who was asked, and what must not be told of it.
#[derive(Debug)]
pub(super) struct ErrorBuilder<'a> {
    pub(super) provider: &'a str,
    pub(super) model: &'a str,
    /// Host and port; the rest of an address may hold a key.
    pub(super) host: &'a str,
    pub(super) secrets: Vec<SecretString>,
    /// What its refusals mean.
    pub(super) classifier: &'a Classifier,
}

impl ErrorBuilder<'_> {
    /// A failure for a reason.
    pub(super) fn error(&self, reason: FailureReason, message: &str) -> ProviderError {
        ProviderError {
            reason,
            provider: self.provider.to_owned(),
            model: self.model.to_owned(),
            status: None,
            code: String::new(),
            message: self.redact(message),
            retry_after_ms: None,
            observed_tokens: None,
            prompt_tokens: None,
            limit_tokens: None,
            is_ceiling: false,
            has_started: false,
        }
    }

    /// The provider refused.
    pub(super) fn refusal(
        &self,
        refusal: &ProviderRefusal,
        headers: Option<&HeaderMap>,
    ) -> ProviderError {
        let Classification { reason, observed_tokens, prompt_tokens, limit_tokens, is_ceiling } =
            self.classifier.classify_for(self.provider, refusal);
        let now = std::time::SystemTime::now();
        let said = match (refusal.message.trim(), refusal.status) {
            ("", Some(status)) => format!("refused with status {status} and no word more"),
            ("", None) => "the provider ended the answer with an error and no word more".to_owned(),
            (said, _) => said.to_owned(),
        };
        ProviderError {
            status: refusal.status,
            code: self.redact(&refusal.code),
            retry_after_ms: headers.and_then(|headers| retry_after_ms(headers, now)),
            observed_tokens,
            prompt_tokens,
            limit_tokens,
            is_ceiling,
            ..self.error(reason, &said)
        }
    }

    /// Nobody answered.
    pub(super) fn unreachable(&self, error: &reqwest::Error) -> ProviderError {
        let causes = cause_chain(error);
        let is_certificate = causes.to_lowercase().contains("certificate");
        let (reason, advice) = match is_certificate {
            true => (
                FailureReason::TlsCertificate,
                "check the certificate of the server or of the proxy",
            ),
            false => (FailureReason::Connection, "check base_url, the proxy and the network"),
        };
        self.error(reason, &format!("{} did not answer: {causes}; {advice}", self.host))
    }

    /// The bytes stopped.
    pub(super) fn read_error(&self, trouble: &StreamReadError, idle_ms: u128) -> ProviderError {
        match trouble {
            StreamReadError::IdleTimeout => {
                let message = format!(
                    "the answer stood still for {idle_ms} ms; raise idle_timeout_ms if the model needs longer"
                );
                self.error(FailureReason::Timeout, &message)
            }
            StreamReadError::ConnectionLost(error) => {
                let message = format!("the answer broke off: {}", cause_chain(error));
                self.error(FailureReason::StreamCut, &message)
            }
            StreamReadError::InvalidFrame(error) => {
                self.error(FailureReason::InvalidResponse, &error.to_string())
            }
        }
    }

    /// The provider did not begin in time.
    pub(super) fn first_byte_timeout(&self, first_byte_ms: u128) -> ProviderError {
        let message = format!(
            "no answer began within {first_byte_ms} ms; raise first_byte_timeout_ms if the model needs longer"
        );
        self.error(FailureReason::Timeout, &message)
    }

    /// The frames made no answer.
    pub(super) fn stream_error(&self, fault: &StreamError) -> ProviderError {
        match fault {
            StreamError::Refused(refusal) => self.refusal(refusal, None),
            StreamError::InvalidFrame { reason } => {
                self.error(FailureReason::InvalidResponse, &excerpt(reason))
            }
            StreamError::Cut => self.error(
                FailureReason::StreamCut,
                "the answer ended before the provider said that it was whole",
            ),
        }
    }

    /// What came is not what the dialect says.
    pub(super) fn invalid_response(&self, head: &str) -> ProviderError {
        let message = format!(
            "the answer is none of this dialect: {}; check dialect and base_url",
            excerpt(&self.redact(head))
        );
        self.error(FailureReason::InvalidResponse, &message)
    }

    /// An answer came, with nothing in it.
    pub(super) fn empty_response(&self, answer: &ModelResponse) -> ProviderError {
        let why = match answer.raw_stop_reason.as_str() {
            "" => String::new(),
            reason => format!(" (it stopped for `{reason}`)"),
        };
        let prompt_tokens = answer.usage.prompt_tokens();
        ProviderError {
            observed_tokens: (prompt_tokens > 0).then_some(prompt_tokens),
            ..self.error(FailureReason::EmptyResponse, &format!("the answer holds nothing{why}"))
        }
    }

    /// A text without the key, whoever repeated it.
    fn redact(&self, text: &str) -> String {
        let secrets = self.secrets.iter().map(ExposeSecret::expose_secret);
        let is_long = |secret: &&str| secret.chars().count() >= SECRET_MIN_CHARS;
        secrets.filter(is_long).fold(text.to_owned(), |text, secret| text.replace(secret, "[key]"))
    }
}

/// An error and what caused it, the innermost last, without its address.
fn cause_chain(error: &reqwest::Error) -> String {
    let mut told: Vec<String> = Vec::new();
    let mut cause = error.source();
    while let Some(error) = cause {
        let words = error.to_string();
        if told.last() != Some(&words) {
            told.push(words);
        }
        cause = error.source();
    }
    if told.is_empty() { "the request failed".to_owned() } else { told.join(": ") }
}
