//! How a request that its provider refused as too large is made smaller. Pure: numbers in, numbers out.
//!
//! A shorter answer comes before a shorter conversation: nothing is left out for it.

use ctxhost_engine_api::Trigger;

use crate::accounting::LearnedWindow;
use crate::sent_request::SentRequest;
use crate::target::Target;
use ctxhost_dialects::ProviderError;
use ctxhost_dialects::failure::RequestLimit;

/// Share of a conversation that was too large which the next request may have. Each try is smaller than the one before,
/// whatever anybody counted, so the tries end.
const SMALLER_SHARE: f64 = 0.85;

/// What was made of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overflow {
    /// The longest answer to ask for from now on, in provider tokens, where the one asked for was too long.
    pub max_output_tokens: Option<u64>,
    /// The window that was learned for this session.
    pub learned: Option<LearnedWindow>,
    /// The size of the refused request, less one, in provider tokens: its prompt as its provider counted it, or
    /// as it is estimated, and the answer that shares its window.
    pub refused_tokens: u64,
}

/// A refused request and what is known of its size, in provider tokens.
pub(crate) struct RefusedRequest<'a> {
    pub(crate) failure: &'a ProviderError,
    pub(crate) sent: &'a SentRequest,
    /// What it was probably counted as.
    pub(crate) expected_tokens: u64,
    /// What it was not counted above, but for one request in ten.
    pub(crate) upper_tokens: u64,
    /// The window of its model, with what the refusal said of it.
    pub(crate) window_tokens: u64,
}

/// Makes a target smaller; answers the longest answer to ask for, where that is shortened.
pub(crate) fn shrink_target(target: &mut Target, refusal: &RefusedRequest<'_>) -> Option<u64> {
    let limit_tokens = refusal.failure.limit_tokens.filter(|tokens| *tokens > 0);
    let ceiling_tokens = limit_tokens.filter(|_| refusal.failure.is_ceiling);
    let smaller_tokens = (refusal.sent.conversation_tokens as f64 * SMALLER_SHARE) as u64;
    let (output_tokens, conversation_tokens) = match ceiling_tokens {
        Some(limit_tokens) => fit_under_ceiling(target, refusal, limit_tokens, smaller_tokens),
        None => match shorter_answer(target, refusal) {
            Some(tokens) => (Some(tokens), None),
            None => (None, Some(smaller_tokens)),
        },
    };
    target.max_tokens = target.max_tokens.into_iter().chain(conversation_tokens).min();
    target.trigger = Trigger::Overflow;
    output_tokens
}

/// The longest answer, in provider tokens, and the conversation, as entries count, that a key may send under what it
/// may use in a minute. Waiting does not help, since this one request is larger; and it is no window, so it holds
/// for this request and is not learned.
fn fit_under_ceiling(
    target: &Target,
    refusal: &RefusedRequest<'_>,
    limit_tokens: u64,
    smaller_tokens: u64,
) -> (Option<u64>, Option<u64>) {
    let limit = RequestLimit::from_ceiling(limit_tokens, target.output_tokens);
    let said_tokens = refusal.sent.conversation_tokens;
    let all_tokens = said_tokens.saturating_add(target.overhead_tokens);
    // A provider may count the answer in that was asked for, and may not.
    let observed_tokens = refusal.failure.observed_tokens.unwrap_or_default();
    let counted_tokens = observed_tokens.saturating_sub(target.output_tokens);
    let prompt_tokens = refusal.expected_tokens.max(counted_tokens).max(1);
    let fitting_tokens =
        (all_tokens as f64 * limit.prompt_tokens as f64 / prompt_tokens as f64) as u64;
    let is_shorter = limit.answer_tokens < target.output_tokens;
    let most_tokens = if is_shorter { said_tokens } else { smaller_tokens };
    let tokens = fitting_tokens.saturating_sub(target.overhead_tokens).min(most_tokens);
    (is_shorter.then_some(limit.answer_tokens), Some(tokens))
}

/// The answer with which the request fits, in provider tokens: what the provider leaves beside the prompt, or half of
/// what was asked for where the prompt alone leaves room for half of the reserve.
fn shorter_answer(target: &Target, refusal: &RefusedRequest<'_>) -> Option<u64> {
    let least_tokens = target.min_output_tokens?;
    if let Some(room_tokens) = refusal.failure.max_answer_tokens() {
        return Some(room_tokens)
            .filter(|tokens| (least_tokens..target.output_tokens).contains(tokens));
    }
    let half_tokens = target.reserve_tokens.unwrap_or_default() / 2;
    let with = |tokens: u64| refusal.upper_tokens.saturating_add(tokens);
    let is_too_long = target.output_tokens > least_tokens
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
    prompt_tokens.saturating_add(target.output_tokens).saturating_sub(1)
}

/// The refusal with the size of the prompt alone. Some providers count prompt and answer together, and a factor that was
/// learned from the sum would make every later request far too small.
pub(crate) fn prompt_only(
    failure: &ProviderError,
    expected_tokens: u64,
    output_tokens: u64,
) -> ProviderError {
    let prompt_of = |observed_tokens: u64| {
        let rest_tokens = observed_tokens.saturating_sub(output_tokens);
        let is_nearer =
            rest_tokens.abs_diff(expected_tokens) < observed_tokens.abs_diff(expected_tokens);
        if is_nearer && rest_tokens > 0 { rest_tokens } else { observed_tokens }
    };
    ProviderError { observed_tokens: failure.observed_tokens.map(prompt_of), ..failure.clone() }
}
