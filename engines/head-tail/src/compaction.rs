//! Runs one compaction: cut, summary, plan.

use std::iter;
use std::ops::Range;

use ctxhost_engine_api::transcript::tokens::{CHARS_PER_TOKEN, weighted_chars};
use ctxhost_engine_api::{
    CompactRequest, Compaction, EngineError, Entry, Host, LogLevel, Plan, PlanNote, Result, Role,
    Transcript, Trigger,
};
use ctxhost_engine_kit::budget::{RequestBudget, own_text_tokens};
use ctxhost_engine_kit::caps::{EntryCaps, keep_with_cuts};
use ctxhost_engine_kit::cuts::{self, gaps};
use ctxhost_engine_kit::exchange::NewestExchange;
use ctxhost_engine_kit::ledger::append_ledger;
use ctxhost_engine_kit::session_map::SessionMap;
use ctxhost_engine_kit::settings::share_of;
use ctxhost_engine_kit::shortening::shorten_or_nothing;
use ctxhost_engine_kit::summariser::{WrittenSummary, attempt, failure_note, has_model};
use ctxhost_engine_kit::summary::{Provenance, wrap_summary};

use crate::cooldowns::{CompactionSizes, Cooldowns};
use crate::cut::{self, MiddleCut};
use crate::settings::Settings;
use crate::{HeadTailSession, LAYER, summary};

/// Size of the envelope of a summary, in tokens.
const ENVELOPE_TOKENS: u64 = 60;

/// Inputs of one compaction.
#[derive(Clone, Copy)]
pub(crate) struct HeadTailCompaction<'a> {
    pub(crate) host: &'a Host,
    pub(crate) settings: &'a Settings,
    pub(crate) sessions: &'a SessionMap<HeadTailSession>,
    pub(crate) transcript: &'a Transcript,
    pub(crate) request: &'a CompactRequest,
}

impl HeadTailCompaction<'_> {
    /// Limit of summary and ledger, in weighted characters.
    pub(crate) fn own_chars(&self) -> u64 {
        own_text_tokens(self.request.budget) * CHARS_PER_TOKEN
    }

    /// Runs `work` on the session's cooldowns; never across an `await`.
    fn cooldowns<T>(&self, work: impl FnOnce(&mut Cooldowns) -> T) -> T {
        self.sessions.with_session(&self.request.session, |memory| work(&mut memory.cooldowns))
    }
}

/// Compacts, unless a cooldown is running.
pub(crate) async fn compact(inputs: &HeadTailCompaction<'_>) -> Result<Compaction> {
    let HeadTailCompaction { settings, request, transcript, .. } = *inputs;
    let now_ms = request.now_ms;
    let cooldown = inputs.cooldowns(|cooldowns| {
        // A user who asks for a compaction wants it now, whatever failed before.
        if request.force || request.trigger == Trigger::Manual {
            cooldowns.reset();
        }
        cooldowns.backoff_reason(now_ms, settings)
    });
    if let Some(reason) = cooldown {
        inputs.host.log(LogLevel::Warn, &reason);
        return Ok(Compaction::Nothing { reason });
    }
    let cut = cut::choose_cut(transcript, &RequestBudget::from(request), request.attempt, settings);
    let before_tokens = transcript.total_tokens();
    let plan = match &cut {
        Some(cut) => Some(build_plan(inputs, cut).await?),
        None => None,
    };
    // No plan counts as a compaction that saved nothing, or the request would be repeated.
    let after_tokens = plan.as_ref().map_or(before_tokens, |plan| plan.estimated_tokens);
    let removable_tokens = before_tokens.saturating_sub(required_tokens(transcript));
    let sizes = CompactionSizes { before_tokens, after_tokens, removable_tokens };
    inputs.cooldowns(|cooldowns| cooldowns.record_saving(sizes, now_ms, settings));
    Ok(match plan.filter(|_| after_tokens < before_tokens) {
        Some(plan) => Compaction::Plan(plan),
        None => {
            shorten_or_nothing(transcript, request, LAYER, "the middle is too short for a summary")
        }
    })
}

/// The plan of a cut, with its summary.
async fn build_plan(inputs: &HeadTailCompaction<'_>, cut: &MiddleCut) -> Result<Plan> {
    let mut summary = WrittenSummary::default();
    // Without a middle the compaction only cuts results.
    if !cut.middle.is_empty() {
        summary = write_summary(inputs, cut).await?;
        // The ledger gets what a short summary leaves of the room for both.
        let summary_chars = weighted_chars(&summary.text) + ENVELOPE_TOKENS * CHARS_PER_TOKEN;
        let limits = cut.limits_beside(summary_chars, inputs.own_chars());
        summary.text = append_ledger(&summary.text, &cut.ledger, limits);
    }
    let transcript = inputs.transcript;
    // Results, then arguments, are cut to what the target size of the summary leaves.
    let added_tokens = cut.summary_tokens + cut.ledger_tokens;
    let limit_tokens = target_tokens(inputs).saturating_sub(added_tokens);
    let mut fixed = cut.middle.gaps().to_vec();
    let exchange = cut.exchange.as_ref().filter(|exchange| exchange.is_cut());
    // An answer that was cut to its room is not cut again.
    let limit_tokens = limit_tokens.saturating_sub(exchange.map_or(0, NewestExchange::tokens));
    fixed.extend(exchange.map(NewestExchange::answer));
    fixed.sort_by_key(|range| range.start);
    let kept = gaps(&fixed, transcript.len() as u64);
    let caps = EntryCaps::fit(transcript, &kept, limit_tokens);
    let cut_entry = |entry: &Entry<'_>| match exchange {
        Some(exchange) if exchange.answer().contains(&entry.seq()) => {
            exchange.cuts().get(entry.seq()).cloned()
        }
        _ => caps.cut(entry, LAYER),
    };
    let keep = |plan: &mut Plan, range: Range<u64>| {
        keep_with_cuts(plan, transcript, range, cut_entry);
    };
    let provenance = Provenance { entries: cut.middle.entries(), writer: &summary.writer };
    let mut plan = cut.middle.plan(transcript, LAYER, keep, |plan, gap| {
        let text = wrap_summary(&summary.text, &provenance);
        let detail = cut.middle.describe(&text, &summary.writer);
        plan.insert(Role::User, text, gap).note(LAYER, detail);
    });
    plan.extras.details = cut.middle.details(transcript);
    plan.extras.notes.extend(summary.notes.iter().map(|note| PlanNote::new(LAYER, note)));
    Ok(plan)
}

/// The summary of a cut, by a model if allowed, else extractive.
async fn write_summary(inputs: &HeadTailCompaction<'_>, cut: &MiddleCut) -> Result<WrittenSummary> {
    let HeadTailCompaction { host, settings, request, .. } = *inputs;
    let may_ask = inputs.cooldowns(|cooldowns| cooldowns.may_ask_model(request.now_ms, settings));
    if !may_ask || !settings.use_model || !has_model(host) {
        return Ok(summary::extractive_summary(inputs, cut));
    }
    let answer =
        attempt(host, summary::model_summary(inputs, cut, room_tokens(inputs, cut))).await?;
    inputs.cooldowns(|cooldowns| cooldowns.record_model(answer.is_err(), request.now_ms));
    match answer {
        Err(error) if settings.abort_on_summary_failure => Err(EngineError::new(
            error.kind,
            format!("{error}; the history is kept (abort_on_summary_failure)"),
        )),
        Err(error) => {
            let notes = vec![failure_note(&error)];
            Ok(WrittenSummary { notes, ..summary::extractive_summary(inputs, cut) })
        }
        summary => summary,
    }
}

/// Size of the entries that the host keeps whatever the plan, in tokens.
fn required_tokens(transcript: &Transcript) -> u64 {
    let last = cuts::trailing_frame(transcript);
    let required = cuts::protected_before(transcript, last, 0..0);
    let required = required.into_iter().chain(iter::once(last..transcript.len() as u64));
    required.map(|range| transcript.tokens(range)).sum()
}

fn target_tokens(inputs: &HeadTailCompaction<'_>) -> u64 {
    share_of(inputs.request.budget, inputs.settings.target_share)
}

/// Upper limit of a summary: above its target size if everything still fits.
fn room_tokens(inputs: &HeadTailCompaction<'_>, cut: &MiddleCut) -> u64 {
    let budget_tokens = inputs.request.budget;
    let most = share_of(budget_tokens, inputs.settings.summary_budget_share)
        .min(own_text_tokens(budget_tokens).saturating_sub(ENVELOPE_TOKENS));
    let free = target_tokens(inputs).saturating_sub(cut.kept_tokens + cut.ledger_tokens);
    most.min(free).min(inputs.settings.summary_max_tokens).max(cut.summary_tokens)
}
