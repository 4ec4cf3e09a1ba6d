//! Plans: which entries the model reads, and in which form.
//!
//! A plan refers to entries by position and does not contain the transcript. Entries that no operation
//! names are left out of the request, not deleted. Operations are in ascending order:
//!
//! ```text
//!  transcript   0 1 2 3 4 5 6 7 8 9
//!  plan         keep 0..1 · insert(User, "summary", covers 1..6) · keep 6..8 · replace_text 8 · keep 9..10
//!  model reads  0 [summary] 6 7 8' 9
//! ```

use std::ops::Range;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::transcript::Role;

/// An explanation of an operation for reports; never sent to a model.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanNote {
    /// The layer or rule, in lower case: `pruning`, `tool-result guard`, `window`.
    #[serde(default)]
    pub layer: String,
    /// The effect, as a fragment: `12,408 → 4,000 chars`.
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
    /// The action.
    pub action: Action,
    /// The explanation for reports.
    pub note: Option<PlanNote>,
}

/// The action of an operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Action {
    /// Keeps the entries of a range unchanged.
    Keep(Range<u64>),
    /// Keeps an entry with other text. Calls, ids and role are kept; thinking is dropped.
    ReplaceText {
        /// Position of the entry.
        seq: u64,
        /// The text that replaces its text blocks.
        text: String,
    },
    /// Keeps an entry with other JSON of the same role and the same call ids.
    ReplaceRaw {
        /// Position of the entry.
        seq: u64,
        /// The JSON of the whole message.
        raw: String,
    },
    /// Inserts a message of the engine. The host marks it synthetic.
    Insert {
        /// `User` or `Assistant`; other roles are rejected.
        role: Role,
        /// Its text.
        text: String,
        /// The positions it replaces; `a..a` for none.
        covers: Range<u64>,
    },
    /// Leaves entries out explicitly, for statistics; entries without an operation are left out anyway.
    Drop(Range<u64>),
    /// An operation of a newer engine. The host rejects the plan.
    Unknown(u32),
}

impl Action {
    /// The positions that the operation refers to.
    pub fn range(&self) -> Range<u64> {
        match self {
            Action::Keep(range) | Action::Drop(range) => range.clone(),
            Action::ReplaceText { seq, .. } | Action::ReplaceRaw { seq, .. } => {
                // Saturates: `seq` comes from the engine and is checked later.
                *seq..seq.saturating_add(1)
            }
            Action::Insert { covers, .. } => covers.clone(),
            Action::Unknown(_) => 0..0,
        }
    }
}

/// Which token count the host compares with the budget before a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PromptAuthority {
    /// That of the assembled prompt.
    #[default]
    Assembled,
    /// The larger of the assembled prompt and the whole live transcript.
    PreassemblyMayOverflow,
}

/// Optional fields of a plan; new ones may be added within the major version.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct PlanExtras {
    /// Text that the host prepends to the system prompt of this request. It counts for the budget, and as inserted text.
    /// In the plan of a compaction it has no effect.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub system_prompt_addition: Option<String>,
    /// Which token count is compared with the budget.
    pub prompt_authority: PromptAuthority,
    /// Increases when the projection restarts, so that a caching backend knows when to resend.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub projection_epoch: Option<u64>,
    /// Why the engine wants a compaction although the plan fits. The host calls `compact` once and assembles
    /// again; without progress it sends the plan.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compaction_wanted: Option<String>,
    /// Explanations that do not belong to a single operation.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub notes: Vec<PlanNote>,
    /// JSON recorded with a compaction in the session, such as file lists and counts, for readers of the
    /// session. The engine does not get it back; use `Host::kv_put` for state.
    #[serde(skip_serializing_if = "Value::is_null")]
    pub details: Value,
}

/// Which entries the model reads, and in which form.
///
/// # Invariants
///
/// The host rejects a plan, as if the call had failed, that has
///
/// * positions out of order, past the end or repeated, a reversed range, or an unknown operation,
/// * an insertion with a role other than user and assistant, or an empty one,
/// * a rewrite that is not a message, changes the role or the call ids, or alters thinking instead of
///   keeping it byte for byte or dropping it,
/// * more inserted and replaced text than half of the budget.
///
/// The host repairs, and counts as a repair,
///
/// * a cut between a call and its results ([`Entry::frame`](crate::Entry::frame) marks safe cuts),
/// * missing pinned entries, the newest user message, and the live tool round,
/// * replaced text of a pinned entry or of the newest user message, unless that entry alone takes more
///   than half of the budget,
/// * an insertion within or behind the user's message or the tool round that the transcript ends with: it is
///   moved before it, because a model answers what it reads last.
///
/// Other plans are sent unchanged. Entries that no operation names are left out of this request
/// (`assemble`) or of the live transcript (`compact`); the session keeps them.
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
    /// The operations, in ascending order of position, without overlap.
    pub ops: Vec<Op>,
    /// The engine's estimate of the result, in tokens without margin. Informational: the host counts itself.
    pub estimated_tokens: u64,
    /// Optional fields.
    pub extras: PlanExtras,
}

impl Plan {
    /// A plan that keeps all entries of a transcript of `len` entries.
    pub fn keep_all(len: usize) -> Self {
        let mut plan = Plan::default();
        plan.keep(0..len as u64);
        plan
    }

    /// Keeps a range. An empty range adds nothing; a range adjacent to the last one is merged with it.
    pub fn keep(&mut self, range: Range<u64>) -> &mut Self {
        if range.is_empty() {
            return self;
        }
        // Engines often keep entry by entry; merging keeps plans small. A range with a note is not
        // extended, because the note would then explain entries it was not written for.
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

    /// Inserts a message of the engine that replaces the positions in `covers`.
    pub fn insert(&mut self, role: Role, text: impl Into<String>, covers: Range<u64>) -> &mut Self {
        self.push(Action::Insert { role, text: text.into(), covers })
    }

    /// Leaves a range out explicitly, so that reports can name the reason.
    pub fn leave_out(&mut self, range: Range<u64>) -> &mut Self {
        if range.is_empty() { self } else { self.push(Action::Drop(range)) }
    }

    /// Explains the last operation.
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

/// The result of `compact`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub enum Compaction {
    /// Apply this plan to the live transcript as a new epoch. It must shrink the transcript; return
    /// [`Nothing`](Self::Nothing) instead of a plan that keeps everything.
    Plan(Plan),
    /// Use the bundled engine for this compaction.
    Delegate,
    /// Nothing to compact. Not a failure, but repeated results open the circuit breaker.
    Nothing {
        /// The reason, as a fragment.
        reason: String,
    },
}
