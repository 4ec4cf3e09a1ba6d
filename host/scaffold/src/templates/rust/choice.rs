//! The strategy: the first request and the newest turns stay as they are. Of the turns between them
//! the tool results become one line each, and the oldest are left out where even that is too much.
//!
//! ```text
//!  conversation   task ── old turns ───────── older turns ──────── newest turns ──
//!  model sees     task                        [one line each]      newest turns
//!                              up to half of the budget │ a quarter to a half of it
//! ```

use std::collections::BTreeSet;

use ctxhost_engine_api::transcript::tokens;
use ctxhost_engine_api::{Entry, EntryKind, Flags, Plan, Role, Transcript};

/// The layer that reports name beside what it did.
const LAYER: &str = "old results";

/// The plan for a budget. The same transcript and budget always make the same plan.
pub(crate) fn choose(transcript: &Transcript, budget: u64, short_result_tokens: u64) -> Plan {
    if transcript.total_tokens() <= budget {
        return Plan::keep_all(transcript.len());
    }
    let anchors = Anchors::of(transcript);
    let recent = recent(transcript, budget, anchors.tokens(transcript, transcript.len() as u64));
    let tail_tokens = transcript.tokens(recent..transcript.len() as u64);

    // What the newest turns leave is for the older ones, newest first, down to where a cut is safe.
    let room = budget.saturating_sub(tail_tokens).min(budget / 2);
    let mut room = room.saturating_sub(anchors.tokens(transcript, recent));
    let mut oldest = recent;
    for entry in transcript.range(0..recent).rev().filter(|entry| !anchors.hold(entry)) {
        let line = line_for(&entry, short_result_tokens);
        let cost = line.map_or(entry.tokens(), |line| tokens::estimate(&line));
        let Some(left) = room.checked_sub(cost) else {
            break;
        };
        room = left;
        if entry.is_cut_point() {
            oldest = entry.seq();
        }
    }

    let mut plan = Plan::default();
    for entry in transcript.range(0..recent) {
        if anchors.hold(&entry) {
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

/// Where the newest turns begin, which stay as they are.
///
/// They get between a quarter and a half of the budget. Their beginning moves in steps of a quarter,
/// so that most requests begin with the bytes of the one before: what a provider has in its cache is
/// cheap, and every move throws it away.
fn recent(transcript: &Transcript, budget: u64, anchor_tokens: u64) -> u64 {
    let total = transcript.total_tokens();
    let step = (budget / 4).max(1);
    let before = total.next_multiple_of(step).saturating_sub(budget / 2);
    let tail = total.saturating_sub(before).min(budget.saturating_sub(anchor_tokens));
    let newest = transcript.last().map_or(0, |entry| entry.frame());
    transcript.tail_within(tail).min(newest)
}

/// What stands for an old tool result; `None` for an entry that stays as it is.
fn line_for(entry: &Entry<'_>, short_result_tokens: u64) -> Option<String> {
    if entry.role() != Role::Tool || entry.tokens() <= short_result_tokens {
        return None;
    }
    let line = format!("[an old tool result of {} tokens was here]", entry.tokens());
    (tokens::estimate(&line) < entry.tokens()).then_some(line)
}

/// The frames that always stay. A frame is what must not be separated: calls with their results, or
/// one entry by itself. The host puts these back where a plan leaves them out, so the budget has to
/// be worked out with them.
struct Anchors(BTreeSet<u64>);

impl Anchors {
    /// What the host pins (rules, the first task), summaries of compactions, the newest message of the
    /// person, the newest frame of all.
    fn of(transcript: &Transcript) -> Anchors {
        let stays = |entry: &Entry<'_>| {
            entry.has(Flags::PINNED) || entry.kind() == EntryKind::CompactionSummary
        };
        let newest = transcript.newest_user_message().into_iter().chain(transcript.last());
        let entries = transcript.iter().filter(stays).chain(newest);
        Anchors(entries.map(|entry| entry.frame()).collect())
    }

    fn hold(&self, entry: &Entry<'_>) -> bool {
        self.0.contains(&entry.frame())
    }

    /// What those before a position cost.
    fn tokens(&self, transcript: &Transcript, end: u64) -> u64 {
        let held = transcript.range(0..end).filter(|entry| self.hold(entry));
        held.map(|entry| entry.tokens()).sum()
    }
}
