//! What is done when a request gets no answer. Every way ends: in an answer, with another model, or in a
//! typed error.
//!
//! ```text
//!  ask ─┬─ answer ─────────────────────────────────────────────► done
//!       ├─ too large ─► smaller budget ─► assemble ─► fits? ─► ask      (at most 3 times, each smaller)
//!       │                                   └─ no ─► compact ─► ask
//!       ├─ malformed ─► without thinking, once ─► ask
//!       ├─ output limit ─► an answer of half that length, or of the limit ─► ask
//!       ├─ timeout, nearly full ─► compact, twice ─► ask
//!       └─ anything else ─► next model ─► assemble ─► ask
//! ```

use ctxhost_engine_api::Trigger;

use super::event::What;
use super::failover::{Decision, Stop};
use super::turn::{Draft, Turn, TurnError};
use ctxhost_provider::failure::{SilentOverflow, silent_overflow};
use ctxhost_provider::{AssistantMessage, ProviderError, Reason};

/// Recoveries from an overflow in one turn (DESIGN 2, overflow recovery).
const MAX_OVERFLOWS: u32 = 3;

/// Share of a request that was too large which the next one may have. Each try is smaller than the one
/// before, whatever anybody counted, so the tries end.
pub(super) const SMALLER: f64 = 0.85;

/// The shortest answer that is asked for where a provider finds answers too long and does not say how
/// long they may be: a smaller one holds no tool call.
const MIN_OUTPUT_TOKENS: u64 = 256;

/// What has gone wrong in a turn so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pressure {
    /// Requests in a row that were too large.
    overflows: u32,
    /// Requests in a row that took too long.
    timeouts: u32,
    /// What the conversation may take at the most after an overflow, as entries count.
    pub(super) cap_tokens: Option<u64>,
    /// What an answer may take at the most, where the provider said so.
    pub(super) max_output_tokens: Option<u64>,
    /// Whether thinking and provider items are left out.
    pub(super) plain: bool,
}

impl Pressure {
    /// An answer came: what it took to get it is learned, what was counted is forgotten.
    pub(super) fn relieved(&mut self) {
        (self.overflows, self.timeouts) = (0, 0);
    }
}

/// Asks until there is an answer, or until nothing is left to try.
pub(super) async fn complete(
    turn: &mut Turn<'_>,
    mut draft: Draft,
) -> Result<AssistantMessage, TurnError> {
    loop {
        let failure = match turn.ask(&draft).await {
            Ok(reply) => match cut_short(turn, &reply) {
                None => return Ok(reply),
                Some(failure) => failure,
            },
            Err(failure) => failure,
        };
        draft = after(turn, &draft, failure).await?;
    }
}

/// The next request after one that failed.
async fn after(
    turn: &mut Turn<'_>,
    draft: &Draft,
    failure: ProviderError,
) -> Result<Draft, TurnError> {
    match failure.reason {
        Reason::ContextOverflow => after_overflow(turn, draft, failure).await,
        Reason::Timeout if turn.is_nearly_full(draft) && turn.may_compact_after_timeout() => {
            after_timeout(turn, failure).await
        }
        Reason::MalformedHistory if !turn.pressure.plain => {
            turn.tell(What::recovering(&failure, "asked again without thinking"));
            turn.pressure.plain = true;
            turn.assemble(Trigger::Threshold).await
        }
        Reason::OutputLimit if draft.request.max_output_tokens / 2 >= MIN_OUTPUT_TOKENS => {
            let half = draft.request.max_output_tokens / 2;
            let limit_tokens = failure.limit_tokens.unwrap_or(half).min(half).max(1);
            turn.tell(What::recovering(&failure, format!("answers of {limit_tokens} tokens")));
            turn.pressure.max_output_tokens = Some(limit_tokens);
            turn.assemble(Trigger::Threshold).await
        }
        _ => {
            next_model(turn, failure)?;
            turn.assemble(Trigger::Threshold).await
        }
    }
}

/// Makes the request smaller: by assembling alone where that is enough, else by compactions.
async fn after_overflow(
    turn: &mut Turn<'_>,
    draft: &Draft,
    failure: ProviderError,
) -> Result<Draft, TurnError> {
    turn.pressure.overflows += 1;
    let attempts = turn.pressure.overflows - 1;
    if attempts >= MAX_OVERFLOWS {
        return Err(TurnError::CompactionFailure { attempts, error: Box::new(failure) });
    }
    turn.learn_of_overflow(&draft.prompt, &failure);
    let cap_tokens = (draft.conversation_tokens as f64 * SMALLER) as u64;
    turn.pressure.cap_tokens = Some(turn.pressure.cap_tokens.unwrap_or(u64::MAX).min(cap_tokens));
    turn.tell(What::recovering(&failure, format!("made to fit {cap_tokens} tokens")));
    turn.assemble(Trigger::Overflow).await
}

/// A nearly full window may be why it took so long.
async fn after_timeout(turn: &mut Turn<'_>, failure: ProviderError) -> Result<Draft, TurnError> {
    turn.pressure.timeouts += 1;
    turn.tell(What::recovering(&failure, "compacted"));
    turn.compact(Trigger::Timeout, None).await?;
    turn.assemble(Trigger::Timeout).await
}

/// Asks the same model once more where that may help, goes on to the next one, or ends the turn.
pub(super) fn next_model(turn: &mut Turn<'_>, failure: ProviderError) -> Result<(), TurnError> {
    let now_ms = turn.shared.now_ms();
    let decision = turn.shared.failover().failed(&mut turn.walk, &failure, now_ms);
    match decision {
        Decision::Retry => turn.tell(What::recovering(&failure, "asked again")),
        Decision::Next { model, why } => {
            turn.tell(What::ModelChanged { model: model.to_string(), why: why.in_words().into() });
            turn.pressure = Pressure::default();
            turn.use_model();
        }
        Decision::Stop(Stop::NoModelLeft(all)) => return Err(all.into()),
        Decision::Stop(_) => return Err(TurnError::Provider(Box::new(failure))),
    }
    Ok(())
}

/// An answer that came only because the provider did not read, or could not finish, what it was sent.
fn cut_short(turn: &Turn<'_>, reply: &AssistantMessage) -> Option<ProviderError> {
    let window_tokens = turn.window_tokens();
    let overflow =
        silent_overflow(&reply.usage, reply.stop_reason, &reply.raw_stop_reason, window_tokens)?;
    // An answer that the window broke off is none; one that merely was counted too high is.
    let is_lost = overflow == SilentOverflow::Named || reply.content.is_empty();
    is_lost.then(|| turn.own_failure(Reason::ContextOverflow, &overflow.to_string()))
}

impl Turn<'_> {
    fn is_nearly_full(&self, draft: &Draft) -> bool {
        let full = self.shared.compaction.timeout_share * self.window_tokens() as f64;
        self.expected_tokens(draft) as f64 > full
    }

    fn may_compact_after_timeout(&self) -> bool {
        self.pressure.timeouts < self.shared.compaction.timeout_compactions
    }
}
