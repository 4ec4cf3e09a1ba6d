//! Shrinks a request that its provider refused as too large. Pure: numbers in, numbers out.
//!
//! A shorter answer comes before a shorter conversation, since it drops nothing.

use ctxhost_engine_api::Trigger;

use crate::accounting::LearnedWindow;
use crate::sent_request::SentRequest;
use crate::target::Target;
use ctxhost_dialects::ProviderError;
use ctxhost_dialects::failure::RequestLimit;

/// The share of a refused conversation that the next request may contain. Every retry is smaller than the previous one,
/// whatever the token counts are, so the retries terminate.
const SMALLER_SHARE: f64 = 0.85;

/// The result of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overflow {
    /// The new maximum length of the answer, in provider tokens, if it was shortened.
    pub max_output_tokens: Option<u64>,
    /// The window learned for this session.
    pub learned: Option<LearnedWindow>,
    /// The size of the refused request, less one, in provider tokens: the counted or expected prompt plus the
    /// requested answer.
    pub refused_tokens: u64,
}

/// A refused request and its size, in provider tokens.
pub(crate) struct RefusedRequest<'a> {
    pub(crate) failure: &'a ProviderError,
    pub(crate) sent: &'a SentRequest,
    pub(crate) expected_tokens: u64,
    /// An upper bound of the size; one request in ten exceeds it.
    pub(crate) upper_tokens: u64,
    /// The window of its model, including what the refusal states.
    pub(crate) window_tokens: u64,
}

/// Shrinks a target; returns the new maximum length of the answer if it was shortened.
pub(crate) fn shrink_target(target: &mut Target, refusal: &RefusedRequest<'_>) -> Option<u64> {
    let limit_tokens = refusal.failure.limit_tokens.filter(|tokens| *tokens > 0);
    let ceiling_tokens = limit_tokens.filter(|_| refusal.failure.is_ceiling);
    // Of what was sent, not of the budget: the budget was too large.
    let smaller_tokens = (refusal.sent.conversation_tokens as f64 * SMALLER_SHARE) as u64;
    let (output_tokens, conversation_tokens) = match ceiling_tokens {
        Some(limit_tokens) => fit_under_ceiling(target, refusal, limit_tokens, smaller_tokens),
        // An answer has no bytes yet.
        None if refusal.failure.is_byte_limit => (None, Some(smaller_tokens)),
        None => match shorter_answer(target, refusal) {
            Some(tokens) => (Some(tokens), None),
            None => (None, Some(smaller_tokens)),
        },
    };
    target.max_tokens = target.max_tokens.into_iter().chain(conversation_tokens).min();
    target.trigger = Trigger::Overflow;
    output_tokens
}

/// The answer, in provider tokens, and the conversation, in estimated tokens, under a limit per minute that this one
/// request exceeds. Waiting does not help then. The limit is not a window, so it applies to this request only.
fn fit_under_ceiling(
    target: &Target,
    refusal: &RefusedRequest<'_>,
    limit_tokens: u64,
    smaller_tokens: u64,
) -> (Option<u64>, Option<u64>) {
    let limit = RequestLimit::from_ceiling(limit_tokens, target.output_tokens);
    let conversation_tokens = refusal.sent.conversation_tokens;
    let all_tokens = conversation_tokens.saturating_add(target.overhead_tokens);
    // Some providers include the requested answer in the count, others do not.
    let observed_tokens = refusal.failure.observed_tokens.unwrap_or_default();
    let counted_tokens = observed_tokens.saturating_sub(target.output_tokens);
    // At least 1, as a divisor.
    let prompt_tokens = refusal.expected_tokens.max(counted_tokens).max(1);
    let fitting_tokens =
        (all_tokens as f64 * limit.prompt_tokens as f64 / prompt_tokens as f64) as u64;
    let is_shorter = limit.answer_tokens < target.output_tokens;
    let max_tokens = if is_shorter { conversation_tokens } else { smaller_tokens };
    let tokens = fitting_tokens.saturating_sub(target.overhead_tokens).min(max_tokens);
    (is_shorter.then_some(limit.answer_tokens), Some(tokens))
}

/// A shorter answer with which the request fits, in provider tokens: what the provider states to be free, or half of
/// the requested length if the prompt leaves half of the reserve free.
fn shorter_answer(target: &Target, refusal: &RefusedRequest<'_>) -> Option<u64> {
    let min_tokens = target.min_output_tokens?;
    if let Some(room_tokens) = refusal.failure.max_answer_tokens() {
        return Some(room_tokens)
            .filter(|tokens| (min_tokens..target.output_tokens).contains(tokens));
    }
    let half_tokens = target.reserve_tokens.unwrap_or_default() / 2;
    let with = |tokens: u64| refusal.upper_tokens.saturating_add(tokens);
    let is_too_long = target.output_tokens > min_tokens
        && with(target.output_tokens) > refusal.window_tokens
        && with(half_tokens) <= refusal.window_tokens;
    is_too_long.then_some(target.output_tokens / 2)
}

/// The size of a refused request, in provider tokens, less one.
pub(crate) fn refused_tokens(
    failure: &ProviderError,
    expected_tokens: u64,
    target: &Target,
) -> u64 {
    let prompt_tokens = failure.observed_tokens.unwrap_or(expected_tokens);
    // Less one: this size was refused, so the largest that may fit is below it.
    prompt_tokens.saturating_add(target.output_tokens).saturating_sub(1)
}

/// The refusal with the size of the prompt alone. Some providers count prompt and answer together; a factor learned from
/// the sum would make every later request far too small.
pub(crate) fn prompt_only(
    failure: &ProviderError,
    expected_tokens: u64,
    output_tokens: u64,
) -> ProviderError {
    let prompt_of = |observed_tokens: u64| {
        let rest_tokens = observed_tokens.saturating_sub(output_tokens);
        // Whichever of both is nearer to the expected prompt.
        let is_nearer =
            rest_tokens.abs_diff(expected_tokens) < observed_tokens.abs_diff(expected_tokens);
        if is_nearer && rest_tokens > 0 { rest_tokens } else { observed_tokens }
    };
    ProviderError { observed_tokens: failure.observed_tokens.map(prompt_of), ..failure.clone() }
}
