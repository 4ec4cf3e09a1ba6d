//! A sliding window that keeps the newest whole turns within a budget.
//!
//! ```text
//!  entries   P . . . . . . u . . . u . . F F F     P pinned, u user message, F newest frame
//!  kept      P             └──────────────────     the newest whole turns, from the cut on
//!  kept      P                     u     └────     a turn is too long: its newest frames
//! ```
//!
//! If the newest frame alone is too long, its results are cut.
//!
//! A move frees more than it needs, so that the cached prefix stays valid for many requests. The
//! caller supplies the cost of ranges, because engines may replace entries.

mod request_texts;
mod stored_cut;

use std::collections::BTreeMap;
use std::ops::Range;

use ctxhost_engine_api::transcript::tokens;
use ctxhost_engine_api::{EntryKind, Flags, Plan, Role, Transcript};
use serde::{Deserialize, Serialize};

use crate::cursor::TranscriptCursor;
use crate::cuts::trailing_frame;
use crate::live_round::LiveRoundCuts;
use crate::requests::{LONG_SLACK_PART, RequestForm, RequestList, RequestRoom};
use crate::settings::share_of;

use request_texts::RequestTexts;
pub use stored_cut::StoredCut;

/// Maximum of [`SlidingRule::slack_share`].
// With a larger share a move would keep hardly anything.
pub const SLACK_SHARE_MAX: f64 = 0.9;
/// Maximum of [`SlidingRule::request_share`].
// With a larger share the newest turns would be the smaller part.
pub const REQUEST_SHARE_MAX: f64 = 0.5;

/// The settings of a sliding window.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SlidingRule {
    /// Keep the first user message, even if the host has not pinned it.
    pub keep_first_task: bool,
    /// Insert a line with the number of entries left out.
    pub leave_out_note: bool,
    /// Share of the budget that a move frees, 0.0 … 0.9.
    pub slack_share: f64,
    /// Share of the budget for user requests before the kept turns, newest first.
    pub request_share: f64,
}

impl SlidingRule {
    /// The size after a move: the budget less the slack.
    pub fn target_tokens(&self, budget_tokens: u64) -> u64 {
        (budget_tokens as f64 * (1.0 - self.slack_share)) as u64
    }

    /// Budgets up to this size do not move the window.
    fn about_the_same(&self, budget_tokens: u64) -> u64 {
        (budget_tokens as f64 * (1.0 + self.slack_share)) as u64
    }

    fn note_tokens(&self, entries: u64) -> u64 {
        if self.leave_out_note && entries > 0 { tokens::estimate(&note(entries)) } else { 0 }
    }
}

/// The window of one session between two requests.
#[derive(Debug, Default)]
pub struct SlidingWindow {
    cursor: TranscriptCursor,
    /// Pinned entries, the first task and compaction summaries; never dropped.
    protected: Vec<u64>,
    newest_user: Option<u64>,
    requests: RequestList,
    cut: Option<WindowCut>,
}

/// The start of the kept tail, reused while it is valid.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WindowCut {
    seq: u64,
    /// The requests kept before it.
    requests: Vec<u64>,
    /// Those of which the images and files do not fit.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    text_only: Vec<u64>,
    /// Those of which the text does not fit, with the size of their excerpts in tokens.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    shortened: Vec<(u64, u64)>,
    /// The user message kept before a cut inside its turn.
    lead: Option<u64>,
    /// The budget it was made for.
    budget_tokens: u64,
    /// Results that did not fit when it was made.
    #[serde(default, skip_serializing_if = "LiveRoundCuts::is_empty")]
    cuts: LiveRoundCuts,
}

impl WindowCut {
    /// Its position.
    pub fn start(&self) -> u64 {
        self.seq
    }

    /// The requests before it with their forms.
    fn forms(&self) -> BTreeMap<u64, RequestForm> {
        let whole = self.requests.iter().map(|seq| (*seq, RequestForm::Whole));
        let texts = self.text_only.iter().map(|seq| (*seq, RequestForm::Text));
        let shortened =
            self.shortened.iter().map(|(seq, tokens)| (*seq, RequestForm::Short(*tokens)));
        let mut forms: BTreeMap<u64, RequestForm> = whole.chain(texts).chain(shortened).collect();
        // The question of the turn that is cut is shown whole, and so are those that are now behind the cut.
        forms.retain(|seq, _| self.lead != Some(*seq) && *seq < self.seq);
        forms
    }
}

impl SlidingWindow {
    /// The place of the last move; `None` if everything is kept.
    pub fn cut(&self) -> Option<&WindowCut> {
        self.cut.as_ref()
    }

    /// Continues with the window of an earlier process. Call it after [`follow`](Self::follow).
    pub fn restore(&mut self, cut: Option<WindowCut>) {
        self.cut = cut;
    }

    /// Drops the cuts of results before a position, because they are shown in another form from now on.
    pub fn drop_cuts_before(&mut self, seq: u64) {
        self.cut.iter_mut().for_each(|cut| cut.cuts.drop_before(seq));
    }

    /// Reads new entries; starts over if the transcript is another one.
    pub fn follow(&mut self, transcript: &Transcript, rule: &SlidingRule) {
        let new = self.cursor.advance(transcript);
        if new.start == 0 {
            let cursor = std::mem::take(&mut self.cursor);
            *self = SlidingWindow { cursor, ..SlidingWindow::default() };
        }
        for entry in transcript.range(new) {
            // After a compaction the first user message is not the task any more.
            let is_first_task = rule.keep_first_task
                && entry.is_user_message()
                && self.newest_user.is_none()
                && !self.begins_with_summary(transcript);
            let is_summary = entry.kind() == EntryKind::CompactionSummary;
            if is_first_task || is_summary || entry.has(Flags::PINNED) {
                self.protected.push(entry.seq());
            }
            if entry.is_user_message() {
                self.newest_user = Some(entry.seq());
            }
            self.requests.read_entry(transcript, &entry);
        }
    }

    /// The current window if it still fits. `tokens` is the cost of a range.
    pub fn select_unchanged(
        &self,
        transcript: &Transcript,
        budget_tokens: u64,
        rule: &SlidingRule,
        tokens: &impl Fn(Range<u64>) -> u64,
    ) -> Option<EntrySelection> {
        let selection = match self.valid_cut(transcript, budget_tokens, rule) {
            Some(cut) => self.selection_of(transcript, cut),
            None => self.selection(transcript, 0, None, &[]),
        };
        (selection.tokens(rule, tokens) <= budget_tokens).then_some(selection)
    }

    /// Whether the window was moved, and that place is still valid.
    pub fn is_moved(
        &self,
        transcript: &Transcript,
        budget_tokens: u64,
        rule: &SlidingRule,
    ) -> bool {
        self.valid_cut(transcript, budget_tokens, rule).is_some()
    }

    fn valid_cut(
        &self,
        transcript: &Transcript,
        budget_tokens: u64,
        rule: &SlidingRule,
    ) -> Option<&WindowCut> {
        self.cut.as_ref().filter(|cut| {
            // A budget that rose a little must not move the window: the prefix is worth more.
            budget_tokens <= rule.about_the_same(cut.budget_tokens)
                && transcript.get(cut.seq).is_some_and(|entry| entry.is_cut_point())
        })
    }

    /// Moves the window, so that its slack is free again. Protected entries stay, even over budget.
    pub fn slide(
        &mut self,
        transcript: &Transcript,
        budget_tokens: u64,
        rule: &SlidingRule,
        tokens: &impl Fn(Range<u64>) -> u64,
    ) -> EntrySelection {
        let room_tokens = budget_tokens.saturating_sub(rule.note_tokens(transcript.len() as u64));
        let always_tokens: u64 = self.protected.iter().map(|&seq| tokens(seq..seq + 1)).sum();
        let lead_tokens = self.lead_tokens(self.newest_user, tokens);
        let cuts =
            LiveRoundCuts::fit(transcript, always_tokens + lead_tokens, budget_tokens, |entry| {
                entry.tokens()
            });
        let tokens =
            &|range: Range<u64>| tokens(range.clone()).saturating_sub(cuts.saved_tokens(range));
        // A note is known only with the place of the cut.
        let most_tokens = room_tokens.saturating_sub(self.requests.most_note_tokens());
        let free_tokens =
            rule.target_tokens(room_tokens).min(most_tokens).saturating_sub(always_tokens);
        let request_tokens = share_of(budget_tokens, rule.request_share).min(free_tokens / 2);
        let tail = tail_within(transcript, free_tokens - request_tokens, tokens);
        // The share for requests is reserved first; what they do not use is added to the tail.
        let is_protected = |seq| self.protected.contains(&seq);
        let room = RequestRoom {
            tokens: request_tokens,
            long_tokens: (most_tokens - rule.target_tokens(room_tokens).min(most_tokens))
                / LONG_SLACK_PART,
            may_shorten: true,
        };
        let chosen = self.requests.choose_in(0..tail, room, is_protected);
        let requests: Vec<u64> = chosen.keys().copied().collect();
        let texts = RequestTexts::new(transcript, &self.requests, chosen.clone(), is_protected);
        let size = |&seq: &u64| texts.shown_tokens(seq..seq + 1, tokens(seq..seq + 1));
        let spent_tokens: u64 = requests.iter().map(size).sum();
        // Long requests take a part of the slack.
        let target_tokens = free_tokens - spent_tokens.min(request_tokens);
        let from = tail_within(transcript, target_tokens, tokens);
        let turn = self.turn_from(transcript, from);
        let whole = turn.or_else(|| {
            let newest = transcript.cut_at_or_before(self.newest_user?);
            let selection = self.selection(transcript, newest, None, &requests);
            let selection = EntrySelection { texts: texts.clone(), ..selection };
            (selection.tokens(rule, tokens) <= budget_tokens).then_some(newest)
        });
        // A turn longer than the budget is cut between its frames, behind its question.
        let (seq, lead) = match whole {
            Some(seq) => self
                .cut_in_turn_before(transcript, seq, target_tokens, tokens)
                .unwrap_or((seq, None)),
            None => (self.frame_from(transcript, target_tokens, tokens), self.newest_user),
        };
        let is_text =
            |(seq, form): (&u64, &RequestForm)| (*form == RequestForm::Text).then_some(*seq);
        let is_short = |(seq, form): (&u64, &RequestForm)| match form {
            RequestForm::Short(tokens) => Some((*seq, *tokens)),
            _ => None,
        };
        let cut = WindowCut {
            seq,
            text_only: chosen.iter().filter_map(is_text).collect(),
            shortened: chosen.iter().filter_map(is_short).collect(),
            requests,
            lead,
            budget_tokens,
            cuts,
        };
        let selection = self.selection_of(transcript, &cut);
        self.cut = (seq > 0 || !cut.cuts.is_empty()).then_some(cut);
        selection
    }

    /// The entries that a cut keeps.
    fn selection_of(&self, transcript: &Transcript, cut: &WindowCut) -> EntrySelection {
        let is_shown = |seq| seq >= cut.seq || self.protected.contains(&seq);
        let noted = cut.lead.into_iter().chain(self.requests.refer_before(cut.seq));
        let texts = RequestTexts::new(transcript, &self.requests, cut.forms(), is_shown)
            .with_notes(&self.requests, noted, is_shown);
        let selection = self.selection(transcript, cut.seq, cut.lead, &cut.requests);
        EntrySelection { cuts: cut.cuts.clone(), texts, ..selection }
    }

    /// The first turn that begins at or after `from`, or the newest turn.
    fn turn_from(&self, transcript: &Transcript, from: u64) -> Option<u64> {
        let newest = transcript.cut_at_or_before(self.newest_user?);
        let mut entries = transcript.range(from..newest);
        let turn = entries.find(|entry| entry.is_user_message() && entry.is_cut_point());
        (from <= newest).then(|| turn.map_or(newest, |entry| entry.seq()))
    }

    /// A cut inside the turn before `turn`, and the request of that turn, if whole turns would leave half of the room
    /// empty: an agent's turn may be the whole session up to the user's next sentence.
    fn cut_in_turn_before(
        &self,
        transcript: &Transcript,
        turn: u64,
        target_tokens: u64,
        tokens: &impl Fn(Range<u64>) -> u64,
    ) -> Option<(u64, Option<u64>)> {
        let turn_tokens = tokens(turn..transcript.len() as u64);
        if turn_tokens > target_tokens / 2 {
            return None;
        }
        let lead = self.requests.newest_before(turn);
        let lead_tokens = self.lead_tokens(lead, tokens);
        // A question that is a large paste would leave no room for the work on it.
        let lead = lead.filter(|_| lead_tokens <= target_tokens / 4);
        let room_tokens = target_tokens.saturating_sub(lead.map_or(0, |_| lead_tokens));
        let from = tail_within(transcript, room_tokens, tokens);
        (from < turn).then_some((from, lead))
    }

    /// The start of the newest frames of a turn that is too long; at least one frame.
    fn frame_from(
        &self,
        transcript: &Transcript,
        target_tokens: u64,
        tokens: &impl Fn(Range<u64>) -> u64,
    ) -> u64 {
        let lead_tokens = self.lead_tokens(self.newest_user, tokens);
        let from = tail_within(transcript, target_tokens.saturating_sub(lead_tokens), tokens);
        from.min(trailing_frame(transcript))
    }

    /// Size of the question before a cut inside its turn, with what it refers to, in tokens.
    fn lead_tokens(&self, lead: Option<u64>, tokens: &impl Fn(Range<u64>) -> u64) -> u64 {
        let is_protected = |seq| self.protected.contains(&seq);
        let note_tokens = |seq| {
            let antecedent = self.requests.antecedent_of(seq, is_protected);
            antecedent.map_or(0, |antecedent| tokens::estimate(&antecedent.note()))
        };
        let entry_tokens = |seq| if is_protected(seq) { 0 } else { tokens(seq..seq + 1) };
        lead.map_or(0, |seq| entry_tokens(seq) + note_tokens(seq))
    }

    fn selection(
        &self,
        transcript: &Transcript,
        cut: u64,
        lead: Option<u64>,
        requests: &[u64],
    ) -> EntrySelection {
        let protected = self.protected.iter().chain(requests).copied();
        let mut singles: Vec<u64> = protected.chain(lead).collect();
        singles.sort_unstable();
        singles.dedup();
        let mut kept: Vec<Range<u64>> = Vec::new();
        let before = singles.into_iter().filter(|&seq| seq < cut).map(|seq| seq..seq + 1);
        let tail = std::iter::once(cut..transcript.len() as u64);
        for range in before.chain(tail).filter(|range| !range.is_empty()) {
            match kept.last_mut() {
                Some(last) if range.start <= last.end => last.end = range.end.max(last.end),
                _ => kept.push(range),
            }
        }
        EntrySelection { kept, ..EntrySelection::default() }
    }

    fn begins_with_summary(&self, transcript: &Transcript) -> bool {
        let is_summary = |seq: &u64| {
            transcript.get(*seq).is_some_and(|entry| entry.kind() == EntryKind::CompactionSummary)
        };
        self.protected.iter().any(is_summary)
    }
}

/// The kept entries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EntrySelection {
    kept: Vec<Range<u64>>,
    cuts: LiveRoundCuts,
    texts: RequestTexts,
}

impl EntrySelection {
    /// The kept ranges in order; the last one reaches the end.
    pub fn kept_ranges(&self) -> &[Range<u64>] {
        &self.kept
    }

    /// The kept entries that are cut.
    pub fn cuts(&self) -> &LiveRoundCuts {
        &self.cuts
    }

    /// The ranges left out.
    pub fn dropped_ranges(&self) -> impl Iterator<Item = Range<u64>> {
        let ends = std::iter::once(0).chain(self.kept.iter().map(|range| range.end));
        ends.zip(&self.kept).map(|(end, next)| end..next.start).filter(|gap| !gap.is_empty())
    }

    /// Size in tokens, including the note.
    pub fn tokens(&self, rule: &SlidingRule, tokens: &impl Fn(Range<u64>) -> u64) -> u64 {
        let cost = |range: &Range<u64>| {
            let cut_tokens =
                tokens(range.clone()).saturating_sub(self.cuts.saved_tokens(range.clone()));
            self.texts.shown_tokens(range.clone(), cut_tokens)
        };
        let kept: u64 = self.kept.iter().map(cost).sum();
        kept.saturating_add(rule.note_tokens(self.entries_left_out()))
    }

    /// Builds the plan: gaps are left out in the name of `layer`, the note is inserted before the
    /// last range, and `keep` adds each kept range.
    pub fn plan(
        &self,
        transcript: &Transcript,
        layer: &'static str,
        rule: &SlidingRule,
        tokens: &impl Fn(Range<u64>) -> u64,
        mut keep: impl FnMut(&mut Plan, Range<u64>),
    ) -> Plan {
        let mut plan = Plan { estimated_tokens: self.tokens(rule, tokens), ..Plan::default() };
        let left_out = self.entries_left_out();
        let mut end = 0;
        for (at, range) in self.kept.iter().enumerate() {
            if range.start > end {
                let gap = end..range.start;
                let detail =
                    format!("{} entries, {} tokens", range.start - end, tokens(gap.clone()));
                plan.leave_out(gap).note(layer, detail);
            }
            if left_out > 0 && rule.leave_out_note && at + 1 == self.kept.len() {
                let here = range.start..range.start;
                plan.insert(Role::User, note(left_out), here).note(layer, "what was left out");
            }
            keep(&mut plan, range.clone());
            end = range.end;
        }
        self.cuts.apply(&mut plan, transcript, layer);
        self.texts.apply(&mut plan, layer);
        plan
    }

    fn entries_left_out(&self) -> u64 {
        self.dropped_ranges().map(|gap| gap.end - gap.start).sum()
    }
}

/// The line that replaces the dropped entries. It is constant while the cut is.
fn note(entries: u64) -> String {
    match entries {
        1 => "[1 earlier entry left out]".into(),
        _ => format!("[{entries} earlier entries left out]"),
    }
}

/// The first cut point from which the rest costs at most `budget_tokens`, or the length.
fn tail_within(
    transcript: &Transcript,
    budget_tokens: u64,
    tokens: &impl Fn(Range<u64>) -> u64,
) -> u64 {
    let len = transcript.len() as u64;
    let (mut low, mut high) = (0, len);
    while low < high {
        let middle = low + (high - low) / 2;
        if tokens(middle..len) > budget_tokens { low = middle + 1 } else { high = middle }
    }
    transcript.cut_at_or_after(low)
}

#[cfg(test)]
mod tests;
