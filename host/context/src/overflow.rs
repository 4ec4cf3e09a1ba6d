//! Shrinks a request that its provider refused as too large.
//!
//! A shorter answer comes before a shorter conversation, since it drops nothing. At a limit of bytes, images and files come
//! before texts: folding a text that fits would lose it for nothing.

use ctxhost_engine_api::Trigger;

use crate::accounting::LearnedWindow;
use crate::context::Context;
use crate::sent_request::SentRequest;
use crate::target::Target;
use ctxhost_dialects::ProviderError;
use ctxhost_dialects::failure::RequestLimit;
use ctxhost_invariants as invariants;

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
    /// Whether the next request is smaller. Not where the bytes that the provider refused are neither those of images and files
    /// nor, most of them, those of the conversation's texts.
    pub is_smaller: bool,
}

/// A refused request and its size, in provider tokens.
struct RefusedRequest<'a> {
    failure: &'a ProviderError,
    sent: &'a SentRequest,
    expected_tokens: u64,
    /// An upper bound of the size; one request in ten exceeds it.
    upper_tokens: u64,
    /// The window of its model, including what the refusal states.
    window_tokens: u64,
}

impl Context {
    /// Learns from the refusal of a request as too large and shrinks `target`: the requested answer if that is enough,
    /// else the conversation; at a limit of bytes its images and files first.
    pub fn overflow(
        &mut self,
        target: &mut Target,
        sent: &SentRequest,
        failure: &ProviderError,
    ) -> Overflow {
        self.set_target(target);
        let expected_tokens = self.expected_size(&sent.size);
        let upper_tokens = self.accounting.upper_bound(self.accounting.count(&sent.size));
        let counted = prompt_only(failure, expected_tokens, target.output_tokens);
        let refused_tokens = refused_tokens(&counted, expected_tokens, target);
        let is_of_text = !failure.is_byte_limit || self.is_mostly_text(sent);
        let learned = is_of_text
            .then(|| self.learn_overflow(target, sent, &counted, refused_tokens))
            .flatten();
        let overflow =
            Overflow { max_output_tokens: None, learned, refused_tokens, is_smaller: true };
        target.attachment_cut =
            if failure.is_byte_limit { self.next_attachment_cut(target) } else { None };
        if target.attachment_cut.is_some() {
            target.trigger = Trigger::Overflow;
            return overflow;
        }
        if !is_of_text {
            return Overflow { is_smaller: false, ..overflow };
        }
        let window_tokens = self.window_tokens(target);
        let refusal =
            RefusedRequest { failure, sent, expected_tokens, upper_tokens, window_tokens };
        Overflow { max_output_tokens: shrink_target(target, &refusal), ..overflow }
    }

    /// Whether at least half of the bytes of a request are the conversation's texts; also if its bytes are not known.
    fn is_mostly_text(&self, sent: &SentRequest) -> bool {
        let is_half = |bytes: u64| invariants::text_bytes(&self.view()) >= bytes / 2;
        sent.bytes.is_none_or(is_half)
    }

    /// Learns the size and the limit that a refusal states. Without a limit, the estimated refused size bounds this
    /// session.
    fn learn_overflow(
        &mut self,
        target: &Target,
        sent: &SentRequest,
        failure: &ProviderError,
        refused_tokens: u64,
    ) -> Option<LearnedWindow> {
        if let Some(prompt_tokens) = failure.prompt_tokens {
            self.accounting.record_count(&target.model, &sent.size, prompt_tokens);
        }
        // A limit per minute does not depend on the window, and neither does one of bytes where images and files take most of them.
        let is_of_files = failure.is_byte_limit && invariants::has_attachments(&self.view());
        if failure.is_ceiling || is_of_files {
            return None;
        }
        match failure.limit_tokens.filter(|tokens| *tokens > 0) {
            Some(tokens) => self.learn_window(target, tokens, true),
            None => self.learn_window(target, refused_tokens, false),
        }
    }
}

/// Shrinks a target; returns the new maximum length of the answer if it was shortened.
fn shrink_target(target: &mut Target, refusal: &RefusedRequest<'_>) -> Option<u64> {
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
fn refused_tokens(failure: &ProviderError, expected_tokens: u64, target: &Target) -> u64 {
    let prompt_tokens = failure.observed_tokens.unwrap_or(expected_tokens);
    // Less one: this size was refused, so the largest that may fit is below it.
    prompt_tokens.saturating_add(target.output_tokens).saturating_sub(1)
}

/// The refusal with the size of the prompt alone. Some providers count prompt and answer together; a factor learned from
/// the sum would make every later request far too small.
fn prompt_only(failure: &ProviderError, expected_tokens: u64, output_tokens: u64) -> ProviderError {
    let prompt_of = |observed_tokens: u64| {
        let rest_tokens = observed_tokens.saturating_sub(output_tokens);
        // Whichever of both is nearer to the expected prompt.
        let is_nearer =
            rest_tokens.abs_diff(expected_tokens) < observed_tokens.abs_diff(expected_tokens);
        if is_nearer && rest_tokens > 0 { rest_tokens } else { observed_tokens }
    };
    ProviderError { observed_tokens: failure.observed_tokens.map(prompt_of), ..failure.clone() }
}
