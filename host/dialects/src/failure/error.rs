//! The error of a request without an answer.

use super::phrases::{OVERFLOW_CODES, VAGUE_OVERFLOW_CODES};
use super::reason::FailureReason;

/// A request without an answer.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{provider}/{model}: {message}")]
pub struct ProviderError {
    /// The classified reason.
    pub reason: FailureReason,
    /// The provider's name in the config.
    pub provider: String,
    /// The model.
    pub model: String,
    /// The HTTP status, if there was a response.
    pub status: Option<u16>,
    /// The provider's code.
    pub code: String,
    /// What happened and what to do next.
    pub message: String,
    /// The wait that the provider asked for, in milliseconds.
    pub retry_after_ms: Option<u64>,
    /// The size of the request by the provider's count, including the answer if that was counted.
    pub observed_tokens: Option<u64>,
    /// The size of the prompt alone by the provider's count.
    pub prompt_tokens: Option<u64>,
    /// The limit that the provider named.
    pub limit_tokens: Option<u64>,
    /// Whether the limit is that of the key's tokens per minute, and not the model's window.
    pub is_ceiling: bool,
    /// Whether the limit is one of bytes, which says nothing about tokens.
    pub is_byte_limit: bool,
    /// Whether the message says in a provider's known words that the request is too long.
    pub has_clear_overflow_words: bool,
    /// Whether parts of an answer were received. Such a request is not retried.
    pub has_started: bool,
}

/// Longest excerpt of a provider's text in a message, in characters.
const EXCERPT_MAX_CHARS: usize = 300;

/// Smallest share of a limit that a refused request without numbers must have for an overflow to be
/// plausible. The host's estimate errs by half at most, and a config may state a window twice too
/// large; a smaller request was refused for another reason.
const PLAUSIBLE_SHARE: f64 = 0.25;

/// Smallest request, in provider tokens, for which clear words without numbers suffice, whatever window the config
/// states. Local servers load models with 4,096 tokens, and the host's estimate errs by half at most.
const CLEAR_WORDS_MIN_TOKENS: u64 = 6_144;

/// Share of the remaining budget that an answer may take: some providers require it to be smaller.
const ANSWER_BUDGET_SHARE: f64 = 0.95;

/// Share of a tokens-per-minute limit that one request may take, including its answer.
const CEILING_SHARE: f64 = 0.9;

/// Share of such a limit that the answer may take.
const CEILING_ANSWER_SHARE: f64 = 0.25;

/// What a request may take, in provider tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestLimit {
    /// The prompt.
    pub prompt_tokens: u64,
    /// The answer.
    pub answer_tokens: u64,
}

impl ProviderError {
    /// An error without status, code and numbers.
    pub fn new(
        reason: FailureReason,
        provider: &str,
        model: &str,
        message: String,
    ) -> ProviderError {
        ProviderError {
            reason,
            provider: provider.to_owned(),
            model: model.to_owned(),
            status: None,
            code: String::new(),
            message,
            retry_after_ms: None,
            observed_tokens: None,
            prompt_tokens: None,
            limit_tokens: None,
            is_ceiling: false,
            is_byte_limit: false,
            has_clear_overflow_words: false,
            has_started: false,
        }
    }

    /// The error in a log. The provider's text may quote prompts and keys, so it is a part of the line only with
    /// `has_content`; else the line has status and reason.
    pub fn log_text(&self, has_content: bool) -> String {
        if has_content {
            return self.to_string();
        }
        let status = self.status.map_or_else(String::new, |status| format!("status {status}, "));
        format!("{}/{}: {status}{}", self.provider, self.model, self.reason.describe())
    }

    /// Whether the code says overflow. The message alone proves less, since it may quote the
    /// request.
    pub fn has_overflow_code(&self) -> bool {
        let code = self.code.trim();
        let is_one_of = |codes: &[&str]| codes.iter().any(|one| code.eq_ignore_ascii_case(one));
        is_one_of(OVERFLOW_CODES) && !is_one_of(VAGUE_OVERFLOW_CODES)
    }

    /// Whether code, status or numbers prove an overflow. Only then may clients see it in the
    /// host's words.
    pub fn has_overflow_evidence(&self) -> bool {
        let is_over = self.observed_tokens.zip(self.limit_tokens).is_some_and(|(o, l)| o > l);
        self.has_overflow_code() || self.status == Some(413) || is_over || self.states_excess()
    }

    /// Whether the message states the excess in tokens, as Ollama does.
    fn states_excess(&self) -> bool {
        let message = self.message.to_ascii_lowercase();
        message.split("exceed").skip(1).any(|rest| {
            // "... exceeds the context length by 512 tokens".
            let excess = rest.split_once(" by ").map_or("", |(_, excess)| excess);
            let words = excess.trim_start_matches(|c: char| c.is_ascii_digit() || c == ',');
            words.len() < excess.len() && words.starts_with(" token")
        })
    }

    /// Whether an overflow is plausible for a request of `own_tokens` (the host's count) and a
    /// window of `window_tokens` (0 if unknown), both in provider tokens.
    pub fn is_plausible_overflow(&self, own_tokens: u64, window_tokens: u64) -> bool {
        let window_tokens = Some(window_tokens).filter(|tokens| *tokens > 0);
        let limit_tokens = match (self.limit_tokens, window_tokens) {
            // The smaller one: a config may state too large a window.
            (Some(limit), Some(window)) => limit.min(window),
            (Some(tokens), None) | (None, Some(tokens)) => tokens,
            (None, None) => return true,
        };
        let share = (limit_tokens as f64 * PLAUSIBLE_SHARE).ceil() as u64;
        // A limit in the message is the provider's, and the request must be near it.
        let min_tokens = if self.has_clear_overflow_words && self.limit_tokens.is_none() {
            share.min(CLEAR_WORDS_MIN_TOKENS)
        } else {
            share
        };
        self.has_overflow_evidence() || own_tokens >= min_tokens
    }

    /// What the limit leaves for an answer, in provider tokens, if the prompt alone fits. A shorter
    /// answer suffices then, and no message has to be dropped.
    pub fn answer_budget_tokens(&self) -> Option<u64> {
        let room = self.limit_tokens?.checked_sub(self.prompt_tokens?)?;
        Some(room).filter(|tokens| *tokens > 0)
    }

    /// The largest answer to request within that budget.
    pub fn max_answer_tokens(&self) -> Option<u64> {
        Some((self.answer_budget_tokens()? as f64 * ANSWER_BUDGET_SHARE) as u64)
    }
}

/// The start of a text, on one line.
pub fn excerpt(text: &str) -> String {
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let mut shown: String = words.chars().take(EXCERPT_MAX_CHARS).collect();
    if shown.len() < words.len() {
        shown.push('…');
    }
    shown
}

impl RequestLimit {
    /// The limits of a request under a tokens-per-minute limit, with an answer of at most
    /// `asked_tokens`.
    pub fn from_ceiling(limit_tokens: u64, asked_tokens: u64) -> RequestLimit {
        let most_tokens = (limit_tokens as f64 * CEILING_ANSWER_SHARE) as u64;
        let answer_tokens = most_tokens.min(asked_tokens).max(1);
        let all_tokens = (limit_tokens as f64 * CEILING_SHARE) as u64;
        RequestLimit { prompt_tokens: all_tokens.saturating_sub(answer_tokens), answer_tokens }
    }
}
