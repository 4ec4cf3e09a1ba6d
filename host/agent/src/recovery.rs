//! What is done when a request gets no answer. Every way ends: in an answer, with another model, or in a
//! typed error.
//!
//! ```text
//!  ask ─┬─ answer ─────────────────────────────────────────────► done
//!       ├─ too large ─► smaller budget ─► assemble ─► fits? ─► ask      (at most 3 times, each smaller)
//!       │       │                           └─ no ─► compact ─► ask
//!       │       ├─ only with its answer ─► a shorter answer ─► ask
//!       │       └─ though far below the window, says no number and no code ─► next model
//!       ├─ malformed ─► without thinking, once ─► ask
//!       ├─ output limit ─► an answer of the limit, or of half that length ─► ask
//!       ├─ timeout, nearly full ─► compact, twice ─► ask
//!       └─ anything else ─► next model ─► assemble ─► ask
//! ```

use ctxhost_engine_api::Trigger;

use super::event::EventKind;
use super::turn::{AgentTurn, MIN_OUTPUT_TOKENS, OutgoingRequest, TurnError};
use ctxhost_dialects::failure::{SilentOverflow, detect_silent_overflow};
use ctxhost_dialects::{AssistantMessage, FailureReason, ProviderError};
use ctxhost_models::failover::{FailoverDecision, FailoverStop};

/// Recoveries from an overflow in one turn (DESIGN 2, overflow recovery).
const MAX_OVERFLOWS: u32 = 3;

/// What has gone wrong in a turn so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RetryState {
    /// Requests in a row that were too large.
    overflows: u32,
    /// Requests in a row that took too long.
    timeouts: u32,
    /// What the conversation may take at the most after an overflow, as entries count.
    pub(super) cap_tokens: Option<u64>,
    /// What an answer may take at the most, where the provider said so.
    pub(super) max_output_tokens: Option<u64>,
    /// Whether thinking and provider items are left out.
    pub(super) without_thinking: bool,
}

impl RetryState {
    /// An answer came: what it took to get it is learned, what was counted is forgotten.
    pub(super) fn reset_counts(&mut self) {
        (self.overflows, self.timeouts) = (0, 0);
    }
}

/// Asks until there is an answer, or until nothing is left to try.
pub(super) async fn complete(
    turn: &mut AgentTurn,
    mut draft: OutgoingRequest,
) -> Result<AssistantMessage, TurnError> {
    loop {
        let failure = match turn.call_model(&draft).await {
            Ok(reply) => match silent_overflow_failure(turn, &reply) {
                None => return Ok(reply),
                Some(failure) => failure,
            },
            Err(failure) => checked_overflow(turn, &draft, failure),
        };
        draft = recover(turn, &draft, failure).await?;
    }
}

/// A refusal as it is acted upon: that a request is too large is believed where it can be, because no
/// part of a conversation is left out for a sentence that was misread.
fn checked_overflow(
    turn: &AgentTurn,
    draft: &OutgoingRequest,
    mut failure: ProviderError,
) -> ProviderError {
    let context = turn.guard.context();
    if failure.reason == FailureReason::ContextOverflow
        && !context.is_plausible_overflow(&draft.target, &draft.sent, &failure)
    {
        failure.reason = FailureReason::Format;
    }
    failure
}

/// The next request after one that failed.
async fn recover(
    turn: &mut AgentTurn,
    draft: &OutgoingRequest,
    failure: ProviderError,
) -> Result<OutgoingRequest, TurnError> {
    match failure.reason {
        FailureReason::ContextOverflow => recover_overflow(turn, draft, failure).await,
        FailureReason::Timeout
            if turn.is_nearly_full(draft) && turn.may_compact_after_timeout() =>
        {
            recover_timeout(turn, failure).await
        }
        FailureReason::MalformedHistory if !turn.retry.without_thinking => {
            turn.guard.emit(EventKind::recovering(&failure, "asked again without thinking"));
            turn.retry.without_thinking = true;
            turn.prepare_request(Trigger::Threshold).await
        }
        FailureReason::OutputLimit => match shorter_output_tokens(draft, &failure) {
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
    next_model(turn, failure)?;
    turn.prepare_request(Trigger::Threshold).await
}

/// The longest answer that may be given where the one asked for was too long: what the provider names,
/// else half. `None` where there is no shorter one that is of use.
fn shorter_output_tokens(draft: &OutgoingRequest, failure: &ProviderError) -> Option<u64> {
    let asked_tokens = draft.request.max_output_tokens;
    let named = failure.limit_tokens.filter(|tokens| (1..asked_tokens).contains(tokens));
    let half = Some(asked_tokens / 2).filter(|tokens| *tokens >= MIN_OUTPUT_TOKENS);
    named.or(half)
}

/// Asks for the same with a shorter answer.
async fn retry_with_shorter_answer(
    turn: &mut AgentTurn,
    failure: &ProviderError,
    tokens: u64,
) -> Result<OutgoingRequest, TurnError> {
    turn.guard.emit(EventKind::recovering(failure, format!("answers of {tokens} tokens")));
    turn.retry.max_output_tokens = Some(tokens);
    turn.prepare_request(Trigger::Threshold).await
}

/// One request more that was too large; an end where there were too many.
fn count_overflow(turn: &mut AgentTurn, failure: &ProviderError) -> Result<(), TurnError> {
    turn.retry.overflows += 1;
    let attempts = turn.retry.overflows - 1;
    if attempts >= MAX_OVERFLOWS {
        let error = Box::new(failure.clone());
        return Err(TurnError::CompactionFailure { attempts, error });
    }
    Ok(())
}

/// Makes the request smaller: by a shorter answer or by assembling alone where that is enough, else by compactions.
async fn recover_overflow(
    turn: &mut AgentTurn,
    draft: &OutgoingRequest,
    failure: ProviderError,
) -> Result<OutgoingRequest, TurnError> {
    count_overflow(turn, &failure)?;
    let mut target = draft.target.clone();
    let overflow = turn.guard.active_mut().context.overflow(&mut target, &draft.sent, &failure);
    if let Some(window) = overflow.learned.filter(|window| window.is_stated) {
        turn.state.models.lower_agent_window(&target.model, window.tokens);
    }
    let pressure = &mut turn.retry;
    pressure.max_output_tokens = overflow.max_output_tokens.or(pressure.max_output_tokens);
    pressure.cap_tokens = target.max_tokens;
    let how = match (overflow.max_output_tokens, target.max_tokens) {
        (Some(tokens), None) => format!("answers of {tokens} tokens"),
        (_, cap_tokens) => format!("made to fit {} tokens", cap_tokens.unwrap_or_default()),
    };
    turn.guard.emit(EventKind::recovering(&failure, how));
    turn.prepare_request(Trigger::Overflow).await
}

/// A nearly full window may be why it took so long.
async fn recover_timeout(
    turn: &mut AgentTurn,
    failure: ProviderError,
) -> Result<OutgoingRequest, TurnError> {
    turn.retry.timeouts += 1;
    turn.guard.emit(EventKind::recovering(&failure, "compacted"));
    turn.compact(Trigger::Timeout, None).await?;
    turn.prepare_request(Trigger::Timeout).await
}

/// Asks the same model once more where that may help, goes on to the next one, or ends the turn.
pub(super) fn next_model(turn: &mut AgentTurn, failure: ProviderError) -> Result<(), TurnError> {
    let now_ms = turn.state.now_ms();
    let decision = turn.state.failover().record_failure(&mut turn.cursor, &failure, now_ms);
    match decision {
        FailoverDecision::Retry => turn.guard.emit(EventKind::recovering(&failure, "asked again")),
        FailoverDecision::Next { model, reason: why } => {
            turn.guard.emit(EventKind::ModelChanged {
                model: model.to_string(),
                why: why.describe().into(),
            });
            turn.retry = RetryState::default();
        }
        FailoverDecision::Stop(FailoverStop::ChainExhausted(all)) => return Err(all.into()),
        FailoverDecision::Stop(_) => return Err(TurnError::Provider(Box::new(failure))),
    }
    Ok(())
}

/// An answer that came only because the provider did not read, or could not finish, what it was sent.
fn silent_overflow_failure(turn: &AgentTurn, reply: &AssistantMessage) -> Option<ProviderError> {
    let window_tokens = turn.window_tokens();
    let overflow = detect_silent_overflow(
        &reply.usage,
        reply.stop_reason,
        &reply.raw_stop_reason,
        window_tokens,
    )?;
    // An answer that the window broke off is none; one that merely was counted too high is.
    let is_lost = overflow == SilentOverflow::ByStopReason || reply.content.is_empty();
    is_lost.then(|| turn.host_failure(FailureReason::ContextOverflow, &overflow.to_string()))
}

impl AgentTurn {
    fn is_nearly_full(&self, draft: &OutgoingRequest) -> bool {
        let full = self.state.compaction.timeout_share * self.window_tokens() as f64;
        self.expected_tokens(draft) as f64 > full
    }

    fn may_compact_after_timeout(&self) -> bool {
        self.retry.timeouts < self.state.compaction.timeout_compactions
    }
}
