//! Runs one compaction: checks the breaker, chooses the layout, writes the summary and records the
//! outcome.

use ctxhost_engine_api::*;
use ctxhost_engine_kit::attachments::render_attachments;
use ctxhost_engine_kit::budget::RequestBudget;
use ctxhost_engine_kit::ledger::{LedgerReader, append_ledger};
use ctxhost_engine_kit::previews::ResultPreviews;
use ctxhost_engine_kit::settings::share_of;
use ctxhost_engine_kit::shortening::shorten_or_nothing;

use crate::layout::{self, BoundaryTarget, LAYER, LayoutPlanner};
use crate::summary::BoundarySummariser;
use crate::{BoundaryEngine, attempts};

/// The warning if compactions do not help.
const THRASHING: &str = "the window was full again within 3 answers, three times in a row; use a larger window or bring in less with each turn";

/// Replaces the history before the last turn, if allowed and useful.
pub(crate) async fn compact(
    engine: &BoundaryEngine,
    transcript: &Transcript,
    request: &CompactRequest,
) -> Result<Compaction> {
    // Checked before any work: a refused compaction must cost nothing.
    let is_thrashing = match engine.admit(transcript, request) {
        Ok(is_thrashing) => is_thrashing,
        Err(reason) => return Ok(Compaction::Nothing { reason }),
    };
    let (host, settings) = (&engine.host, &engine.settings);
    let target = engine.target(&RequestBudget::from(request), request.attempt);
    // Not the session's previews: after a refusal the budget is smaller.
    let mut previews = ResultPreviews::default();
    previews.follow(transcript, target.preview_tokens(settings));
    let planner = LayoutPlanner { transcript, previews: &previews, settings, target };
    let layout = {
        let ledgers = &mut LedgerReader::new(transcript);
        planner.choose(ledgers).or_else(|| planner.choose_smallest(ledgers))
    };
    let Some(layout) = layout else {
        let reason = "nothing is left to fold between what must stay, or no room for a summary";
        return Ok(shorten_or_nothing(transcript, request, LAYER, reason));
    };
    let section_chars = layout.section_chars(&target);
    let layout = &layout;
    let summariser =
        BoundarySummariser { host, settings, transcript, request, layout, section_chars };
    let outcome = engine.write_plan(&summariser, &planner, is_thrashing).await;
    engine.record(&summariser, &outcome);
    outcome.map(Compaction::Plan)
}

impl BoundaryEngine {
    /// Whether a compaction is allowed; if so, whether the window fills up again too soon.
    fn admit(&self, transcript: &Transcript, request: &CompactRequest) -> Result<bool, String> {
        let settings = &self.settings;
        let is_manual = request.force || request.trigger == Trigger::Manual;
        let (open, is_thrashing) = self.sessions.with_session(&request.session, |state| {
            state.attempts.record_outcome(transcript);
            let open = state.attempts.open_reason(settings.breaker_failures);
            (open, state.attempts.is_thrashing(transcript))
        });
        match open {
            _ if !settings.compaction => Err("compaction is switched off".into()),
            // A manual compaction ignores the breaker and closes it if it succeeds.
            _ if is_manual => Ok(is_thrashing),
            _ if !settings.auto_compaction => Err("automatic compaction is switched off".into()),
            Some(reason) => Err(reason),
            None => Ok(is_thrashing),
        }
    }

    async fn write_plan(
        &self,
        summariser: &BoundarySummariser<'_>,
        planner: &LayoutPlanner<'_>,
        is_thrashing: bool,
    ) -> Result<Plan> {
        let BoundarySummariser { host, transcript, layout, .. } = *summariser;
        let session = &summariser.request.session;
        // Without history the compaction only cuts what stays.
        if layout.fold.is_empty() {
            return Ok(layout::build_plan(transcript, layout, "", None, ""));
        }
        // Entries may have been added since the last ingest.
        self.update_notes(transcript, session);
        let running_notes = self.notes.notes_covering(transcript, session, layout.tail);
        let mut summary = summariser.summarise(running_notes).await?;
        let limits = layout.limits_beside(&summary.text, &planner.target);
        summary.text = append_ledger(&summary.text, &layout.ledger, limits);
        // Before the plan is applied: a restart in between must find the notes of this epoch.
        self.notes.store(host, session).await;
        let message = layout::summary_message(&layout.fold, &summary);
        let attachments = self.attachments(summariser, &planner.target, &message);
        let attachments = attachments.as_deref();
        let mut plan =
            layout::build_plan(transcript, layout, &message, attachments, &summary.writer);
        plan.extras.notes = summary.notes.iter().map(|note| PlanNote::new(LAYER, note)).collect();
        if is_thrashing {
            host.log(LogLevel::Warn, THRASHING);
            plan.extras.notes.push(PlanNote::new("thrash guard", THRASHING));
        }
        plan.extras.details = layout.fold.details(transcript);
        Ok(plan)
    }

    /// Only the first attempt adds attachments: later ones exist because the first was too large.
    fn attachments(
        &self,
        summariser: &BoundarySummariser<'_>,
        target: &BoundaryTarget,
        message: &str,
    ) -> Option<String> {
        let BoundarySummariser { transcript, request, layout, .. } = summariser;
        if request.attempt > 1 {
            return None;
        }
        let settings = &self.settings.attachments;
        let wanted_tokens = share_of(target.base_tokens(), settings.total_share);
        let left_tokens = layout.room_tokens.saturating_sub(layout::message_tokens(message));
        let sub_agents = self.sub_agents.running_lines(&request.session, request.now_ms);
        let room_tokens = wanted_tokens.min(left_tokens);
        render_attachments(transcript, layout.tail, &sub_agents, settings.limits(), room_tokens)
    }

    fn record(&self, summariser: &BoundarySummariser<'_>, outcome: &Result<Plan>) {
        let transcript = summariser.transcript;
        let kept_answers = attempts::count_answers(transcript, summariser.layout.tail);
        self.sessions.with_session(&summariser.request.session, |state| match outcome {
            Ok(_) => state.attempts.record_plan(transcript, kept_answers),
            // A cancellation is not a failure of the engine.
            Err(error) if error.kind == ErrorKind::Cancelled => {}
            Err(_) => state.attempts.record_failure(),
        });
    }
}
