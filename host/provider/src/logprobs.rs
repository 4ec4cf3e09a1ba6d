//! Log-probabilities of a given text, from a completions endpoint that echoes its prompt.
//!
//! The request is that of OpenAI's `/v1/completions` with `echo` and `logprobs`, which vLLM and other
//! servers accept. Only tokens that begin inside of the scored text count.

use std::sync::atomic::{AtomicU64, Ordering};

use ctxhost_dialects::DialectName;
use ctxhost_dialects::failure::{FailureReason, ProviderError};
use ctxhost_dialects::openai_chat::{Compat, OpenAiChat};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::connect::resolve_key;
use crate::http::HttpClient;
use crate::settings::{ConnectError, ProviderSettings};

/// The path below the base URL.
const PATH: &str = "/v1/completions";
/// Retries of an endpoint that fails: a measurement can be repeated, so it does not wait for minutes.
const RETRIES: u64 = 2;
/// The first pause between attempts, in milliseconds.
const RETRY_PAUSE_MS: u64 = 250;

/// A model that computes log-probabilities.
#[derive(Debug)]
pub struct LogprobClient {
    http: HttpClient,
    model: String,
    /// Tokens to generate: 0, or 1 where the server refuses 0.
    max_tokens: AtomicU64,
}

/// The log-probability of a text.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct TextScore {
    /// Tokens of the text, as the model splits it.
    pub tokens: u64,
    /// The negative log-probability of all of them, in nats.
    pub nats: f64,
}

/// Why a text has no score.
#[derive(Debug, thiserror::Error)]
pub enum LogprobError {
    /// The prompt is larger than the model's window.
    #[error("the prompt is larger than the window of the model: {0}")]
    TooLong(Box<ProviderError>),
    /// The endpoint failed.
    #[error(transparent)]
    Provider(Box<ProviderError>),
    /// The answer lacks what was asked for.
    #[error(
        "the answer has no {0}; the endpoint must support echo and logprobs of the prompt, as /v1/completions of OpenAI and vLLM do"
    )]
    Missing(&'static str),
}

/// The log-probabilities of an answer. Fields are optional, since servers leave them out.
#[derive(Debug, Default, Deserialize)]
struct EchoedTokens {
    tokens: Option<Vec<String>>,
    /// The first token has none.
    token_logprobs: Option<Vec<Option<f64>>>,
    /// In characters.
    text_offset: Option<Vec<usize>>,
}

impl LogprobClient {
    /// A client of an endpoint: a base URL, with or without `/v1` or `/v1/completions`.
    ///
    /// # Errors
    ///
    /// [`ConnectError`] for an invalid address or a missing key.
    pub fn new(
        url: &str,
        model: &str,
        key_variable: Option<&str>,
    ) -> Result<LogprobClient, ConnectError> {
        let base_url = url.trim_end_matches('/').trim_end_matches("/completions");
        let settings = ProviderSettings {
            base_url: Some(base_url.to_owned()),
            api_key_env: key_variable.map(str::to_owned),
            retries: RETRIES,
            retry_pause_ms: RETRY_PAUSE_MS,
            ..ProviderSettings::new(DialectName::OpenAiCompletions)
        };
        let dialect = OpenAiChat::new(Compat::new(&settings.compat, settings.base_url()));
        let key = resolve_key("lm", &settings)?;
        Ok(LogprobClient {
            http: HttpClient::new("lm", Box::new(dialect), key, &settings)?,
            model: model.to_owned(),
            max_tokens: AtomicU64::new(0),
        })
    }

    /// The score of `text` after `context`.
    ///
    /// # Errors
    ///
    /// [`LogprobError`].
    pub async fn score(&self, context: &str, text: &str) -> Result<TextScore, LogprobError> {
        let prompt = format!("{context}{text}");
        let answer = match self.ask(&prompt).await {
            // Some servers generate at least one token. It is behind the text and does not count.
            Err(error) if self.refuses_zero_tokens(&error) => {
                self.max_tokens.store(1, Ordering::Relaxed);
                self.ask(&prompt).await
            }
            answer => answer,
        };
        let answer = answer.map_err(|error| match error.reason {
            FailureReason::ContextOverflow => LogprobError::TooLong(Box::new(error)),
            _ => LogprobError::Provider(Box::new(error)),
        })?;
        let logprobs = answer.pointer("/choices/0/logprobs").cloned().unwrap_or(Value::Null);
        let echoed: Option<EchoedTokens> = serde_json::from_value(logprobs).unwrap_or_default();
        let echoed = echoed.ok_or(LogprobError::Missing("logprobs"))?;
        let from = context.chars().count();
        echoed.score(&prompt, from..from + text.chars().count())
    }

    async fn ask(&self, prompt: &str) -> Result<Value, ProviderError> {
        let body = json!({
            "model": self.model,
            "prompt": prompt,
            "echo": true,
            // One alternative: some servers take 0 for no log-probabilities at all.
            "logprobs": 1,
            "max_tokens": self.max_tokens.load(Ordering::Relaxed),
            "temperature": 0,
        });
        self.http.post_json(&self.model, PATH, &body).await
    }

    fn refuses_zero_tokens(&self, error: &ProviderError) -> bool {
        let is_refused = error.status.is_some_and(|status| [400, 422].contains(&status));
        let is_first = self.max_tokens.load(Ordering::Relaxed) == 0;
        is_first && is_refused && error.message.contains("max_tokens")
    }
}

impl EchoedTokens {
    /// The score of the tokens that begin in a range of the prompt, in characters.
    fn score(self, prompt: &str, range: std::ops::Range<usize>) -> Result<TextScore, LogprobError> {
        let tokens = self.tokens.ok_or(LogprobError::Missing("tokens"))?;
        let logprobs = self.token_logprobs.ok_or(LogprobError::Missing("token_logprobs"))?;
        let lengths: Vec<usize> = tokens.iter().map(|token| token.chars().count()).collect();
        let offsets = match self.text_offset {
            Some(offsets) if offsets.len() == tokens.len() => offsets,
            _ => lengths
                .iter()
                .scan(0, |at, length| Some(std::mem::replace(at, *at + length)))
                .collect(),
        };
        let shift = marker_chars(&tokens, &lengths, &offsets, prompt);
        let mut score = TextScore::default();
        for (at, offset) in offsets.iter().enumerate() {
            let is_inside = offset.checked_sub(shift).is_some_and(|at| range.contains(&at));
            // The first token of a prompt has no log-probability, since nothing is before it.
            let logprob = logprobs.get(at).copied().flatten().filter(|value| value.is_finite());
            if let (true, Some(logprob)) = (is_inside, logprob) {
                score.tokens += 1;
                score.nats -= logprob;
            }
        }
        if score.tokens == 0 {
            return Err(LogprobError::Missing("log-probabilities of the prompt"));
        }
        Ok(score)
    }
}

/// Characters of a first token that is not in the prompt, such as `<s>`, if offsets count it.
fn marker_chars(tokens: &[String], lengths: &[usize], offsets: &[usize], prompt: &str) -> usize {
    let (Some(token), Some(length)) = (tokens.first(), lengths.first()) else { return 0 };
    let is_counted = offsets.get(1) == Some(length);
    if is_counted && !prompt.starts_with(token.as_str()) { *length } else { 0 }
}

#[cfg(test)]
mod tests;
