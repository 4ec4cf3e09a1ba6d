//! The strategy: keeps the first request and the newest turns. Between them, tool results are replaced by
//! one line each, and the oldest turns are left out if that is not enough.
//!
//! ```text
//!  conversation   task ── oldest turns ────── older turns ──────── newest turns ──
//!  model reads    task                        [one line each]      newest turns
//!                              up to half of the budget │ a quarter to a half of it
//! ```

use std::collections::BTreeSet;

use ctxhost_engine_api::transcript::tokens;
use ctxhost_engine_api::{Entry, EntryKind, Flags, Plan, Role, Transcript};

/// The layer that reports show with each operation.
const LAYER: &str = "old results";

/// Returns the plan for a budget. It depends on transcript and budget only.
pub(crate) fn choose(transcript: &Transcript, budget: u64, short_result_tokens: u64) -> Plan {
    if transcript.total_tokens() <= budget {
        return Plan::keep_all(transcript.len());
    }
    let pinned = PinnedFrames::new(transcript);
    let recent = recent(transcript, budget, pinned.tokens(transcript, transcript.len() as u64));
    let tail_tokens = transcript.tokens(recent..transcript.len() as u64);

    // The rest of the budget goes to older turns, newest first, down to a safe cut.
    let rest = budget.saturating_sub(tail_tokens).min(budget / 2);
    let mut rest = rest.saturating_sub(pinned.tokens(transcript, recent));
    let mut oldest = recent;
    for entry in transcript.range(0..recent).rev().filter(|entry| !pinned.contains(entry)) {
        let line = line_for(&entry, short_result_tokens);
        let cost = line.map_or(entry.tokens(), |line| tokens::estimate(&line));
        let Some(left) = rest.checked_sub(cost) else {
            break;
        };
        rest = left;
        if entry.is_cut_point() {
            oldest = entry.seq();
        }
    }

    let mut plan = Plan::default();
    for entry in transcript.range(0..recent) {
        if pinned.contains(&entry) {
            plan.keep(entry.seq()..entry.seq() + 1);
        } else if entry.seq() >= oldest {
            match line_for(&entry, short_result_tokens) {
                Some(line) => plan.replace_text(entry.seq(), line).note(LAYER, "one line each"),
                None => plan.keep(entry.seq()..entry.seq() + 1),
            };
        }
    }
    plan.keep(recent..transcript.len() as u64);
    plan
}

/// The position of the first of the newest turns, which are kept unchanged.
///
/// They get between a quarter and a half of the budget.
fn recent(transcript: &Transcript, budget: u64, pinned_tokens: u64) -> u64 {
    let total = transcript.total_tokens();
    // In steps of a quarter: most requests then start with the bytes of the previous one, which the provider
    // has cached.
    let step = (budget / 4).max(1);
    let before = total.next_multiple_of(step).saturating_sub(budget / 2);
    let tail = total.saturating_sub(before).min(budget.saturating_sub(pinned_tokens));
    let newest = transcript.last().map_or(0, |entry| entry.frame());
    transcript.tail_within(tail).min(newest)
}

/// The line that replaces an old tool result; `None` for an entry that is kept unchanged.
fn line_for(entry: &Entry<'_>, short_result_tokens: u64) -> Option<String> {
    if entry.role() != Role::Tool || entry.tokens() <= short_result_tokens {
        return None;
    }
    let line = format!("[an old tool result of {} tokens was here]", entry.tokens());
    (tokens::estimate(&line) < entry.tokens()).then_some(line)
}

/// The frames that every plan keeps. A frame is a group that must stay together: calls with their results,
/// or a single entry. The host reinserts missing ones, so their tokens must be part of the budget.
struct PinnedFrames(BTreeSet<u64>);

impl PinnedFrames {
    /// The pinned entries (rules, the first task), summaries of compactions, the newest user message, and the
    /// newest frame.
    fn new(transcript: &Transcript) -> PinnedFrames {
        let is_pinned = |entry: &Entry<'_>| {
            entry.has(Flags::PINNED) || entry.kind() == EntryKind::CompactionSummary
        };
        let newest = transcript.newest_user_message().into_iter().chain(transcript.last());
        let entries = transcript.iter().filter(is_pinned).chain(newest);
        PinnedFrames(entries.map(|entry| entry.frame()).collect())
    }

    fn contains(&self, entry: &Entry<'_>) -> bool {
        self.0.contains(&entry.frame())
    }

    /// The tokens of those before a position.
    fn tokens(&self, transcript: &Transcript, end: u64) -> u64 {
        let held = transcript.range(0..end).filter(|entry| self.contains(entry));
        held.map(|entry| entry.tokens()).sum()
    }
}
