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

use super::event::What;
use super::turn::{Draft, MIN_OUTPUT_TOKENS, Turn, TurnError};
use ctxhost_dialects::failure::{SilentOverflow, silent_overflow};
use ctxhost_dialects::{AssistantMessage, ProviderError, Reason};
use ctxhost_models::failover::{Decision, Stop};

/// Recoveries from an overflow in one turn (DESIGN 2, overflow recovery).
const MAX_OVERFLOWS: u32 = 3;

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
    turn: &mut Turn,
    mut draft: Draft,
) -> Result<AssistantMessage, TurnError> {
    loop {
        let failure = match turn.ask(&draft).await {
            Ok(reply) => match cut_short(turn, &reply) {
                None => return Ok(reply),
                Some(failure) => failure,
            },
            Err(failure) => believed(turn, &draft, failure),
        };
        draft = after(turn, &draft, failure).await?;
    }
}

/// A refusal as it is acted upon: that a request is too large is believed where it can be, because no
/// part of a conversation is left out for a sentence that was misread.
fn believed(turn: &Turn, draft: &Draft, mut failure: ProviderError) -> ProviderError {
    let context = turn.guard.context();
    if failure.reason == Reason::ContextOverflow
        && !context.is_plausible_overflow(&draft.target, &draft.sent, &failure)
    {
        failure.reason = Reason::Format;
    }
    failure
}

/// The next request after one that failed.
async fn after(turn: &mut Turn, draft: &Draft, failure: ProviderError) -> Result<Draft, TurnError> {
    match failure.reason {
        Reason::ContextOverflow => after_overflow(turn, draft, failure).await,
        Reason::Timeout if turn.is_nearly_full(draft) && turn.may_compact_after_timeout() => {
            after_timeout(turn, failure).await
        }
        Reason::MalformedHistory if !turn.pressure.plain => {
            turn.guard.tell(What::recovering(&failure, "asked again without thinking"));
            turn.pressure.plain = true;
            turn.assemble(Trigger::Threshold).await
        }
        Reason::OutputLimit => match given_output_tokens(draft, &failure) {
            Some(tokens) => ask_shorter(turn, &failure, tokens).await,
            None => go_on(turn, failure).await,
        },
        _ => go_on(turn, failure).await,
    }
}

async fn go_on(turn: &mut Turn, failure: ProviderError) -> Result<Draft, TurnError> {
    next_model(turn, failure)?;
    turn.assemble(Trigger::Threshold).await
}

/// The longest answer that may be given where the one asked for was too long: what the provider names,
/// else half. `None` where there is no shorter one that is of use.
fn given_output_tokens(draft: &Draft, failure: &ProviderError) -> Option<u64> {
    let asked_tokens = draft.request.max_output_tokens;
    let named = failure.limit_tokens.filter(|tokens| (1..asked_tokens).contains(tokens));
    let half = Some(asked_tokens / 2).filter(|tokens| *tokens >= MIN_OUTPUT_TOKENS);
    named.or(half)
}

/// Asks for the same with a shorter answer.
async fn ask_shorter(
    turn: &mut Turn,
    failure: &ProviderError,
    tokens: u64,
) -> Result<Draft, TurnError> {
    turn.guard.tell(What::recovering(failure, format!("answers of {tokens} tokens")));
    turn.pressure.max_output_tokens = Some(tokens);
    turn.assemble(Trigger::Threshold).await
}

/// One request more that was too large; an end where there were too many.
fn one_more(turn: &mut Turn, failure: &ProviderError) -> Result<(), TurnError> {
    turn.pressure.overflows += 1;
    let attempts = turn.pressure.overflows - 1;
    if attempts >= MAX_OVERFLOWS {
        let error = Box::new(failure.clone());
        return Err(TurnError::CompactionFailure { attempts, error });
    }
    Ok(())
}

/// Makes the request smaller: by a shorter answer or by assembling alone where that is enough, else by compactions.
async fn after_overflow(
    turn: &mut Turn,
    draft: &Draft,
    failure: ProviderError,
) -> Result<Draft, TurnError> {
    one_more(turn, &failure)?;
    let mut target = draft.target.clone();
    let overflow = turn.guard.open().context.overflow(&mut target, &draft.sent, &failure);
    if let Some(window) = overflow.learned.filter(|window| window.is_said) {
        turn.shared.models.learn_own_window(&target.model, window.tokens);
    }
    let pressure = &mut turn.pressure;
    pressure.max_output_tokens = overflow.max_output_tokens.or(pressure.max_output_tokens);
    pressure.cap_tokens = target.max_tokens;
    let how = match (overflow.max_output_tokens, target.max_tokens) {
        (Some(tokens), None) => format!("answers of {tokens} tokens"),
        (_, cap_tokens) => format!("made to fit {} tokens", cap_tokens.unwrap_or_default()),
    };
    turn.guard.tell(What::recovering(&failure, how));
    turn.assemble(Trigger::Overflow).await
}

/// A nearly full window may be why it took so long.
async fn after_timeout(turn: &mut Turn, failure: ProviderError) -> Result<Draft, TurnError> {
    turn.pressure.timeouts += 1;
    turn.guard.tell(What::recovering(&failure, "compacted"));
    turn.compact(Trigger::Timeout, None).await?;
    turn.assemble(Trigger::Timeout).await
}

/// Asks the same model once more where that may help, goes on to the next one, or ends the turn.
pub(super) fn next_model(turn: &mut Turn, failure: ProviderError) -> Result<(), TurnError> {
    let now_ms = turn.shared.now_ms();
    let decision = turn.shared.failover().failed(&mut turn.walk, &failure, now_ms);
    match decision {
        Decision::Retry => turn.guard.tell(What::recovering(&failure, "asked again")),
        Decision::Next { model, why } => {
            turn.guard
                .tell(What::ModelChanged { model: model.to_string(), why: why.in_words().into() });
            turn.pressure = Pressure::default();
        }
        Decision::Stop(Stop::NoModelLeft(all)) => return Err(all.into()),
        Decision::Stop(_) => return Err(TurnError::Provider(Box::new(failure))),
    }
    Ok(())
}

/// An answer that came only because the provider did not read, or could not finish, what it was sent.
fn cut_short(turn: &Turn, reply: &AssistantMessage) -> Option<ProviderError> {
    let window_tokens = turn.window_tokens();
    let overflow =
        silent_overflow(&reply.usage, reply.stop_reason, &reply.raw_stop_reason, window_tokens)?;
    // An answer that the window broke off is none; one that merely was counted too high is.
    let is_lost = overflow == SilentOverflow::Named || reply.content.is_empty();
    is_lost.then(|| turn.own_failure(Reason::ContextOverflow, &overflow.to_string()))
}

impl Turn {
    fn is_nearly_full(&self, draft: &Draft) -> bool {
        let full = self.shared.compaction.timeout_share * self.window_tokens() as f64;
        self.expected_tokens(draft) as f64 > full
    }

    fn may_compact_after_timeout(&self) -> bool {
        self.pressure.timeouts < self.shared.compaction.timeout_compactions
    }
}
