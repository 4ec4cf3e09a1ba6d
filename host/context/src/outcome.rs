//! What became of a compaction.

use std::time::Duration;

use ctxhost_engine_api::{Role, Transcript, Trigger};

use ctxhost_retention::Shares;

/// What became of a compaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CompactionVerdict {
    /// It was applied: the live transcript is smaller now.
    Applied,
    /// It was not applied: the session is as it was.
    Rejected {
        /// Why.
        reason: String,
    },
    /// It was not tried: the breaker is open or the hour's budget is spent.
    NotTried {
        /// Why.
        reason: String,
    },
}

impl CompactionVerdict {
    /// Whether another attempt at the same pressure makes sense.
    pub fn allows_retry(&self) -> bool {
        !matches!(self, CompactionVerdict::NotTried { .. })
    }
}

/// A compaction that was tried.
#[derive(Clone, Debug)]
pub struct CompactionOutcome {
    /// Why it was wanted.
    pub trigger: Trigger,
    /// Who made it.
    pub engine: String,
    /// What became of it.
    pub verdict: CompactionVerdict,
    /// Size of the live transcript before, in tokens without margin.
    pub before_tokens: u64,
    /// Size after; the same as before where it was not applied.
    pub after_tokens: u64,
    /// Ids, roles, sizes and texts of the entries that are no longer there word for word.
    pub folded: Vec<FoldedEntry>,
    /// What stands for them.
    pub summary: String,
    /// What the engine said of it: who wrote the summary, and what did not go as it should.
    pub engine_notes: String,
    /// How much of what was said is still said; `None` where there was nothing to hold against it.
    pub retention: Option<Shares>,
    /// Why it was not the configured engine that made it.
    pub fallback: Option<String>,
    /// Whether it had been worked out ahead, so that nobody waited for the engine.
    pub is_precomputed: bool,
    /// Time inside engines.
    pub took: Duration,
}

impl CompactionOutcome {
    /// The outcome before anything has happened.
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

/// An entry that a compaction folded away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FoldedEntry {
    /// Its id in the session.
    pub id: String,
    /// Who spoke.
    pub role: Role,
    /// Its size.
    pub tokens: u64,
    /// The beginning of its text.
    pub excerpt: String,
}
