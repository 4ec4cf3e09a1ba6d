//! The view of a request: the part of a session that the model sees if not all of it fits.
//!
//! ```text
//!  pinned │ outline of nodes │ found entries │ excerpt │ newest entries │ note · prompt
//!  ──────────── computed when the window moves ──────┘                 └ per prompt, dropped first
//! ```
//!
//! Everything before the newest entries stays the same until the budget is used up. Notes for later
//! prompts are inserted directly before the prompt, after the cached prefix.

use std::collections::BTreeMap;
use std::ops::Range;

use ctxhost_engine_api::transcript::tokens;
use ctxhost_engine_api::{Plan, Role, Transcript};
use serde::{Deserialize, Serialize};

use crate::outline::HistoryOutline;

/// Layer name in plan notes.
pub(crate) const LAYER: &str = "dag";

/// The contents of a request.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct RequestView {
    /// The budget it was made for.
    pub(crate) budget_tokens: u64,
    /// Entries before the cut that are kept, whole or with partial text.
    pub(crate) kept: BTreeMap<u64, Option<String>>,
    /// The nodes before the cut.
    pub(crate) outline: HistoryOutline,
    /// Parts of calls and results before the cut.
    pub(crate) excerpt: String,
    /// Start of the newest entries.
    pub(crate) cut: u64,
    /// Notes, by the position of their prompt.
    pub(crate) notes: BTreeMap<u64, String>,
}

impl RequestView {
    /// Whether it is still valid for this transcript and budget.
    pub(crate) fn is_valid_for(
        &self,
        transcript: &Transcript,
        budget_tokens: u64,
        slack_share: f64,
    ) -> bool {
        // A small rise of the budget must not change the prefix.
        let most_tokens = (self.budget_tokens as f64 * (1.0 + slack_share)) as u64;
        let is_cut_point = transcript.get(self.cut).is_some_and(|entry| entry.is_cut_point());
        budget_tokens <= most_tokens && is_cut_point
    }

    /// Size in tokens.
    pub(crate) fn tokens(&self, transcript: &Transcript) -> u64 {
        let tail = self.cut..transcript.len() as u64;
        self.kept_tokens(transcript) + transcript.tokens(tail) + self.own_tokens()
    }

    /// Size of the engine's own texts, in tokens.
    pub(crate) fn own_tokens(&self) -> u64 {
        let own = [&self.outline.text, &self.excerpt].into_iter().chain(self.notes.values());
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

    /// Builds the plan.
    pub(crate) fn plan(&self, transcript: &Transcript) -> Plan {
        let len = transcript.len() as u64;
        let mut plan = Plan { estimated_tokens: self.tokens(transcript), ..Plan::default() };
        let mut end = 0;
        let mut is_outline_due = !self.outline.text.is_empty();
        for (seq, text) in &self.kept {
            // The system prompt stays first; the outline follows it.
            let is_instruction =
                transcript.get(*seq).is_some_and(|entry| entry.role() == Role::System);
            let is_leading = *seq == end && text.is_none() && is_instruction;
            if is_outline_due && !is_leading {
                self.insert_outline(&mut plan, end);
                is_outline_due = false;
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
        if is_outline_due {
            self.insert_outline(&mut plan, end);
        }
        leave_out(&mut plan, transcript, end..self.cut);
        if !self.excerpt.is_empty() {
            insert(&mut plan, &self.excerpt, self.cut, "found by the prompt");
        }
        let mut from = self.cut;
        for (seq, note) in self.notes.range(self.cut..len) {
            plan.keep(from..*seq);
            insert(&mut plan, note, *seq, "found by the prompt");
            from = *seq;
        }
        plan.keep(from..len);
        plan
    }

    fn insert_outline(&self, plan: &mut Plan, at: u64) {
        let detail = format!("{} nodes", self.outline.ids.len());
        insert(plan, &self.outline.text, at, &detail);
    }
}

/// Inserts a message of the engine that replaces no entry.
fn insert(plan: &mut Plan, text: &str, at: u64, detail: &str) {
    plan.insert(Role::User, text, at..at).note(LAYER, detail);
}

pub(crate) fn leave_out(plan: &mut Plan, transcript: &Transcript, range: Range<u64>) {
    let detail =
        format!("{} entries, {} tokens", range.end - range.start, transcript.tokens(range.clone()));
    if !range.is_empty() {
        plan.leave_out(range).note(LAYER, detail);
    }
}
