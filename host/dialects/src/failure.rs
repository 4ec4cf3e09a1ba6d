//! Why a model gave no answer: one reason, by which the runtime decides what to do.
//!
//! ```text
//!  body ─► refusal_of ─► Refusal ─► Classifier (phrases as data) ─► Classified { reason, counts }
//!  usage ────────────────────────► silent_overflow: what was accepted and should not have been
//! ```

mod classifier;
pub mod compaction;
mod counts;
mod overflow_in_usage;
mod phrases;
mod refusal;

#[cfg(test)]
mod tests;

pub use classifier::{Classification, Classifier, ExtraPhrase, PhraseError};
pub use overflow_in_usage::{SilentOverflow, detect_silent_overflow, is_cut_short};
pub use refusal::{is_refusal, parse_refusal};

use serde::{Deserialize, Serialize};

/// Why a model gave no answer (openclaw-facts 4.15).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FailureReason {
    /// The request is larger than the model's window. Compaction helps, another model does not.
    ContextOverflow,
    /// The history is not what the dialect demands. Repair helps, compaction does not.
    MalformedHistory,
    /// More output was asked for than the model gives. A smaller limit helps.
    OutputLimit,
    /// The window is too small to work in.
    WindowTooSmall,
    /// No money, no plan, no credit.
    Billing,
    /// The key is missing or wrong.
    Auth,
    /// The key may not do this, for good.
    AuthPermanent,
    /// Too many requests or tokens in a while.
    RateLimit,
    /// The provider has too much to do.
    Overloaded,
    /// The provider failed.
    ServerError,
    /// It took too long.
    Timeout,
    /// Nobody answered at the address.
    Connection,
    /// The certificate is wrong.
    TlsCertificate,
    /// There is no such model.
    ModelNotFound,
    /// What the request refers to is no longer there.
    SessionExpired,
    /// The request is wrong in another way.
    Format,
    /// An answer with nothing in it.
    EmptyResponse,
    /// The stream broke off.
    StreamCut,
    /// An answer that is none: not the dialect's JSON.
    #[serde(rename = "nonsense")]
    InvalidResponse,
    /// Whoever asked gave up.
    Cancelled,
    /// Anything else.
    Unclassified,
}

impl FailureReason {
    /// It in a few words.
    pub fn describe(self) -> &'static str {
        match self {
            FailureReason::ContextOverflow => "the request is larger than the window",
            FailureReason::MalformedHistory => "the history is not accepted",
            FailureReason::OutputLimit => "more output was asked for than it gives",
            FailureReason::WindowTooSmall => "the window is too small to work in",
            FailureReason::Billing => "no credit",
            FailureReason::Auth => "the key is not accepted",
            FailureReason::AuthPermanent => "the key may not do this",
            FailureReason::RateLimit => "rate limit",
            FailureReason::Overloaded => "overloaded",
            FailureReason::ServerError => "the provider failed",
            FailureReason::Timeout => "no answer in time",
            FailureReason::Connection => "nobody answers at its address",
            FailureReason::TlsCertificate => "its certificate is not trusted",
            FailureReason::ModelNotFound => "no such model",
            FailureReason::SessionExpired => "what the request refers to is gone",
            FailureReason::Format => "the request is not accepted",
            FailureReason::EmptyResponse => "an empty answer",
            FailureReason::StreamCut => "the answer broke off",
            FailureReason::InvalidResponse => "an answer that cannot be read",
            FailureReason::Cancelled => "cancelled",
            FailureReason::Unclassified => "an unknown error",
        }
    }
}

/// What a provider said when it refused.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProviderRefusal {
    /// The HTTP status; `None` for an error inside a stream.
    pub status: Option<u16>,
    /// The provider's code or type, such as `context_length_exceeded`.
    pub code: String,
    /// The innermost message.
    pub message: String,
}

/// A request that got no answer.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{provider}/{model}: {message}")]
pub struct ProviderError {
    /// Why.
    pub reason: FailureReason,
    /// The provider, as the config names it.
    pub provider: String,
    /// The model.
    pub model: String,
    /// The HTTP status, where there was one.
    pub status: Option<u16>,
    /// The provider's code.
    pub code: String,
    /// What happened and what to do next.
    pub message: String,
    /// How long the provider asked to wait, in milliseconds.
    pub retry_after_ms: Option<u64>,
    /// The size of the request as the provider counted it, with the answer where that was counted in.
    pub observed_tokens: Option<u64>,
    /// The prompt alone as the provider counted it.
    pub prompt_tokens: Option<u64>,
    /// The limit that the provider named.
    pub limit_tokens: Option<u64>,
    /// Whether the limit is what this key may use in a minute, and not the model's window.
    pub is_ceiling: bool,
    /// Whether parts of an answer had come already: such a request is not repeated by the wire.
    pub has_started: bool,
}

/// The longest text of a provider that is shown where nothing else is known of it, in characters.
const EXCERPT_MAX_CHARS: usize = 300;

/// Share of a limit from which a request may be too large for it though the provider says no numbers.
/// Our own count errs by half at most, and a config may take a window for twice as large as it is: what
/// is below was refused for another reason.
const PLAUSIBLE_SHARE: f64 = 0.25;

/// Share of the room beside a prompt that an answer may take: some providers want it smaller than the room.
const ANSWER_BUDGET_SHARE: f64 = 0.95;

/// Share of a limit for a minute's tokens that a request for it may take, with its answer.
const CEILING_SHARE: f64 = 0.9;

/// Share of such a limit that the answer may take.
const CEILING_ANSWER_SHARE: f64 = 0.25;

/// What a request may take, in provider tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestLimit {
    /// Its prompt.
    pub prompt_tokens: u64,
    /// Its answer.
    pub answer_tokens: u64,
}

impl ProviderError {
    /// Whether its code says that the request is too large, and not its words alone: words may be quoted
    /// from what was asked.
    pub fn has_overflow_code(&self) -> bool {
        let code = self.code.trim();
        let is_one_of = |codes: &[&str]| codes.iter().any(|one| code.eq_ignore_ascii_case(one));
        is_one_of(phrases::OVERFLOW_CODES) && !is_one_of(phrases::VAGUE_OVERFLOW_CODES)
    }

    /// Whether it shows that the request is too large, by a code, by its status or by both numbers. A
    /// client may be told so; anything less is said in the provider's own words.
    pub fn has_overflow_evidence(&self) -> bool {
        let is_over = self.observed_tokens.zip(self.limit_tokens).is_some_and(|(o, l)| o > l);
        self.has_overflow_code() || self.status == Some(413) || is_over || self.states_excess()
    }

    /// Whether it says by how many tokens the request is too large, as Ollama does.
    fn states_excess(&self) -> bool {
        let message = self.message.to_ascii_lowercase();
        message.split("exceed").skip(1).any(|rest| {
            let excess = rest.split_once(" by ").map_or("", |(_, excess)| excess);
            let words = excess.trim_start_matches(|c: char| c.is_ascii_digit() || c == ',');
            words.len() < excess.len() && words.starts_with(" token")
        })
    }

    /// Whether the request can have been too large. `own_tokens` is what the host counts of it and
    /// `window_tokens` is the window, both in provider tokens; a window of 0 is an unknown one.
    pub fn is_plausible_overflow(&self, own_tokens: u64, window_tokens: u64) -> bool {
        let window_tokens = Some(window_tokens).filter(|tokens| *tokens > 0);
        let limit_tokens = match (self.limit_tokens, window_tokens) {
            (Some(limit), Some(window)) => limit.min(window),
            (Some(tokens), None) | (None, Some(tokens)) => tokens,
            (None, None) => return true,
        };
        self.has_overflow_evidence() || own_tokens as f64 >= limit_tokens as f64 * PLAUSIBLE_SHARE
    }

    /// What is left of the limit for an answer, in provider tokens, where the provider counted the prompt
    /// alone and it fits: a shorter answer helps then, and nothing need be left out.
    pub fn answer_budget_tokens(&self) -> Option<u64> {
        let room = self.limit_tokens?.checked_sub(self.prompt_tokens?)?;
        Some(room).filter(|tokens| *tokens > 0)
    }

    /// The longest answer to ask for in that room.
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
    /// Under a ceiling of `limit_tokens` in a minute, for a request that asks for an answer of `asked_tokens`.
    pub fn from_ceiling(limit_tokens: u64, asked_tokens: u64) -> RequestLimit {
        let most_tokens = (limit_tokens as f64 * CEILING_ANSWER_SHARE) as u64;
        let answer_tokens = most_tokens.min(asked_tokens).max(1);
        let all_tokens = (limit_tokens as f64 * CEILING_SHARE) as u64;
        RequestLimit { prompt_tokens: all_tokens.saturating_sub(answer_tokens), answer_tokens }
    }
}
