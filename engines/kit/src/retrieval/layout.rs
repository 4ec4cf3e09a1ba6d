//! The layout of a request: the part of a session that the model sees if not all of it fits.
//!
//! ```text
//!  pinned │ rules, names │ found entries │ excerpt │ newest entries, older results as lines │ note · prompt
//!  ───────────────── computed when the window moves ──────┘        └ per prompt, dropped first
//! ```
//!
//! Everything before the newest entries is computed when the window moves and then constant until
//! the budget is used up or a rule is replaced. Notes for later prompts are inserted directly
//! before the prompt, after the cached prefix.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use ctxhost_engine_api::transcript::tokens;
use ctxhost_engine_api::{Plan, Role, Transcript};

use crate::LAYER;
use crate::entry_masks::{EntryMasks, MaskedPositions};
use crate::settings::Settings;

/// The contents of a request.
#[derive(Debug, Default)]
pub(crate) struct RequestLayout {
    /// The budget it was made for.
    pub(crate) budget_tokens: u64,
    /// Number of replaced rules at that time.
    pub(crate) replaced_rules: u64,
    /// Entries before the cut that are kept, whole or with partial text.
    pub(crate) kept: BTreeMap<u64, Option<String>>,
    /// Rules and names.
    pub(crate) head: String,
    /// Parts of calls and results before the cut.
    pub(crate) excerpt: String,
    /// Start of the newest entries.
    pub(crate) cut: u64,
    /// Masked results and calls among the newest entries; none before the cut.
    pub(crate) masked: MaskedPositions,
    /// Notes, by the position of their prompt.
    pub(crate) notes: BTreeMap<u64, String>,
}

impl RequestLayout {
    /// Whether it is still valid for this transcript and budget. A small rise of the budget changes
    /// nothing.
    pub(crate) fn is_valid_for(
        &self,
        transcript: &Transcript,
        budget_tokens: u64,
        replaced_rules: u64,
        settings: &Settings,
    ) -> bool {
        // A small rise of the budget must not change the prefix.
        let most_tokens = (self.budget_tokens as f64 * (1.0 + settings.slack_share)) as u64;
        let is_cut_point = transcript.get(self.cut).is_some_and(|entry| entry.is_cut_point());
        budget_tokens <= most_tokens && replaced_rules == self.replaced_rules && is_cut_point
    }

    /// Size in tokens.
    pub(crate) fn tokens(&self, transcript: &Transcript, settings: &Settings) -> u64 {
        let tail = self.cut..transcript.len() as u64;
        let saved_tokens: u64 = self.masked.values().sum();
        self.kept_tokens(transcript)
            + transcript.tokens(tail).saturating_sub(saved_tokens)
            + self.own_tokens()
            + self.gap_note(transcript, settings).map_or(0, |note| tokens::estimate(&note))
    }

    /// Size of the engine's own texts, in tokens.
    pub(crate) fn own_tokens(&self) -> u64 {
        let own = [&self.head, &self.excerpt].into_iter().chain(self.notes.values());
        own.map(|text| tokens::estimate(text)).sum()
    }

    fn kept_tokens(&self, transcript: &Transcript) -> u64 {
        let cost = |(seq, text): (&u64, &Option<String>)| match text {
            Some(text) => tokens::estimate(text),
            None => transcript.tokens(*seq..*seq + 1),
        };
        self.kept.iter().map(cost).sum()
    }

    /// Drops the oldest note.
    pub(crate) fn drop_oldest_note(&mut self) -> bool {
        self.notes.pop_first().is_some()
    }

    /// Whether the model sees an entry or a part of it.
    pub(crate) fn shows(&self, seq: u64) -> bool {
        seq >= self.cut || self.kept.contains_key(&seq)
    }

    /// Positions of all entries that are kept in some form.
    pub(crate) fn shown_positions(&self, len: u64) -> impl Iterator<Item = u64> {
        self.kept.keys().copied().chain(self.cut..len)
    }

    /// Builds the plan.
    pub(crate) fn plan(
        &self,
        transcript: &Transcript,
        masks: &EntryMasks,
        settings: &Settings,
    ) -> Plan {
        let len = transcript.len() as u64;
        let mut plan =
            Plan { estimated_tokens: self.tokens(transcript, settings), ..Plan::default() };
        let mut end = 0;
        let mut is_head_due = !self.head.is_empty();
        for (seq, text) in &self.kept {
            // The system prompt stays first; rules and names follow it.
            let is_leading = *seq == end && text.is_none() && is_head_due;
            if is_head_due && !(is_leading && self.is_instruction(transcript, *seq)) {
                insert(&mut plan, &self.head, end, "rules and names");
                is_head_due = false;
            }
            leave_out(&mut plan, transcript, end..*seq);
            match text {
                Some(text) => {
                    plan.replace_text(*seq, text.as_str()).note(LAYER, "found by the prompt");
                }
                None => {
                    plan.keep(*seq..*seq + 1);
                }
            }
            end = *seq + 1;
        }
        if is_head_due {
            insert(&mut plan, &self.head, end, "rules and names");
        }
        leave_out(&mut plan, transcript, end..self.cut);
        if !self.excerpt.is_empty() {
            insert(&mut plan, &self.excerpt, self.cut, "found by the prompt");
        }
        if let Some(note) = self.gap_note(transcript, settings) {
            insert(&mut plan, &note, self.cut, "what was left out");
        }
        let mut from = self.cut;
        for (seq, note) in self.notes.range(self.cut..len) {
            masks.keep_range(&mut plan, from..*seq, &self.masked);
            insert(&mut plan, note, *seq, "found by the prompt");
            from = *seq;
        }
        masks.keep_range(&mut plan, from..len, &self.masked);
        plan
    }

    /// The host's instructions precede everything else.
    fn is_instruction(&self, transcript: &Transcript, seq: u64) -> bool {
        transcript.get(seq).is_some_and(|entry| entry.role() == Role::System)
    }

    /// The line about left-out entries, if it costs less than they do. It changes only when the
    /// window moves.
    fn gap_note(&self, transcript: &Transcript, settings: &Settings) -> Option<String> {
        let kept: BTreeSet<u64> = self.kept.keys().copied().filter(|seq| *seq < self.cut).collect();
        let missing = self.cut - kept.len() as u64;
        let entries = if missing == 1 { "entry" } else { "entries" };
        let found = if settings.tools { "; context_search finds them" } else { "" };
        let note = format!("[{missing} earlier {entries} left out{found}]");
        let kept_tokens: u64 = kept.iter().map(|seq| transcript.tokens(*seq..*seq + 1)).sum();
        let missing_tokens = transcript.tokens(0..self.cut).saturating_sub(kept_tokens);
        // A note that costs more than it replaces is pointless.
        (settings.leave_out_note && missing_tokens > tokens::estimate(&note)).then_some(note)
    }
}

/// Inserts a message of the engine that replaces no entry.
fn insert(plan: &mut Plan, text: &str, at: u64, why: &str) {
    plan.insert(Role::User, text, at..at).note(LAYER, why);
}

fn leave_out(plan: &mut Plan, transcript: &Transcript, range: Range<u64>) {
    let detail =
        format!("{} entries, {} tokens", range.end - range.start, transcript.tokens(range.clone()));
    if !range.is_empty() {
        plan.leave_out(range).note(LAYER, detail);
    }
}
