//! The answer that a request asks for, lowered to what its window leaves beside the prompt.

use axum::body::Bytes;
use ctxhost_agent::TurnError;
use ctxhost_context::Context;

use super::core::Proxy;
use super::ingest::IngestedRequest;
use super::request::ProxyRequest;
use super::shaping::{ParsedRequest, ShapedRequest};

/// The share of a prompt's upper estimate, as a divisor, that is left free beside it.
const MARGIN_DIVISOR: u64 = 32;

impl Proxy {
    /// Shapes a request and lowers the answer that it asks for.
    pub(super) async fn shape_and_lower(
        &self,
        heard: &mut IngestedRequest,
        came: ParsedRequest<'_>,
        journey: &ProxyRequest,
    ) -> Result<ShapedRequest, TurnError> {
        let sent = self.shape(heard, came, &journey.target).await?;
        Ok(self.lower_output(sent, came, heard.guard.context(), journey))
    }

    /// Lowers the answer that a request asks for to what is left in its window.
    pub(super) fn lower_output(
        &self,
        sent: ShapedRequest,
        came: ParsedRequest<'_>,
        context: &Context,
        journey: &ProxyRequest,
    ) -> ShapedRequest {
        let Some(asked_tokens) = came.body.max_output_tokens else { return sent };
        if !self.settings.lower_max_tokens || journey.window.is_prompt_only {
            return sent;
        }
        let left_tokens = self.left_tokens(asked_tokens, sent.tokens, context, journey);
        let most_tokens = left_tokens.min(journey.output_cap_tokens.unwrap_or(u64::MAX));
        let limit_tokens = most_tokens.max(self.settings.min_output_tokens);
        if limit_tokens >= asked_tokens {
            return sent;
        }
        let lowered = std::str::from_utf8(&sent.body)
            .ok()
            .and_then(|json| came.inbound.lower_output_limit(json, limit_tokens));
        let Some(lowered) = lowered else { return sent };
        tracing::debug!(
            session = context.id(),
            asked_tokens,
            max_tokens = lowered.max_tokens,
            "the answer that a request asks for was lowered"
        );
        let mut truth = sent.report;
        truth.max_tokens = Some(lowered.max_tokens);
        ShapedRequest { report: truth, lowered: Some(Bytes::from(lowered.body)), ..sent }
    }

    /// What the window leaves for the answer beside a prompt with `said_tokens` of the conversation, in
    /// provider tokens.
    ///
    /// By the upper estimate and a margin, so that strict providers accept it: one prompt in ten is larger than
    /// that estimate, if only by a few tokens, and a refusal costs an upload. Where the reserve had to be used
    /// for the prompt, that leaves next to nothing; then the middle estimate counts, up to half of the reserve.
    fn left_tokens(
        &self,
        asked_tokens: u64,
        said_tokens: u64,
        context: &Context,
        journey: &ProxyRequest,
    ) -> u64 {
        let window_tokens = journey.window.tokens;
        let prompt_tokens = said_tokens.saturating_add(journey.target.overhead_tokens);
        let upper_tokens = context.upper_tokens(prompt_tokens);
        let margin_tokens = upper_tokens / MARGIN_DIVISOR;
        let left_tokens = window_tokens.saturating_sub(upper_tokens.saturating_add(margin_tokens));
        let half_tokens = self.reserve_tokens(asked_tokens, window_tokens) / 2;
        if left_tokens >= half_tokens {
            return left_tokens;
        }
        let expected_tokens = context.expected_tokens(prompt_tokens);
        window_tokens.saturating_sub(expected_tokens).min(half_tokens)
    }

    /// What is held free for an answer of `asked_tokens`, in provider tokens.
    pub(super) fn reserve_tokens(&self, asked_tokens: u64, window_tokens: u64) -> u64 {
        asked_tokens.min((window_tokens as f64 * self.settings.reserve_max_share) as u64)
    }
}
