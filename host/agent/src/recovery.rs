//! Recovers from failed model calls. Every path ends in an answer, with another model, or in a typed error.
//!
//! ```text
//!  call ─┬─ answer ────────────────────────────────────────────► done
//!        ├─ too large ─► smaller budget ─► assemble ─► fits? ─► call     (at most 3 times, each smaller)
//!        │       │                            └─ no ─► compact ─► call
//!        │       ├─ only together with the answer ─► shorter answer ─► call
//!        │       └─ implausible: far below the window, no count, no code ─► next model
//!        ├─ malformed history ─► without thinking, once ─► call
//!        ├─ output limit ─► the stated limit, else half the length ─► call
//!        ├─ timeout, window nearly full ─► compact, twice ─► call
//!        └─ other ─► next model ─► assemble ─► call
//! ```

use ctxhost_engine_api::Trigger;
use ctxhost_engine_api::transcript::tokens::group_thousands;

use crate::error::TurnError;
use crate::event::EventKind;
use crate::turn::agent_turn::{AgentTurn, RetryState};
use crate::turn::outgoing_request::OutgoingRequest;
use crate::turn::target::MIN_OUTPUT_TOKENS;
use ctxhost_dialects::failure::{SilentOverflow, detect_silent_overflow};
use ctxhost_dialects::{AssistantMessage, FailureReason, ProviderError};
use ctxhost_models::failover::{FailoverDecision, FailoverStop};
use ctxhost_provider::refused_answer::is_refused_answer;

/// Recoveries from consecutive overflows. The reference implementation uses three, and each one may cost a compaction.
const MAX_OVERFLOWS: u32 = 3;

/// Calls the model until it answers or every recovery is exhausted.
pub(super) async fn complete(
    turn: &mut AgentTurn,
    mut request: OutgoingRequest,
) -> Result<AssistantMessage, TurnError> {
    loop {
        let failure = match turn.call_model(&request).await {
            Ok(answer) => match silent_overflow_failure(turn, &answer) {
                None => return Ok(answer),
                Some(failure) => failure,
            },
            Err(failure) => checked_overflow(turn, &request, failure),
        };
        request = recover(turn, &request, failure).await?;
    }
}

/// Reclassifies an implausible overflow: a misread error message must not cost a part of the conversation.
fn checked_overflow(
    turn: &AgentTurn,
    request: &OutgoingRequest,
    mut failure: ProviderError,
) -> ProviderError {
    if failure.reason == FailureReason::ContextOverflow
        && !turn.guard.is_plausible_overflow(&request.target, &request.sent, &failure)
    {
        // This reason fails over without changing the conversation.
        failure.reason = FailureReason::Format;
    }
    failure
}

/// The next request after a failed one.
async fn recover(
    turn: &mut AgentTurn,
    request: &OutgoingRequest,
    failure: ProviderError,
) -> Result<OutgoingRequest, TurnError> {
    match failure.reason {
        FailureReason::ContextOverflow => recover_overflow(turn, request, failure).await,
        FailureReason::Timeout
            if turn.is_nearly_full(request) && turn.may_compact_after_timeout() =>
        {
            recover_timeout(turn, failure).await
        }
        FailureReason::MalformedHistory if !turn.retry.without_thinking => {
            turn.guard.emit(EventKind::recovering(&failure, "retried without thinking"));
            // Signed thinking of another model is the usual cause.
            turn.retry.without_thinking = true;
            turn.prepare_request(Trigger::Threshold).await
        }
        FailureReason::OutputLimit => match shorter_output_tokens(request, &failure) {
            Some(tokens) => retry_with_shorter_answer(turn, &failure, tokens).await,
            None => try_next_model(turn, failure).await,
        },
        _ => try_next_model(turn, failure).await,
    }
}

async fn try_next_model(
    turn: &mut AgentTurn,
    failure: ProviderError,
) -> Result<OutgoingRequest, TurnError> {
    turn.next_model(failure)?;
    turn.prepare_request(Trigger::Threshold).await
}

/// A shorter answer after a refusal for the output limit: the provider's limit, else half. `None` if half is too short
/// to be useful.
fn shorter_output_tokens(request: &OutgoingRequest, failure: &ProviderError) -> Option<u64> {
    let requested_tokens = request.request.max_output_tokens;
    let stated = failure.limit_tokens.filter(|tokens| (1..requested_tokens).contains(tokens));
    let half = Some(requested_tokens / 2).filter(|tokens| *tokens >= MIN_OUTPUT_TOKENS);
    stated.or(half)
}

async fn retry_with_shorter_answer(
    turn: &mut AgentTurn,
    failure: &ProviderError,
    tokens: u64,
) -> Result<OutgoingRequest, TurnError> {
    let action = format!("answers limited to {} tokens", group_thousands(tokens));
    turn.guard.emit(EventKind::recovering(failure, action));
    turn.retry.max_output_tokens = Some(tokens);
    turn.prepare_request(Trigger::Threshold).await
}

/// Counts an overflow; fails after [`MAX_OVERFLOWS`] recoveries.
fn count_overflow(turn: &mut AgentTurn, failure: &ProviderError) -> Result<(), TurnError> {
    turn.retry.overflows += 1;
    let attempts = turn.retry.overflows - 1;
    if attempts >= MAX_OVERFLOWS {
        let error = Box::new(failure.clone());
        return Err(TurnError::CompactionFailure { attempts, error });
    }
    Ok(())
}

/// Shrinks the request: by a shorter answer or by assembling alone if that is enough, else by compactions.
async fn recover_overflow(
    turn: &mut AgentTurn,
    request: &OutgoingRequest,
    failure: ProviderError,
) -> Result<OutgoingRequest, TurnError> {
    count_overflow(turn, &failure)?;
    let mut target = request.target.clone();
    let overflow = turn.guard.active_mut().context.overflow(&mut target, &request.sent, &failure);
    // Only a stated window is shared with other sessions; an estimate bounds this one.
    if let Some(window) = overflow.learned.filter(|window| window.is_stated) {
        turn.state.models.lower_agent_window(&target.model, window.tokens);
    }
    let retry = &mut turn.retry;
    retry.max_output_tokens = overflow.max_output_tokens.or(retry.max_output_tokens);
    retry.cap_tokens = target.max_tokens;
    retry.attachment_cut = target.attachment_cut;
    let action = match (target.attachment_cut, overflow.max_output_tokens, target.max_tokens) {
        (Some(cut), ..) => cut.name().to_owned(),
        (None, Some(tokens), None) => {
            format!("answers limited to {} tokens", group_thousands(tokens))
        }
        (None, _, cap) => {
            format!("conversation limited to {} tokens", group_thousands(cap.unwrap_or_default()))
        }
    };
    turn.guard.emit(EventKind::recovering(&failure, action));
    let request = turn.prepare_request(Trigger::Overflow).await;
    turn.retry.attachment_cut = None;
    request
}

/// Compacts after a timeout: providers slow down when the window is nearly full.
async fn recover_timeout(
    turn: &mut AgentTurn,
    failure: ProviderError,
) -> Result<OutgoingRequest, TurnError> {
    turn.retry.timeouts += 1;
    turn.guard.emit(EventKind::recovering(&failure, "compacted"));
    turn.compact(Trigger::Timeout, None).await?;
    turn.prepare_request(Trigger::Timeout).await
}

/// Detects an answer that exists only because the provider truncated the prompt or ran out of window.
fn silent_overflow_failure(turn: &AgentTurn, answer: &AssistantMessage) -> Option<ProviderError> {
    let overflow = detect_silent_overflow(
        &answer.usage,
        answer.stop_reason,
        &answer.raw_stop_reason,
        turn.window_tokens(),
    )?;
    // A complete answer is kept even if its usage exceeds the window: the count may be wrong.
    let is_lost = overflow == SilentOverflow::ByStopReason || answer.content.is_empty();
    is_lost.then(|| turn.host_failure(FailureReason::ContextOverflow, &overflow.to_string()))
}

impl AgentTurn {
    /// Retries the model once if that may help, else moves to the next one or ends the turn.
    pub(crate) fn next_model(&mut self, failure: ProviderError) -> Result<(), TurnError> {
        let now_ms = self.state.now_ms();
        let decision =
            self.state.failover.lock().record_failure(&mut self.cursor, &failure, now_ms);
        match decision {
            FailoverDecision::Retry => self.guard.emit(EventKind::recovering(&failure, "retried")),
            FailoverDecision::Next { model, reason } => {
                let (model, why) = (model.to_string(), reason.describe().into());
                self.guard.emit(EventKind::ModelChanged { model, why });
                // The limits were those of the previous model.
                self.retry = RetryState::default();
            }
            // The advice for the reason, about settings, does not apply.
            FailoverDecision::Stop(FailoverStop::ChainExhausted(all))
                if all.attempts.len() == 1 && is_refused_answer(&failure.code) =>
            {
                return Err(TurnError::Provider(Box::new(failure)));
            }
            FailoverDecision::Stop(FailoverStop::ChainExhausted(all)) => return Err(all.into()),
            FailoverDecision::Stop(_) => return Err(TurnError::Provider(Box::new(failure))),
        }
        Ok(())
    }

    fn is_nearly_full(&self, request: &OutgoingRequest) -> bool {
        let full_tokens = self.state.compaction.timeout_share * self.window_tokens() as f64;
        self.expected_tokens(request) as f64 > full_tokens
    }

    fn may_compact_after_timeout(&self) -> bool {
        self.retry.timeouts < self.state.compaction.timeout_compactions
    }
}
