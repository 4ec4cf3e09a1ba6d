//! A compaction that folds nothing: long results become lines or are cut, where no whole turn can be folded.

use ctxhost_engine_api::{CompactRequest, Compaction, Entry, Flags, Plan, Role, Transcript};

use crate::cuts::trailing_frame;
use crate::live_round::LiveRoundCuts;
use crate::masks::mask_entry;
use crate::name_ledger::NameLedger;
use crate::replacement::{Replacement, ReplacementMap};
use crate::settings::share_of;

/// Size after the compaction as a share of the smaller of budget and transcript.
const KEPT_SHARE: f64 = 0.6;
/// A shorter result stays, in tokens: its line would hardly say less.
const LONG_TOKENS: u64 = 200;
/// Names in the line of a result, in weighted characters: about five paths.
const NAME_CHARS: u64 = 160;
/// Share of the budget below which nothing is shortened.
// Detail is worth more than room that is not needed.
const LEAST_USE_SHARE: f64 = 0.1;
/// The least progress, as a share of the budget, that the host accepts by default.
const PROGRESS_SHARE: f64 = 0.05;

/// The answer to a requested compaction that finds nothing to fold, in the name of `layer`: a plan with shorter results,
/// or `reason` if that makes no progress by the host's rule.
pub fn shorten_or_nothing(
    transcript: &Transcript,
    request: &CompactRequest,
    layer: &'static str,
    reason: &str,
) -> Compaction {
    let tokens = transcript.total_tokens();
    // Each further attempt aims lower, because the last result was too large.
    let share = KEPT_SHARE / f64::from(request.attempt.clamp(1, 3));
    let limit_tokens = share_of(request.budget.min(tokens), share);
    let is_used = tokens > share_of(request.budget, LEAST_USE_SHARE);
    match is_used.then(|| shorter_results(transcript, limit_tokens, layer)).flatten() {
        Some(plan) if makes_progress(tokens, plan.estimated_tokens, request.budget) => {
            Compaction::Plan(plan)
        }
        _ => Compaction::Nothing { reason: reason.into() },
    }
}

/// A plan with long results as lines, oldest first, then with the newest round cut, until it takes at most
/// `limit_tokens`; `None` if nothing is shorter.
fn shorter_results(
    transcript: &Transcript,
    limit_tokens: u64,
    layer: &'static str,
) -> Option<Plan> {
    let mut names = NameLedger::default();
    transcript.iter().for_each(|entry| names.read_entry(&entry));
    let mut shown = ReplacementMap::default();
    let live = trailing_frame(transcript);
    let mut tokens = transcript.total_tokens();
    for entry in transcript.range(0..live).filter(is_long_result) {
        if tokens <= limit_tokens {
            break;
        }
        if let Some(line) = mask_entry(transcript, &entry, &names, NAME_CHARS, layer) {
            tokens -= entry.tokens().saturating_sub(line.tokens());
            shown.insert(&entry, line);
        }
    }
    let live_tokens = transcript.tokens(live..transcript.len() as u64);
    let other_tokens = tokens.saturating_sub(live_tokens);
    let cuts =
        LiveRoundCuts::within(transcript, limit_tokens.saturating_sub(other_tokens), |entry| {
            shown.get(entry.seq()).map_or(entry.tokens(), Replacement::tokens)
        });
    let round = live..transcript.len() as u64;
    for (entry, cut) in cuts.replacements(transcript, round, layer) {
        if is_long_result(&entry) || entry.has(Flags::TOOL_CALLS) {
            shown.insert(&entry, cut);
        }
    }
    let plan = shown.plan(transcript);
    (plan.estimated_tokens < transcript.total_tokens()).then_some(plan)
}

fn is_long_result(entry: &Entry<'_>) -> bool {
    entry.role() == Role::Tool && entry.tokens() > LONG_TOKENS
}

/// The host's rule, with its default margin.
fn makes_progress(before_tokens: u64, after_tokens: u64, budget_tokens: u64) -> bool {
    let target_tokens = budget_tokens.saturating_sub(share_of(budget_tokens, PROGRESS_SHARE));
    let least_tokens = share_of(before_tokens.min(budget_tokens), PROGRESS_SHARE).max(1);
    after_tokens <= target_tokens && before_tokens.saturating_sub(after_tokens) >= least_tokens
}

#[cfg(test)]
mod tests {
    use ctxhost_engine_api::testing::{TranscriptBuilder, plan_fault};

    use super::*;

    fn turn(rounds: usize, lines: usize) -> TranscriptBuilder {
        let mut talk = TranscriptBuilder::new();
        talk.user("Read everything.");
        for round in 0..rounds {
            let id = format!("c{round}");
            talk.calls(&[(&id, "read", r#"{"path":"src/a.rs"}"#)]);
            talk.result(&id, "read", &"let a = src/b.rs;\n".repeat(lines));
        }
        talk
    }

    fn compact(talk: &TranscriptBuilder, budget: u64) -> Compaction {
        let request = CompactRequest { budget, attempt: 1, ..CompactRequest::default() };
        shorten_or_nothing(&talk.transcript(), &request, "test", "nothing")
    }

    #[test]
    fn old_results_become_lines_before_the_newest_is_cut() {
        let talk = turn(10, 200);
        let Compaction::Plan(plan) = compact(&talk, 6_000) else { panic!() };
        let transcript = talk.transcript();
        assert_eq!(plan_fault(&plan, &transcript), None);
        assert!(plan.estimated_tokens <= 3_600, "{}", plan.estimated_tokens);
        let items = plan.project(&transcript);
        assert_eq!(items.len(), 21);
        assert!(items[2].text().contains("src/b.rs") && items[2].tokens() < 60);
        assert_eq!(items[20].text(), transcript.get(20).unwrap().text());
    }

    #[test]
    fn the_newest_result_is_cut_where_it_is_the_only_one() {
        let Compaction::Plan(plan) = compact(&turn(1, 4_000), 6_000) else { panic!() };
        assert!((3_000..=3_600).contains(&plan.estimated_tokens), "{}", plan.estimated_tokens);
    }

    #[test]
    fn what_is_short_stays() {
        for (talk, budget) in [(turn(4, 10), 600), (turn(0, 0), 600), (turn(2, 100), 60_000)] {
            assert!(matches!(compact(&talk, budget), Compaction::Nothing { .. }));
        }
        let mut chat = TranscriptBuilder::new();
        chat.user(&"word ".repeat(9_000));
        assert!(matches!(compact(&chat, 6_000), Compaction::Nothing { .. }));
    }
}
