//! Replacements of entries, and their representation in a plan.

mod rewrites;

use std::ops::Range;

use ctxhost_engine_api::transcript::tokens;
use ctxhost_engine_api::{Action, Message, Plan, Role};

pub use rewrites::ReplacementMap;

/// The content of a replacement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplacementBody {
    /// One text.
    Text(String),
    /// JSON with the same role and call ids, for messages of several blocks.
    Raw(String),
}

/// What the model sees in place of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Replacement {
    /// The content.
    pub body: ReplacementBody,
    /// The layer that decided it.
    pub layer: &'static str,
    /// Description for users.
    pub detail: String,
}

impl Replacement {
    /// Creates a text replacement.
    pub fn from_text(
        text: impl Into<String>,
        layer: &'static str,
        detail: impl Into<String>,
    ) -> Replacement {
        Replacement { body: ReplacementBody::Text(text.into()), layer, detail: detail.into() }
    }

    /// Creates a JSON replacement.
    pub fn from_raw(raw: String, layer: &'static str, detail: impl Into<String>) -> Replacement {
        Replacement { body: ReplacementBody::Raw(raw), layer, detail: detail.into() }
    }

    /// Size in tokens.
    pub fn tokens(&self) -> u64 {
        match &self.body {
            ReplacementBody::Text(text) => tokens::estimate(text),
            ReplacementBody::Raw(raw) => tokens::message(&Message::parse(raw, "")),
        }
    }

    /// Size in weighted characters.
    pub fn chars(&self) -> u64 {
        match &self.body {
            ReplacementBody::Text(text) => tokens::weighted_chars(text),
            // Several blocks have no single text; images have no characters at all.
            ReplacementBody::Raw(_) => self.tokens() * tokens::CHARS_PER_TOKEN,
        }
    }

    /// Adds the replacement of the entry at `seq` to a plan.
    pub fn add_to_plan(&self, plan: &mut Plan, seq: u64) {
        match &self.body {
            ReplacementBody::Text(text) => plan.replace_text(seq, text.as_str()),
            ReplacementBody::Raw(raw) => plan.replace_raw(seq, raw.as_str()),
        };
        plan.note(self.layer, self.detail.as_str());
    }
}

/// Keeps a range with some entries replaced; `shown` is in rising order.
pub fn keep_with_replacements<'a>(
    plan: &mut Plan,
    range: Range<u64>,
    shown: impl IntoIterator<Item = (u64, &'a Replacement)>,
) {
    let mut from = range.start;
    for (seq, shown) in shown {
        plan.keep(from..seq);
        shown.add_to_plan(plan, seq);
        from = seq + 1;
    }
    plan.keep(from..range.end);
}

/// Inserts a text of the user's role before an entry that a plan keeps as it is.
pub fn insert_before_kept(plan: &mut Plan, seq: u64, text: &str, layer: &str, detail: &str) {
    for op in std::mem::take(&mut plan.ops) {
        match &op.action {
            Action::Keep(range) if range.contains(&seq) => {
                let range = range.clone();
                plan.keep(range.start..seq);
                plan.insert(Role::User, text, seq..seq).note(layer, detail);
                plan.keep(seq..range.end);
            }
            _ => plan.ops.push(op),
        }
    }
}

/// Replaces entries in a plan that keeps them. `shown` are the replacements of a range, in rising order.
pub fn replace_kept(plan: &mut Plan, shown: impl Fn(Range<u64>) -> Vec<(u64, Replacement)>) {
    for op in std::mem::take(&mut plan.ops) {
        let shown = match &op.action {
            Action::Keep(range) => Some((range.clone(), shown(range.clone()))),
            _ => None,
        };
        match shown.filter(|(_, shown)| !shown.is_empty()) {
            Some((range, shown)) => {
                let shown = shown.iter().map(|(seq, shown)| (*seq, shown));
                keep_with_replacements(plan, range, shown);
            }
            None => plan.ops.push(op),
        }
    }
}
