//! The answer of an engine: which entries the model sees, in which form.
//!
//! A plan names entries by position and never carries the transcript itself. What no operation
//! names is left out; nothing is deleted anywhere. Operations stand in rising order:
//!
//! ```text
//!  transcript   0 1 2 3 4 5 6 7 8 9
//!  plan         keep 0..1 · insert(User, "summary", covers 1..6) · keep 6..8 · replace_text 8 · keep 9..10
//!  model sees   0 [summary] 6 7 8' 9
//! ```

use std::ops::Range;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::transcript::Role;

/// Which part of an engine did something, and what; shown to people, never sent to a model.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanNote {
    /// The layer or rule, in lower case: `pruning`, `tool-result guard`, `window`.
    #[serde(default)]
    pub layer: String,
    /// What it did, as a fragment: `12,408 → 4,000 chars`.
    #[serde(default)]
    pub detail: String,
}

impl PlanNote {
    /// A note of a layer.
    pub fn new(layer: impl Into<String>, detail: impl Into<String>) -> Self {
        PlanNote { layer: layer.into(), detail: detail.into() }
    }
}

/// One operation of a plan.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Op {
    /// What to do.
    pub action: Action,
    /// Why, for people.
    pub note: Option<PlanNote>,
}

/// What an operation does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Action {
    /// Keep the entries of a range as they are.
    Keep(Range<u64>),
    /// Keep an entry with other text. Calls, ids and role stay; thinking goes.
    ReplaceText {
        /// Position of the entry.
        seq: u64,
        /// The text in place of its text blocks.
        text: String,
    },
    /// Keep an entry with other JSON of the same role and the same call ids.
    ReplaceRaw {
        /// Position of the entry.
        seq: u64,
        /// The JSON of the whole message.
        raw: String,
    },
    /// Put in a message of the engine's own. The host marks it synthetic.
    Insert {
        /// `User` or `Assistant`; anything else is refused.
        role: Role,
        /// Its text.
        text: String,
        /// The positions it stands for; `a..a` where it stands for none.
        covers: Range<u64>,
    },
    /// Leave entries out. Only for the statistics: what is not kept is left out anyway.
    Drop(Range<u64>),
    /// An operation of a newer engine. The host refuses the plan.
    Unknown(u32),
}

impl Action {
    /// The positions that the operation speaks about.
    pub fn range(&self) -> Range<u64> {
        match self {
            Action::Keep(range) | Action::Drop(range) => range.clone(),
            Action::ReplaceText { seq, .. } | Action::ReplaceRaw { seq, .. } => {
                *seq..seq.saturating_add(1)
            }
            Action::Insert { covers, .. } => covers.clone(),
            Action::Unknown(_) => 0..0,
        }
    }
}

/// Whose token count the host's check before the request trusts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PromptAuthority {
    /// The assembled prompt alone decides.
    #[default]
    Assembled,
    /// The larger of the assembled prompt and the whole live transcript decides.
    PreassemblyMayOverflow,
}

/// What is rare about a plan and may grow within the major.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PlanExtras {
    /// Text that the host puts in front of the system prompt of this request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_prompt_addition: Option<String>,
    /// Whose token count is trusted.
    pub prompt_authority: PromptAuthority,
    /// Rises when the projection begins anew, so that a caching backend knows when to resend.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub projection_epoch: Option<u64>,
    /// Why the engine wants a compaction first, although the plan fits. The host asks it to compact
    /// once and assembles again; where that made no progress, the plan is sent as it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compaction_wanted: Option<String>,
    /// What the engine did that no single operation shows.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<PlanNote>,
    /// Kept in the session beside a compaction, as JSON: file lists, counts, what a reader of the session
    /// wants to know of it. It is no store: what the engine wants back it keeps with `Host::kv_put`.
    #[serde(skip_serializing_if = "Value::is_null")]
    pub details: Value,
}

/// Which entries the model sees, in which form.
///
/// # What the host makes of it
///
/// Refused, as if the call had failed:
///
/// * positions out of order, past the end, twice; a range that ends before it starts; an operation of an
///   unknown kind,
/// * an insertion by anybody but user and assistant, or one without any text,
/// * a rewrite that is no message, speaks in another role, has other call ids, or changes thinking
///   instead of keeping it to the byte or leaving all of it out,
/// * more words of the engine's own than half of the budget.
///
/// Mended, and counted as a repair for everybody to see:
///
/// * a cut between a call and its results is widened ([`Entry::frame`](crate::Entry::frame) says where none is),
/// * what must stay is put back: pinned entries, the newest message of the person, the live tool round,
/// * words of a pinned entry or of the newest message of the person that were replaced come back, unless
///   that entry alone takes more than half of the budget.
///
/// A plan that needs neither reaches the model as it is. What no operation names is hidden from this
/// request (`assemble`) or folded away for good (`compact`); the session keeps all of it.
///
/// ```
/// use ctxhost_engine_api::{Plan, Role};
///
/// let mut plan = Plan::default();
/// plan.keep(0..1);
/// plan.insert(Role::User, "what happened so far …", 1..40).note("summary", "39 entries");
/// plan.keep(40..52);
/// assert_eq!(plan.ops.len(), 3);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// The operations, in rising order of position, without overlap.
    pub ops: Vec<Op>,
    /// What the engine believes the result costs, in tokens without margin. The host counts itself.
    pub estimated_tokens: u64,
    /// What is rare.
    pub extras: PlanExtras,
}

impl Plan {
    /// A plan that keeps everything of a transcript of `len` entries.
    pub fn keep_all(len: usize) -> Self {
        let mut plan = Plan::default();
        plan.keep(0..len as u64);
        plan
    }

    /// Keeps a range; an empty one adds nothing, a neighbour of the last kept range is joined to it.
    pub fn keep(&mut self, range: Range<u64>) -> &mut Self {
        if range.is_empty() {
            return self;
        }
        if let Some(Op { action: Action::Keep(last), note: None }) = self.ops.last_mut()
            && last.end == range.start
        {
            last.end = range.end;
            return self;
        }
        self.push(Action::Keep(range))
    }

    /// Keeps an entry with other text.
    pub fn replace_text(&mut self, seq: u64, text: impl Into<String>) -> &mut Self {
        self.push(Action::ReplaceText { seq, text: text.into() })
    }

    /// Keeps an entry with other JSON of the same role and the same call ids.
    pub fn replace_raw(&mut self, seq: u64, raw: impl Into<String>) -> &mut Self {
        self.push(Action::ReplaceRaw { seq, raw: raw.into() })
    }

    /// Puts in a message of the engine's own that stands for `covers`.
    pub fn insert(&mut self, role: Role, text: impl Into<String>, covers: Range<u64>) -> &mut Self {
        self.push(Action::Insert { role, text: text.into(), covers })
    }

    /// Says that a range is left out on purpose, so that reports can name the reason.
    pub fn leave_out(&mut self, range: Range<u64>) -> &mut Self {
        if range.is_empty() { self } else { self.push(Action::Drop(range)) }
    }

    /// Explains the newest operation.
    pub fn note(&mut self, layer: impl Into<String>, detail: impl Into<String>) -> &mut Self {
        if let Some(op) = self.ops.last_mut() {
            op.note = Some(PlanNote::new(layer, detail));
        }
        self
    }

    fn push(&mut self, action: Action) -> &mut Self {
        self.ops.push(Op { action, note: None });
        self
    }
}

/// What `compact` decided.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Compaction {
    /// Apply this plan to the live transcript as a new epoch. It must make it smaller: a plan that keeps
    /// everything is answered as [`Nothing`](Self::Nothing).
    Plan(Plan),
    /// Let the host's bundled engine compact in this engine's place.
    Delegate,
    /// There is nothing to compact. Said plainly, this is no failure; repeated, it opens the breaker.
    Nothing {
        /// Why, as a fragment.
        reason: String,
    },
}
