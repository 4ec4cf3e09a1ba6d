//! Lowers the output limit of a request to what its window leaves beside the prompt.

use axum::body::Bytes;
use ctxhost_agent::TurnError;
use ctxhost_context::Context;

use super::core::Proxy;
use super::ingest::IngestedRequest;
use super::request::ProxyRequest;
use super::shaping::{ParsedRequest, ShapedRequest};

/// The margin beside a prompt's upper estimate, as a divisor of it.
const MARGIN_DIVISOR: u64 = 32;

impl Proxy {
    /// Shapes a request and lowers its output limit.
    pub(super) async fn shape_and_lower(
        &self,
        ingested: &mut IngestedRequest,
        parsed: ParsedRequest<'_>,
        proxy_request: &ProxyRequest,
    ) -> Result<ShapedRequest, TurnError> {
        let shaped = self.shape(ingested, parsed, proxy_request).await?;
        Ok(self.lower_output(shaped, parsed, ingested.guard.context(), proxy_request))
    }

    fn lower_output(
        &self,
        shaped: ShapedRequest,
        parsed: ParsedRequest<'_>,
        context: &Context,
        proxy_request: &ProxyRequest,
    ) -> ShapedRequest {
        let Some(requested_tokens) = parsed.body.max_output_tokens else { return shaped };
        if !self.settings.lower_max_tokens || proxy_request.window.is_prompt_only {
            return shaped;
        }
        let left_tokens = self.left_tokens(requested_tokens, shaped.tokens, context, proxy_request);
        let most_tokens = left_tokens.min(proxy_request.output_cap_tokens.unwrap_or(u64::MAX));
        let limit_tokens = most_tokens.max(self.settings.min_output_tokens);
        if limit_tokens >= requested_tokens {
            return shaped;
        }
        let lowered = std::str::from_utf8(&shaped.body)
            .ok()
            .and_then(|json| parsed.inbound.lower_output_limit(json, limit_tokens));
        let Some(lowered) = lowered else { return shaped };
        tracing::debug!(
            session = context.id(),
            requested_tokens,
            max_tokens = lowered.max_tokens,
            "output limit lowered"
        );
        let mut report = shaped.report;
        report.max_tokens = Some(lowered.max_tokens);
        ShapedRequest { report, lowered: Some(Bytes::from(lowered.body)), ..shaped }
    }

    /// What the window leaves for the output beside a prompt with `conversation_tokens`, in provider tokens.
    fn left_tokens(
        &self,
        requested_tokens: u64,
        conversation_tokens: u64,
        context: &Context,
        proxy_request: &ProxyRequest,
    ) -> u64 {
        let window_tokens = proxy_request.window.tokens;
        let prompt_tokens =
            conversation_tokens.saturating_add(proxy_request.target.overhead_tokens);
        // Strict providers reject prompt + output above the window, and a rejection costs an upload. One prompt in ten is
        // larger than the upper estimate, by a few tokens: hence the margin.
        let upper_tokens = context.upper_tokens(prompt_tokens);
        let margin_tokens = upper_tokens / MARGIN_DIVISOR;
        let left_tokens = window_tokens.saturating_sub(upper_tokens.saturating_add(margin_tokens));
        let half_tokens = self.reserve_tokens(requested_tokens, window_tokens) / 2;
        if left_tokens >= half_tokens {
            return left_tokens;
        }
        // The prompt has used the reserve, and the upper estimate leaves next to nothing: use the middle one, for at most
        // half of the reserve.
        let expected_tokens = context.expected_tokens(prompt_tokens);
        window_tokens.saturating_sub(expected_tokens).min(half_tokens)
    }

    /// The output reserve for a request of `requested_tokens`, in provider tokens.
    pub(super) fn reserve_tokens(&self, requested_tokens: u64, window_tokens: u64) -> u64 {
        requested_tokens.min((window_tokens as f64 * self.settings.reserve_max_share) as u64)
    }
}
