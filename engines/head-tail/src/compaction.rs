//! One compaction: cut, told, and answered as a plan that is smaller.

use std::ops::Range;

use ctxhost_engine_api::serde_json::json;
use ctxhost_engine_api::transcript::tokens;
use ctxhost_engine_api::{
    CompactRequest, Compaction, EngineError, Host, LogLevel, Note, Plan, Result, Role, Transcript,
    Trigger,
};
use ctxhost_engine_kit::summary::{Provenance, wrap};
use ctxhost_engine_kit::text::{Limit, grouped, truncate};

use crate::LAYER;
use crate::brakes::Brakes;
use crate::cut::{self, Cut};
use crate::notes;
use crate::settings::{Settings, share_of};
use crate::summary::{self, Story};

/// Where not even the newest frame fits, results in what stays are cut to the first of these that
/// helps, in weighted characters.
const RESULT_CAPS_CHARS: [u64; 8] = [64_000, 32_000, 16_000, 8_000, 4_000, 2_000, 1_000, 400];

/// What one compaction works with.
#[derive(Clone, Copy)]
pub(crate) struct Desk<'a> {
    pub(crate) host: &'a Host,
    pub(crate) settings: &'a Settings,
    pub(crate) transcript: &'a Transcript,
    pub(crate) request: &'a CompactRequest,
}

/// Works out a compaction. `brakes` lends the session's brakes, never over an `await`.
pub(crate) async fn compact(
    desk: &Desk<'_>,
    brakes: impl Fn(&mut dyn FnMut(&mut Brakes)),
) -> Result<Compaction> {
    let Desk { settings, request, transcript, .. } = *desk;
    let now_ms = request.now_ms;
    let (mut resting, mut may_ask) = (None, false);
    brakes(&mut |brakes| {
        if request.force || request.trigger == Trigger::Manual {
            brakes.release();
        }
        resting = brakes.resting(now_ms, settings);
        may_ask = brakes.may_ask_model(now_ms, settings);
    });
    if let Some(reason) = resting {
        desk.host.log(LogLevel::Warn, &reason);
        return Ok(Compaction::Nothing { reason });
    }
    let trigger_tokens = settings.trigger(request.model.window_tokens, request.budget);
    let cut = cut::choose(transcript, trigger_tokens, request.budget, request.attempt, settings);
    let before_tokens = transcript.total_tokens();
    let plan = match &cut {
        Some(cut) => told(desk, cut, may_ask, &brakes).await?,
        None => None,
    };
    let after_tokens = plan.as_ref().map_or(before_tokens, |plan| plan.estimated_tokens);
    brakes(&mut |brakes| {
        brakes.record_saving(before_tokens, after_tokens, now_ms, settings);
    });
    Ok(match plan.filter(|_| after_tokens < before_tokens) {
        Some(plan) => Compaction::Plan(plan),
        None => Compaction::Nothing { reason: "there is no middle worth a summary".into() },
    })
}

/// The plan of a cut, with its summary.
async fn told(
    desk: &Desk<'_>,
    cut: &Cut,
    may_ask: bool,
    brakes: &impl Fn(&mut dyn FnMut(&mut Brakes)),
) -> Result<Option<Plan>> {
    let Desk { settings, request, .. } = *desk;
    let target_tokens = share_of(request.budget, settings.target_share);
    let cap_chars = result_cap(desk.transcript, cut, target_tokens);
    if cut.middle.is_empty() {
        return Ok(Some(plan_of(desk, cut, None, cap_chars)));
    }
    let room_tokens = room(desk, cut, target_tokens);
    let story = summary::tell(desk, cut, room_tokens, may_ask).await?;
    if let Some(outcome) = &story.model {
        brakes(&mut |brakes| brakes.record_model(outcome.is_err(), request.now_ms));
    }
    match &story.model {
        Some(Err(error)) if settings.abort_on_summary_failure => Err(EngineError::new(
            error.kind,
            format!("{error}; the history is kept, as abort_on_summary_failure asks"),
        )),
        _ => Ok(Some(plan_of(desk, cut, Some(&story), cap_chars))),
    }
}

/// What a summary may take at most: more than it should, as long as everything still fits.
fn room(desk: &Desk<'_>, cut: &Cut, target_tokens: u64) -> u64 {
    let most = share_of(desk.request.budget, desk.settings.summary_budget_share);
    let free = target_tokens.saturating_sub(cut.kept_tokens);
    most.min(free).min(desk.settings.summary_max_tokens).max(cut.summary_tokens)
}

/// To what results in what stays must be cut, in weighted characters; `None` where all fits.
fn result_cap(transcript: &Transcript, cut: &Cut, target_tokens: u64) -> Option<u64> {
    if cut.after_tokens() <= target_tokens {
        return None;
    }
    let after_tokens = |cap_chars: u64| -> u64 {
        let kept = cut.kept(transcript.len() as u64).into_iter();
        let capped = kept.flat_map(|range| transcript.range(range)).map(|entry| {
            let cap_tokens = cap_chars / tokens::CHARS_PER_TOKEN;
            if entry.role() == Role::Tool { entry.tokens().min(cap_tokens) } else { entry.tokens() }
        });
        capped.sum::<u64>() + cut.summary_tokens
    };
    let helps = |cap: &&u64| after_tokens(**cap) <= target_tokens;
    RESULT_CAPS_CHARS.iter().find(helps).or(RESULT_CAPS_CHARS.last()).copied()
}

fn plan_of(desk: &Desk<'_>, cut: &Cut, story: Option<&Story>, cap_chars: Option<u64>) -> Plan {
    let transcript = desk.transcript;
    let mut plan = Plan::default();
    let mut from = 0;
    for (at, gap) in cut.middle.iter().enumerate() {
        keep(transcript, from..gap.start, cap_chars, &mut plan);
        // The summary stands where the last of the middle was: it may tell of the newest request.
        match story.filter(|_| at + 1 == cut.middle.len()) {
            Some(story) => put_in(desk, cut, story, gap.clone(), &mut plan),
            None => {
                plan.leave_out(gap.clone()).note(LAYER, "told in the summary");
            }
        }
        from = gap.end;
    }
    keep(transcript, from..transcript.len() as u64, cap_chars, &mut plan);
    plan.estimated_tokens = plan.project(transcript).iter().map(|item| item.tokens()).sum();
    let ledger = notes::files(transcript, &cut.middle);
    plan.extras.details = json!({ "readFiles": ledger.read(), "modifiedFiles": ledger.modified() });
    let failure = story.and_then(|story| story.model.as_ref()?.as_ref().err());
    let note = |error| Note::new(LAYER, format!("told without a model: {error}"));
    plan.extras.notes.extend(failure.map(note));
    plan
}

fn put_in(desk: &Desk<'_>, cut: &Cut, story: &Story, gap: Range<u64>, plan: &mut Plan) {
    let entries = cut.middle.iter().map(|gap| gap.end - gap.start).sum();
    let text = wrap(&story.text, &Provenance { entries, writer: &story.writer });
    let middle_tokens: u64 = cut.middle.iter().map(|gap| desk.transcript.tokens(gap.clone())).sum();
    let detail = format!(
        "{} entries, {} -> {} tokens, {}",
        grouped(entries),
        grouped(middle_tokens),
        grouped(tokens::estimate(&text)),
        story.writer
    );
    plan.insert(Role::User, text, gap).note(LAYER, detail);
}

/// Keeps a range, its results cut where nothing else helps.
fn keep(transcript: &Transcript, range: Range<u64>, cap_chars: Option<u64>, plan: &mut Plan) {
    let Some(cap_chars) = cap_chars else {
        plan.keep(range);
        return;
    };
    for entry in transcript.range(range) {
        let is_over = entry.tokens() > cap_chars / tokens::CHARS_PER_TOKEN;
        if entry.role() != Role::Tool || !is_over {
            plan.keep(entry.seq()..entry.seq() + 1);
            continue;
        }
        let limit = Limit { min_keep_chars: cap_chars / 4, ..Limit::chars(cap_chars) };
        let notice = |count| format!("\n[{} characters left out]", grouped(count));
        let text = match entry.text().trim() {
            "" => "[an image was left out]".into(),
            text => truncate(text, limit, notice),
        };
        plan.replace_text(entry.seq(), text).note(LAYER, format!("cut to {cap_chars} chars"));
    }
}
