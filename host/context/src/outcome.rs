//! The outcome of a compaction.

use std::time::Duration;

use ctxhost_engine_api::{Role, Transcript, Trigger};

use ctxhost_retention::Shares;

/// The verdict on a compaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CompactionVerdict {
    /// Applied: the live transcript is smaller.
    Applied,
    /// Not applied; the session is unchanged.
    Rejected { reason: String },
    /// Not tried: the breaker is open, the last attempt at this size fell short, or a hook cancelled it.
    NotTried { reason: String },
}

impl CompactionVerdict {
    /// Whether another attempt makes sense.
    pub fn allows_retry(&self) -> bool {
        !matches!(self, CompactionVerdict::NotTried { .. })
    }
}

/// The outcome of a compaction.
#[derive(Clone, Debug)]
pub struct CompactionOutcome {
    pub trigger: Trigger,
    pub engine: String,
    pub verdict: CompactionVerdict,
    /// The size of the live transcript before, in estimated tokens.
    pub before_tokens: u64,
    /// The size after; unchanged if it was not applied.
    pub after_tokens: u64,
    /// The entries that the live transcript does not contain verbatim any more.
    pub folded: Vec<FoldedEntry>,
    /// The summary of these entries.
    pub summary: String,
    /// The engine's notes: who wrote the summary, and problems.
    pub engine_notes: String,
    /// What it retained of the history; `None` without anything to compare.
    pub retention: Option<Shares>,
    /// Why the configured engine did not make it.
    pub fallback: Option<String>,
    /// Whether it was precomputed.
    pub is_precomputed: bool,
    /// The time inside engines.
    pub took: Duration,
}

impl CompactionOutcome {
    pub(crate) fn new(engine: String, view: &Transcript, trigger: Trigger) -> Self {
        CompactionOutcome {
            trigger,
            engine,
            verdict: CompactionVerdict::Applied,
            before_tokens: view.total_tokens(),
            after_tokens: view.total_tokens(),
            folded: Vec::new(),
            summary: String::new(),
            engine_notes: String::new(),
            retention: None,
            fallback: None,
            is_precomputed: false,
            took: Duration::ZERO,
        }
    }
}

/// An entry that a compaction folded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoldedEntry {
    /// Its id in the session.
    pub id: String,
    pub role: Role,
    pub tokens: u64,
    /// The start of its text.
    pub excerpt: String,
}
