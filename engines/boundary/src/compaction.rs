//! Runs one compaction: checks the breaker, chooses the layout, writes the summary and records the
//! outcome.

use ctxhost_engine_api::*;
use ctxhost_engine_kit::attachments::render_attachments;
use ctxhost_engine_kit::budget::RequestBudget;
use ctxhost_engine_kit::ledger::append_ledger;
use ctxhost_engine_kit::previews::ResultPreviews;
use ctxhost_engine_kit::settings::share_of;

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
    let is_thrashing = match engine.admit(transcript, request) {
        Ok(is_thrashing) => is_thrashing,
        Err(reason) => return Ok(Compaction::Nothing { reason }),
    };
    let (host, settings) = (&engine.host, &engine.settings);
    let aim = engine.aim(&RequestBudget::from(request), request.attempt);
    let mut previews = ResultPreviews::default();
    previews.follow(transcript, aim.preview_tokens(settings));
    let drawing = LayoutPlanner { transcript, previews: &previews, settings, aim };
    let Some(layout) = drawing.choose().or_else(|| drawing.choose_smallest()) else {
        let reason = "nothing is left to fold between what must stay, or no room for a summary";
        return Ok(Compaction::Nothing { reason: reason.into() });
    };
    let summariser = BoundarySummariser { host, settings, transcript, request, layout: &layout };
    let made = engine.fold(&summariser, &drawing, is_thrashing).await;
    engine.record(&summariser, &made);
    made.map(Compaction::Plan)
}

impl BoundaryEngine {
    /// Whether a compaction is allowed; if so, whether the window fills up again too soon.
    fn admit(&self, transcript: &Transcript, request: &CompactRequest) -> Result<bool, String> {
        let settings = &self.settings;
        let is_by_hand = request.force || request.trigger == Trigger::Manual;
        let (open, is_thrashing) = self.sessions.with_session(&request.session, |memory| {
            memory.attempts.record_outcome(transcript);
            let open = memory.attempts.open_reason(settings.breaker_failures);
            (open, memory.attempts.is_thrashing(transcript))
        });
        match open {
            _ if !settings.compaction => Err("compaction is switched off".into()),
            _ if is_by_hand => Ok(is_thrashing),
            _ if !settings.auto_compaction => Err("automatic compaction is switched off".into()),
            Some(reason) => Err(reason),
            None => Ok(is_thrashing),
        }
    }

    async fn fold(
        &self,
        summariser: &BoundarySummariser<'_>,
        drawing: &LayoutPlanner<'_>,
        is_thrashing: bool,
    ) -> Result<Plan> {
        let BoundarySummariser { host, transcript, layout, .. } = *summariser;
        let session = &summariser.request.session;
        self.update_notes(transcript, session);
        let running = self.notes.notes_covering(transcript, session, layout.tail);
        let mut story = summariser.summarise(running).await?;
        story.text = append_ledger(&story.text, &layout.ledger, layout.ledger_limits);
        self.notes.store(host, session).await;
        let has_history = host.info().capabilities.iter().any(|name| name == capability::HISTORY);
        let fold = &layout.fold;
        let message = layout::summary_message(transcript, session, fold, &story, has_history);
        let attachments = self.attachments(summariser, &drawing.aim, &message);
        let attachments = attachments.as_deref();
        let mut plan = layout::build_plan(
            transcript,
            drawing.previews,
            fold,
            &message,
            attachments,
            &story.writer,
        );
        plan.extras.notes = story.notes.iter().map(|note| PlanNote::new(LAYER, note)).collect();
        if is_thrashing {
            host.log(LogLevel::Warn, THRASHING);
            plan.extras.notes.push(PlanNote::new("thrash guard", THRASHING));
        }
        plan.extras.details = fold.details(transcript);
        Ok(plan)
    }

    /// Only the first attempt adds attachments: later ones exist because the first was too large.
    fn attachments(
        &self,
        summariser: &BoundarySummariser<'_>,
        aim: &BoundaryTarget,
        message: &str,
    ) -> Option<String> {
        let BoundarySummariser { transcript, request, layout, .. } = summariser;
        if request.attempt > 1 {
            return None;
        }
        let settings = &self.settings.attachments;
        let wanted_tokens = share_of(aim.base_tokens(), settings.total_share);
        let left_tokens = layout.room_tokens.saturating_sub(layout::message_tokens(message));
        let sub_agents = self.sub_agents.running_lines(&request.session, request.now_ms);
        let room_tokens = wanted_tokens.min(left_tokens);
        render_attachments(transcript, layout.tail, &sub_agents, settings.limits(), room_tokens)
    }

    fn record(&self, summariser: &BoundarySummariser<'_>, made: &Result<Plan>) {
        let transcript = summariser.transcript;
        let kept_answers = attempts::count_answers(transcript, summariser.layout.tail);
        self.sessions.with_session(&summariser.request.session, |memory| match made {
            Ok(_) => memory.attempts.record_plan(transcript, kept_answers),
            Err(error) if error.kind == ErrorKind::Cancelled => {}
            Err(_) => memory.attempts.record_failure(),
        });
    }
}
