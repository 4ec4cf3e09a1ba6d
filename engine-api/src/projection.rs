//! What a plan makes of a transcript: the items a model would see, borrowed from both.

use std::borrow::Cow;

use crate::plan::{Action, Plan};
use crate::transcript::{Entry, Flags, Message, Role, Transcript, tokens};

/// One item of a projection.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum PlanItem<'a> {
    /// An entry as it is.
    Kept(Entry<'a>),
    /// An entry with other text.
    ReplacedText {
        /// The entry.
        entry: Entry<'a>,
        /// Its text now.
        text: &'a str,
    },
    /// An entry with other JSON.
    ReplacedRaw {
        /// The entry.
        entry: Entry<'a>,
        /// Its JSON now.
        raw: &'a str,
    },
    /// A message of an engine.
    Inserted {
        /// Who seems to speak.
        role: Role,
        /// The text.
        text: &'a str,
    },
    /// The result of a call that never got one, put in by the host.
    MissingResult {
        /// The id of the call.
        call_id: Cow<'a, str>,
        /// The tool's name.
        tool: Cow<'a, str>,
    },
}

impl<'a> PlanItem<'a> {
    /// The text of every [`MissingResult`](Self::MissingResult); always the same, so that a repair
    /// never moves a cached prefix.
    pub const MISSING_RESULT: &'static str =
        "[ctxhost] this tool call has no result in the session; it was interrupted";

    /// Who speaks.
    pub fn role(&self) -> Role {
        match self {
            PlanItem::Kept(entry)
            | PlanItem::ReplacedText { entry, .. }
            | PlanItem::ReplacedRaw { entry, .. } => entry.role(),
            PlanItem::Inserted { role, .. } => *role,
            PlanItem::MissingResult { .. } => Role::Tool,
        }
    }

    /// The entry it comes from.
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

    /// What it costs, in tokens without margin.
    pub fn tokens(&self) -> u64 {
        match self {
            PlanItem::Kept(entry) => entry.tokens(),
            PlanItem::ReplacedText { entry, text } => {
                // Calls stay when the text of an assistant message is replaced; images and thinking go.
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
    /// The items that the plan makes of `transcript`, in order, without any repair.
    ///
    /// Positions past the end are left out; the host's law refuses such a plan before it gets here.
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
                Action::Drop(_) | Action::Unknown(_) => {}
            }
        }
        items
    }
}
