//! Projections: the items a model reads when a plan is applied to a transcript, borrowed from both.

use std::borrow::Cow;

use crate::plan::{Action, Plan};
use crate::transcript::{Entry, Flags, Message, Role, Transcript, tokens};

/// One item of a projection.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum PlanItem<'a> {
    /// An unchanged entry.
    Kept(Entry<'a>),
    /// An entry with other text.
    ReplacedText {
        /// The entry.
        entry: Entry<'a>,
        /// The new text.
        text: &'a str,
    },
    /// An entry with other JSON.
    ReplacedRaw {
        /// The entry.
        entry: Entry<'a>,
        /// The new JSON.
        raw: &'a str,
    },
    /// A message of an engine.
    Inserted {
        /// The role.
        role: Role,
        /// The text.
        text: &'a str,
    },
    /// A synthetic result, inserted by the host for a call without one.
    MissingResult {
        /// The id of the call.
        call_id: Cow<'a, str>,
        /// The tool's name.
        tool: Cow<'a, str>,
    },
}

impl<'a> PlanItem<'a> {
    /// The text of every [`MissingResult`](Self::MissingResult).
    // Constant, so that the repair does not change a cached prefix between requests.
    pub const MISSING_RESULT: &'static str =
        "[ctxhost] this tool call has no result in the session; it was interrupted";

    /// The role.
    pub fn role(&self) -> Role {
        match self {
            PlanItem::Kept(entry)
            | PlanItem::ReplacedText { entry, .. }
            | PlanItem::ReplacedRaw { entry, .. } => entry.role(),
            PlanItem::Inserted { role, .. } => *role,
            PlanItem::MissingResult { .. } => Role::Tool,
        }
    }

    /// The entry it is based on.
    pub fn entry(&self) -> Option<Entry<'a>> {
        match self {
            PlanItem::Kept(entry)
            | PlanItem::ReplacedText { entry, .. }
            | PlanItem::ReplacedRaw { entry, .. } => Some(*entry),
            PlanItem::Inserted { .. } | PlanItem::MissingResult { .. } => None,
        }
    }

    /// Its text.
    pub fn text(&self) -> Cow<'a, str> {
        match self {
            PlanItem::Kept(entry) => Cow::Borrowed(entry.text()),
            PlanItem::ReplacedText { text, .. } | PlanItem::Inserted { text, .. } => {
                Cow::Borrowed(text)
            }
            PlanItem::ReplacedRaw { raw, .. } => Cow::Owned(Message::parse(raw, "").text()),
            PlanItem::MissingResult { .. } => Cow::Borrowed(PlanItem::MISSING_RESULT),
        }
    }

    /// Its tokens, without margin.
    pub fn tokens(&self) -> u64 {
        match self {
            PlanItem::Kept(entry) => entry.tokens(),
            PlanItem::ReplacedText { entry, text } => {
                // Replacing the text of an assistant message keeps its calls and drops images and thinking.
                let calls = entry.tool_calls();
                let call_tokens = |call: &crate::ToolCall<'_>| {
                    tokens::estimate(&call.name) + tokens::estimate(&call.arguments)
                };
                tokens::estimate(text) + calls.iter().map(call_tokens).sum::<u64>()
            }
            PlanItem::ReplacedRaw { raw, .. } => tokens::message(&Message::parse(raw, "")),
            PlanItem::Inserted { text, .. } => tokens::estimate(text),
            PlanItem::MissingResult { .. } => tokens::estimate(PlanItem::MISSING_RESULT),
        }
    }

    /// Whether it calls tools.
    pub fn calls_tools(&self) -> bool {
        self.entry().is_some_and(|entry| entry.has(Flags::TOOL_CALLS))
    }
}

impl Plan {
    /// Applies the plan to `transcript` without repairs and returns the items in order.
    ///
    /// Positions past the end are skipped; the host rejects such a plan earlier.
    pub fn project<'a>(&'a self, transcript: &'a Transcript) -> Vec<PlanItem<'a>> {
        let mut items = Vec::new();
        for op in &self.ops {
            match &op.action {
                Action::Keep(range) => {
                    items.extend(transcript.range(range.clone()).map(PlanItem::Kept))
                }
                Action::ReplaceText { seq, text } => {
                    items.extend(
                        transcript.get(*seq).map(|entry| PlanItem::ReplacedText { entry, text }),
                    );
                }
                Action::ReplaceRaw { seq, raw } => {
                    items.extend(
                        transcript.get(*seq).map(|entry| PlanItem::ReplacedRaw { entry, raw }),
                    );
                }
                Action::Insert { role, text, .. } => {
                    items.push(PlanItem::Inserted { role: *role, text })
                }
                // Plans with unknown operations are rejected before; here they have no effect.
                Action::Drop(_) | Action::Unknown(_) => {}
            }
        }
        items
    }
}
