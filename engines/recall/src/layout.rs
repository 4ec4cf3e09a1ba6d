//! The layout of a request: what of a session the model sees while not all of it fits.
//!
//! ```text
//!  pinned │ rules, names │ found entries │ excerpt │ newest entries, older results as lines │ note · prompt
//!  ───────────────── worked out when the window moves ─────┘        └ of one prompt, goes when room is short
//! ```
//!
//! Everything before the newest entries is worked out when the window moves, and then stays byte for byte
//! until the budget is used up or a rule is replaced. What a later prompt finds stands directly in
//! front of that prompt, behind all that a provider has cached.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use ctxhost_engine_api::transcript::tokens;
use ctxhost_engine_api::{Plan, Role, Transcript};
use ctxhost_engine_kit::replacement::ReplacementMap;

use crate::LAYER;
use crate::settings::Settings;

/// What the model sees.
#[derive(Debug, Default)]
pub(crate) struct RequestLayout {
    /// The budget it was made for.
    pub(crate) budget_tokens: u64,
    /// How many rules had been replaced.
    pub(crate) replaced_rules: u64,
    /// Entries before the cut that stay, as they are or as a part of their text.
    pub(crate) kept: BTreeMap<u64, Option<String>>,
    /// Rules and names.
    pub(crate) head: String,
    /// Parts of calls and results before the cut.
    pub(crate) excerpt: String,
    /// Where the newest entries begin.
    pub(crate) cut: u64,
    /// Old results and calls among the newest entries.
    pub(crate) masked: ReplacementMap,
    /// What prompts found, by the position of the prompt.
    pub(crate) notes: BTreeMap<u64, String>,
}

impl RequestLayout {
    /// Whether it still is about this transcript and this budget. A small rise moves nothing.
    pub(crate) fn is_valid_for(
        &self,
        transcript: &Transcript,
        budget_tokens: u64,
        replaced_rules: u64,
        settings: &Settings,
    ) -> bool {
        let most_tokens = (self.budget_tokens as f64 * (1.0 + settings.slack_share)) as u64;
        let is_cut_point = transcript.get(self.cut).is_some_and(|entry| entry.is_cut_point());
        budget_tokens <= most_tokens && replaced_rules == self.replaced_rules && is_cut_point
    }

    /// What it costs, in tokens.
    pub(crate) fn tokens(&self, transcript: &Transcript, settings: &Settings) -> u64 {
        let tail = self.cut..transcript.len() as u64;
        self.kept_tokens(transcript)
            + transcript.tokens(tail.clone()).saturating_sub(self.masked.saved_tokens(tail))
            + self.own_tokens()
            + self.gap_note(transcript, settings).map_or(0, |note| tokens::estimate(&note))
    }

    /// What the texts of the engine's own cost, in tokens.
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

    /// Forgets the oldest note, if it is not that of the prompt at hand or nothing else is left.
    pub(crate) fn drop_oldest_note(&mut self) -> bool {
        self.notes.pop_first().is_some()
    }

    /// Whether the model sees an entry, or a part of it.
    pub(crate) fn shows(&self, seq: u64) -> bool {
        seq >= self.cut || self.kept.contains_key(&seq)
    }

    /// The positions before the cut that are kept in some form, and all behind it.
    pub(crate) fn shown_positions(&self, len: u64) -> impl Iterator<Item = u64> {
        self.kept.keys().copied().chain(self.cut..len)
    }

    /// The plan.
    pub(crate) fn plan(&self, transcript: &Transcript, settings: &Settings) -> Plan {
        let len = transcript.len() as u64;
        let mut plan =
            Plan { estimated_tokens: self.tokens(transcript, settings), ..Plan::default() };
        let mut end = 0;
        let mut is_head_due = !self.head.is_empty();
        for (seq, text) in &self.kept {
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
            self.masked.keep_range(&mut plan, from..*seq);
            insert(&mut plan, note, *seq, "found by the prompt");
            from = *seq;
        }
        self.masked.keep_range(&mut plan, from..len);
        plan
    }

    /// Instructions of the host stand before everything else.
    fn is_instruction(&self, transcript: &Transcript, seq: u64) -> bool {
        transcript.get(seq).is_some_and(|entry| entry.role() == Role::System)
    }

    /// The one line that says how much is missing, where it costs less than that. It changes when the window moves.
    fn gap_note(&self, transcript: &Transcript, settings: &Settings) -> Option<String> {
        let kept: BTreeSet<u64> = self.kept.keys().copied().filter(|seq| *seq < self.cut).collect();
        let missing = self.cut - kept.len() as u64;
        let entries = if missing == 1 { "entry" } else { "entries" };
        let found = if settings.tools { "; context_search finds them" } else { "" };
        let note = format!("[{missing} earlier {entries} left out{found}]");
        let kept_tokens: u64 = kept.iter().map(|seq| transcript.tokens(*seq..*seq + 1)).sum();
        let missing_tokens = transcript.tokens(0..self.cut).saturating_sub(kept_tokens);
        (settings.leave_out_note && missing_tokens > tokens::estimate(&note)).then_some(note)
    }
}

/// A message of the engine's own that stands for no entry.
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
