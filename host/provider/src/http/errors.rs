//! Builds the errors of a request, without its secrets.

use std::error::Error;
use std::time::{Duration, SystemTime};

use reqwest::header::HeaderMap;
use secrecy::{ExposeSecret, SecretString};

use super::frames::StreamReadError;
use super::retry::retry_after_ms;
use super::timeouts::RequestTimeouts;
use ctxhost_dialects::dialect::{ModelResponse, StreamError};
use ctxhost_dialects::failure::{
    Classifier, FailureReason, ProviderError, ProviderRefusal, excerpt,
};
use ctxhost_engine_api::transcript::tokens::group_thousands;

/// The shortest secret that is redacted. Shorter ones would match parts of ordinary words.
const SECRET_MIN_CHARS: usize = 4;

/// Builds errors of one request.
#[derive(Debug)]
pub(super) struct ErrorBuilder<'a> {
    pub(super) provider: &'a str,
    pub(super) model: &'a str,
    /// Host and port; the rest of the address may hold a key.
    pub(super) host: &'a str,
    pub(super) secrets: Vec<SecretString>,
    pub(super) classifier: &'a Classifier,
    pub(super) timeouts: RequestTimeouts,
}

impl ErrorBuilder<'_> {
    pub(super) fn error(&self, reason: FailureReason, message: &str) -> ProviderError {
        ProviderError::new(reason, self.provider, self.model, self.redact(message))
    }

    /// The error of a refusal, with the wait that its headers ask for.
    pub(super) fn refusal(
        &self,
        refusal: &ProviderRefusal,
        headers: Option<&HeaderMap>,
    ) -> ProviderError {
        let message = match (refusal.message.trim(), refusal.status) {
            ("", Some(status)) => format!("refused with status {status} and without a message"),
            ("", None) => "the provider ended the answer with an error without a message".into(),
            (message, _) => message.to_owned(),
        };
        let wait_ms = headers.and_then(|headers| retry_after_ms(headers, SystemTime::now()));
        let shown = ProviderRefusal {
            status: refusal.status,
            code: self.redact(&refusal.code),
            message: self.redact(&message),
        };
        let classification = self.classifier.classify_for(self.provider, refusal);
        let wait = wait_ms.map(Duration::from_millis);
        classification.into_error(self.provider, self.model, shown, wait)
    }

    pub(super) fn unreachable(&self, error: &reqwest::Error) -> ProviderError {
        let causes = cause_chain(error);
        let host = self.host;
        if causes.to_lowercase().contains("certificate") {
            let advice = "check the certificate of the server or of the proxy";
            let message = format!("cannot connect to {host}: {causes}; {advice}");
            return self.error(FailureReason::TlsCertificate, &message);
        }
        // Without advice: that of the reason follows where the error is shown.
        let message = if error.is_connect() {
            format!("cannot connect to {host}: {causes}")
        } else {
            format!("{host} closed the connection without an answer: {causes}")
        };
        self.error(FailureReason::Connection, &message)
    }

    /// The error of an address that has web pages and no API.
    pub(super) fn no_api(&self, status: u16, path: &str) -> ProviderError {
        let message = format!(
            "{} has no API at {path}: status {status} with an HTML page; check base_url of [providers.{}]",
            self.host, self.provider
        );
        ProviderError { status: Some(status), ..self.error(FailureReason::Format, &message) }
    }

    /// The error of a body that stopped.
    pub(super) fn read_error(&self, error: &StreamReadError) -> ProviderError {
        match error {
            StreamReadError::IdleTimeout => {
                let message = format!(
                    "no data for {} ms in the middle of the answer (idle_timeout_ms); raise it if the model needs longer",
                    self.timeouts.idle.as_millis()
                );
                self.error(FailureReason::Timeout, &message)
            }
            StreamReadError::ConnectionLost(error) => {
                let message = format!("the connection was lost: {}", cause_chain(error));
                self.error(FailureReason::StreamCut, &message)
            }
            StreamReadError::InvalidFrame(error) => {
                self.error(FailureReason::InvalidResponse, &error.to_string())
            }
            StreamReadError::TooLarge(max_bytes) => {
                let limit = group_thousands(*max_bytes as u64);
                let message = format!("the answer exceeds {limit} bytes and was ended");
                self.error(FailureReason::InvalidResponse, &message)
            }
        }
    }

    pub(super) fn first_byte_timeout(&self) -> ProviderError {
        let message = format!(
            "no answer within {} ms (first_byte_timeout_ms); raise it if the model needs longer",
            self.timeouts.first_byte.as_millis()
        );
        self.error(FailureReason::Timeout, &message)
    }

    /// The error of a stream that the dialect could not decode.
    pub(super) fn stream_error(&self, error: &StreamError) -> ProviderError {
        match error {
            StreamError::Refused(refusal) => self.refusal(refusal, None),
            StreamError::InvalidFrame { reason } => {
                self.error(FailureReason::InvalidResponse, &excerpt(reason))
            }
            StreamError::Cut => {
                self.error(FailureReason::StreamCut, "the answer ended without its last event")
            }
        }
    }

    /// The error of a response that does not match the dialect.
    pub(super) fn invalid_response(&self, text: &str) -> ProviderError {
        let message = format!(
            "the response does not match this dialect: {}; check dialect and base_url",
            excerpt(&self.redact(text))
        );
        self.error(FailureReason::InvalidResponse, &message)
    }

    /// The error of a request that the provider's rules forbid to answer.
    pub(super) fn refused_answer(&self, answer: &ModelResponse) -> ProviderError {
        let reason = &answer.raw_stop_reason;
        let message = format!(
            "the provider refused to answer (stop reason `{reason}`); change the message, start a new session, or use \
             another model"
        );
        // This reason is not retried: the same request would be refused, and charged, again.
        ProviderError { code: reason.clone(), ..self.error(FailureReason::Format, &message) }
    }

    pub(super) fn empty_response(&self, answer: &ModelResponse) -> ProviderError {
        let cause = match answer.raw_stop_reason.as_str() {
            "" => String::new(),
            reason => format!(" (stop reason `{reason}`)"),
        };
        let prompt_tokens = answer.usage.prompt_tokens();
        ProviderError {
            observed_tokens: (prompt_tokens > 0).then_some(prompt_tokens),
            ..self.error(FailureReason::EmptyResponse, &format!("the answer is empty{cause}"))
        }
    }

    /// A text without secrets: servers and proxies repeat keys in their messages.
    fn redact(&self, text: &str) -> String {
        let secrets = self.secrets.iter().map(ExposeSecret::expose_secret);
        let is_long = |secret: &&str| secret.chars().count() >= SECRET_MIN_CHARS;
        secrets.filter(is_long).fold(text.to_owned(), |text, secret| text.replace(secret, "[key]"))
    }
}

/// The causes of an error, innermost last.
fn cause_chain(error: &reqwest::Error) -> String {
    let mut causes: Vec<String> = Vec::new();
    // The error itself is left out, since it names the whole address, which may hold a key.
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = error.to_string();
        if causes.last() != Some(&text) {
            causes.push(text);
        }
        cause = error.source();
    }
    if causes.is_empty() { "the request failed".to_owned() } else { causes.join(": ") }
}
