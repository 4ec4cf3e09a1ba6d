//! What the model sees in place of an entry, and how a plan says so.

mod rewrites;

use std::ops::Range;

use ctxhost_engine_api::transcript::tokens;
use ctxhost_engine_api::{Message, Plan};

pub use rewrites::ReplacementMap;

/// How an entry is shown in place of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReplacementBody {
    /// As one text.
    Text(String),
    /// As JSON of the same role and the same call ids, where several blocks stay.
    Raw(String),
}

/// What the model sees in place of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryReplacement {
    /// The replacement.
    pub body: ReplacementBody,
    /// Which layer decided it.
    pub layer: &'static str,
    /// What it did, for people.
    pub detail: String,
}

impl EntryReplacement {
    /// One text in place of an entry.
    pub fn from_text(
        text: impl Into<String>,
        layer: &'static str,
        detail: impl Into<String>,
    ) -> EntryReplacement {
        EntryReplacement { body: ReplacementBody::Text(text.into()), layer, detail: detail.into() }
    }

    /// What it costs, in tokens.
    pub fn tokens(&self) -> u64 {
        match &self.body {
            ReplacementBody::Text(text) => tokens::estimate(text),
            ReplacementBody::Raw(raw) => tokens::message(&Message::parse(raw, "")),
        }
    }

    /// What it costs, in weighted characters.
    pub fn chars(&self) -> u64 {
        match &self.body {
            ReplacementBody::Text(text) => tokens::weighted_chars(text),
            ReplacementBody::Raw(_) => self.tokens() * tokens::CHARS_PER_TOKEN,
        }
    }

    /// Puts it into a plan in place of the entry at a position.
    pub fn add_to_plan(&self, plan: &mut Plan, seq: u64) {
        match &self.body {
            ReplacementBody::Text(text) => plan.replace_text(seq, text.as_str()),
            ReplacementBody::Raw(raw) => plan.replace_raw(seq, raw.as_str()),
        };
        plan.note(self.layer, self.detail.as_str());
    }
}

/// Keeps a range in which some entries, given in rising order, are shown as something else.
pub fn keep_with_replacements<'a>(
    plan: &mut Plan,
    range: Range<u64>,
    shown: impl IntoIterator<Item = (u64, &'a EntryReplacement)>,
) {
    let mut from = range.start;
    for (seq, shown) in shown {
        plan.keep(from..seq);
        shown.add_to_plan(plan, seq);
        from = seq + 1;
    }
    plan.keep(from..range.end);
}
