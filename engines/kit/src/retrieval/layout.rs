//! The layout of a request: the part of a session that the model sees if not all of it fits.
//!
//! Everything before the newest entries is computed when the window moves and then constant until
//! the budget is used up or a rule is replaced. Notes for later prompts are inserted directly
//! before the prompt, after the cached prefix.

use std::collections::BTreeMap;
use std::ops::Range;

use ctxhost_engine_api::transcript::tokens;
use ctxhost_engine_api::{Action, Plan, Role, Transcript};

use super::entry_masks::MaskedPositions;
use super::history_index::HistoryIndex;
use super::text_names::TextNames;
use crate::antecedent::{quote_note, quote_tokens};
use crate::ledger::render_requests;
use crate::live_round::LiveRoundCuts;
use crate::name_ledger::{NameLedger, NameSet};
use ctxhost_text::injected_text::request_text;

/// Why found text is inserted.
const FOUND: &str = "found by the prompt";
/// What a request refers to.
const ANTECEDENT: &str = "what the next request refers to";
/// What each move chooses again.
const NEWER: &str = "names and the plan";

/// How an engine labels what it inserts.
#[derive(Clone, Copy, Debug)]
pub struct LayoutStyle {
    /// Layer name in plan notes.
    pub layer: &'static str,
    /// What the head contains.
    pub head: &'static str,
    /// Whether `[12 earlier entries left out]` is inserted. It names no tool: a host that serves programs with tools
    /// of their own offers none of an engine, and a model that calls one then ends the run.
    pub leave_out_note: bool,
}

/// The contents of a request.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RequestLayout {
    /// The budget it was made for.
    pub budget_tokens: u64,
    /// Number of replaced rules at that time.
    pub replaced_rules: u64,
    /// Entries before the cut that are kept, whole or with partial text.
    pub kept: BTreeMap<u64, Option<String>>,
    /// The engine's own text, after the instructions.
    pub head: String,
    /// Parts of calls and results before the cut.
    pub excerpt: String,
    /// What each move chooses again, behind what stays in the prefix: the plan, names, and a part of an outline.
    pub newer_names: String,
    /// Number of moves since head and excerpt were made.
    pub short_moves: u32,
    /// Start of the newest entries.
    pub cut: u64,
    /// Behind a short move, where the newest entries started when the head was made.
    pub head_cut: u64,
    /// Masked results and calls among the newest entries; none before the cut.
    pub masked: MaskedPositions,
    /// Entries among the newest that did not fit whole.
    pub cuts: LiveRoundCuts,
    /// What requests refer to that are shown as they are, by their position.
    pub antecedents: BTreeMap<u64, String>,
    /// Notes, by the position of their prompt.
    pub notes: BTreeMap<u64, String>,
    /// The names in its own texts.
    pub text_names: TextNames,
}

impl RequestLayout {
    /// Whether it is still valid for this transcript and budget.
    pub fn is_valid_for(
        &self,
        transcript: &Transcript,
        budget_tokens: u64,
        replaced_rules: u64,
        slack_share: f64,
    ) -> bool {
        // A small rise of the budget must not change the prefix.
        let most_tokens = (self.budget_tokens as f64 * (1.0 + slack_share)) as u64;
        let is_cut_point = transcript.get(self.cut).is_some_and(|entry| entry.is_cut_point());
        budget_tokens <= most_tokens && replaced_rules == self.replaced_rules && is_cut_point
    }

    /// Size in tokens.
    pub fn tokens(&self, transcript: &Transcript, style: &LayoutStyle) -> u64 {
        let tail = self.cut..transcript.len() as u64;
        let saved_tokens = self.masked.values().sum::<u64>() + self.cuts.saved_tokens(tail.clone());
        self.kept_tokens(transcript)
            + transcript.tokens(tail).saturating_sub(saved_tokens)
            + self.own_texts().map(tokens::estimate).sum::<u64>()
            + self.gap_note(transcript, style).map_or(0, |note| tokens::estimate(&note))
    }

    /// Size of the engine's own texts, in tokens, with what it writes behind requests.
    pub fn own_tokens(&self) -> u64 {
        let quotes = self.kept.values().flatten().map(|text| quote_tokens(text));
        self.own_texts().map(tokens::estimate).chain(quotes).sum()
    }

    /// The engine's own texts.
    pub fn own_texts(&self) -> impl Iterator<Item = &str> {
        // A request that was found and dropped again takes its antecedent with it.
        let antecedents = self.antecedents.iter().filter(|(seq, _)| self.shows(**seq));
        [&self.head, &self.excerpt, &self.newer_names]
            .into_iter()
            .chain(antecedents.map(|(_, note)| note))
            .chain(self.notes.values())
            .map(String::as_str)
    }

    /// Appends lines to the head, with the numbers of their names.
    pub fn append_head(&mut self, lines: &str, names: impl IntoIterator<Item = u32>) {
        self.text_names.append(&mut self.head, lines, names);
    }

    /// Appends lines to what each move chooses again, with the numbers of their names.
    pub fn append_newer(&mut self, lines: &str, names: impl IntoIterator<Item = u32>) {
        self.text_names.append(&mut self.newer_names, lines, names);
    }

    /// Adds the names in the engine's own texts to a set.
    pub(super) fn read_own_names(&mut self, ledger: &NameLedger, names: &mut NameSet) {
        let mut text_names = std::mem::take(&mut self.text_names);
        for text in self.own_texts() {
            names.extend(text_names.read(text, ledger).iter().copied());
        }
        self.text_names = text_names;
    }

    /// Forgets the names of texts that it does not have any more.
    pub(super) fn retain_text_names(&mut self) {
        let mut text_names = std::mem::take(&mut self.text_names);
        text_names.retain(self.own_texts());
        self.text_names = text_names;
    }

    fn kept_tokens(&self, transcript: &Transcript) -> u64 {
        let cost = |(seq, text): (&u64, &Option<String>)| match text {
            Some(text) => tokens::estimate(text),
            None => transcript.tokens(*seq..*seq + 1),
        };
        self.kept.iter().map(cost).sum()
    }

    /// Takes what requests refer to, as a block of a summary with these requests. A plan that lasts inserts no more
    /// messages than its summary.
    pub fn take_antecedents(&mut self, transcript: &Transcript) -> String {
        let antecedents = std::mem::take(&mut self.antecedents);
        let requests = antecedents.iter().filter_map(|(seq, note)| {
            let request = transcript.get(*seq)?;
            Some(quote_note(request_text(&request).trim(), note))
        });
        render_requests(requests)
    }

    /// Drops the oldest note.
    pub fn drop_oldest_note(&mut self) -> bool {
        self.notes.pop_first().is_some()
    }

    /// Drops the oldest notes until the layout fits a budget, or has none.
    pub(super) fn drop_notes_until(
        &mut self,
        budget_tokens: u64,
        transcript: &Transcript,
        style: &LayoutStyle,
    ) {
        while self.tokens(transcript, style) > budget_tokens && self.drop_oldest_note() {}
    }

    /// Whether the model sees an entry or a part of it.
    pub fn shows(&self, seq: u64) -> bool {
        seq >= self.cut || self.kept.contains_key(&seq)
    }

    /// Whether the model sees an entry as it is.
    pub fn shows_whole(&self, seq: u64) -> bool {
        seq >= self.cut || self.kept.get(&seq).is_some_and(Option::is_none)
    }

    /// Whether the model sees a part of an entry that is kept before the cut.
    pub fn keeps_part(&self, seq: u64, part: &str) -> bool {
        let kept = self.kept.get(&seq);
        kept.is_some_and(|text| text.as_ref().is_none_or(|text| text.contains(part)))
    }

    /// Whether the model sees all of an entry's text: it is neither masked nor cut.
    pub fn shows_all_text(&self, seq: u64) -> bool {
        self.shows_whole(seq) && !self.masked.contains_key(&seq) && !self.cuts.contains(seq)
    }

    /// Whether what is kept of an entry, an excerpt or an earlier note shows a part of its text.
    pub fn quotes(&self, seq: u64, part: &str) -> bool {
        // The beginning identifies a part well enough and costs little to search.
        let begin = part.get(..part.floor_char_boundary(80)).unwrap_or_default().trim();
        let kept = self.kept.get(&seq).into_iter().flatten();
        let mut shown = kept.chain([&self.excerpt]).chain(self.notes.values());
        begin.is_empty() || shown.any(|text| text.contains(begin))
    }

    /// Positions of all entries that are kept in some form.
    pub fn shown_positions(&self, len: u64) -> impl Iterator<Item = u64> {
        self.kept.keys().copied().chain(self.cut..len)
    }

    /// Number of entries before the cut of which nothing is kept.
    pub fn hidden(&self) -> u64 {
        self.cut - self.kept.range(..self.cut).count() as u64
    }

    /// Builds the plan, without its size.
    pub fn plan(&self, transcript: &Transcript, index: &HistoryIndex, style: &LayoutStyle) -> Plan {
        let (len, masks) = (transcript.len() as u64, &index.masks);
        let insert = |plan: &mut Plan, text: &str, at: u64, why: &str| {
            plan.insert(Role::User, text, at..at).note(style.layer, why);
        };
        let mut plan = Plan::default();
        let mut end = 0;
        let mut is_head_due = !self.head.is_empty();
        for (seq, text) in &self.kept {
            // The host's instructions stay first; the head follows them.
            let is_leading = *seq == end && text.is_none() && is_instruction(transcript, *seq);
            if is_head_due && !is_leading {
                insert(&mut plan, &self.head, end, style.head);
                is_head_due = false;
            }
            leave_out(&mut plan, transcript, end..*seq, style);
            if let Some(note) = self.antecedents.get(seq) {
                insert(&mut plan, note, *seq, ANTECEDENT);
            }
            match text {
                Some(text) => _ = plan.replace_text(*seq, text.as_str()).note(style.layer, FOUND),
                None => _ = plan.keep(*seq..*seq + 1),
            }
            end = *seq + 1;
        }
        if is_head_due {
            insert(&mut plan, &self.head, end, style.head);
        }
        leave_out(&mut plan, transcript, end..self.cut, style);
        if !self.excerpt.is_empty() {
            insert(&mut plan, &self.excerpt, self.cut, FOUND);
        }
        if !self.newer_names.is_empty() {
            insert(&mut plan, &self.newer_names, self.cut, NEWER);
        }
        if let Some(note) = self.gap_note(transcript, style) {
            insert(&mut plan, &note, self.cut, "what was left out");
        }
        let mut from = self.cut;
        let antecedents = self.antecedents.range(self.cut..len).map(|at| (at, ANTECEDENT));
        let notes = self.notes.range(self.cut..len).map(|at| (at, FOUND));
        let mut inserted: Vec<((&u64, &String), &str)> = antecedents.chain(notes).collect();
        // Stable: what a request refers to comes before what its words find.
        inserted.sort_by_key(|((seq, _), _)| **seq);
        for ((seq, note), why) in inserted {
            masks.keep_range(&mut plan, from..*seq, &self.masked);
            insert(&mut plan, note, *seq, why);
            from = *seq;
        }
        masks.keep_range(&mut plan, from..len, &self.masked);
        self.cuts.apply(&mut plan, transcript, style.layer);
        plan
    }

    /// The line about left-out entries, if it costs less than they do. It changes only when the
    /// window moves.
    fn gap_note(&self, transcript: &Transcript, style: &LayoutStyle) -> Option<String> {
        if !style.leave_out_note {
            return None;
        }
        let missing = self.hidden();
        let entries = if missing == 1 { "entry" } else { "entries" };
        let note = format!("[{missing} earlier {entries} left out]");
        let kept = self.kept.range(..self.cut);
        let kept_tokens: u64 = kept.map(|(seq, _)| transcript.tokens(*seq..*seq + 1)).sum();
        let missing_tokens = transcript.tokens(0..self.cut).saturating_sub(kept_tokens);
        // A note that costs more than it replaces is pointless.
        (missing_tokens > tokens::estimate(&note)).then_some(note)
    }
}

/// A plan that keeps everything.
pub fn whole_plan(transcript: &Transcript) -> Plan {
    let mut plan = Plan { estimated_tokens: transcript.total_tokens(), ..Plan::default() };
    plan.keep(0..transcript.len() as u64);
    plan
}

/// A compaction: the plan of a layout with a summary in place of the largest range that it drops.
pub fn covering_plan(
    layout: &RequestLayout,
    summary: String,
    transcript: &Transcript,
    index: &HistoryIndex,
    style: &LayoutStyle,
) -> Plan {
    let mut plan = layout.plan(transcript, index, style);
    // A summary replaces one contiguous range; the largest one is the least misleading.
    let largest = plan.ops.iter().enumerate().filter_map(|(at, op)| match &op.action {
        Action::Drop(range) => Some((at, range.clone())),
        _ => None,
    });
    let largest = largest.max_by_key(|(_, range)| range.end - range.start);
    if let Some((at, covers)) = largest
        && let Some(op) = plan.ops.get_mut(at)
    {
        op.action = Action::Insert { role: Role::User, text: summary, covers };
    }
    plan.estimated_tokens = plan.project(transcript).iter().map(|item| item.tokens()).sum();
    plan
}

fn is_instruction(transcript: &Transcript, seq: u64) -> bool {
    transcript.get(seq).is_some_and(|entry| entry.role() == Role::System)
}

fn leave_out(plan: &mut Plan, transcript: &Transcript, range: Range<u64>, style: &LayoutStyle) {
    let detail =
        format!("{} entries, {} tokens", range.end - range.start, transcript.tokens(range.clone()));
    if !range.is_empty() {
        plan.leave_out(range).note(style.layer, detail);
    }
}
