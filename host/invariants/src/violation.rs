//! Why a plan is refused, and what is repaired in one.

use std::fmt;
use std::ops::Range;

use ctxhost_engine_api::Role;
use ctxhost_engine_api::transcript::tokens::group_thousands;

/// Why a plan is refused. The engine is at fault, and no request is made from the plan.
///
/// `op` is the index of the operation in the plan.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanViolation {
    /// An operation refers to positions that the transcript does not have.
    #[error(
        "operation {op} refers to positions {start}..{end}, but the transcript has {len} entries"
    )]
    OutOfRange {
        /// Which operation.
        op: usize,
        /// First position.
        start: u64,
        /// Position after the last.
        end: u64,
        /// Entries in the transcript.
        len: u64,
    },
    /// A range ends before it starts.
    #[error("operation {op} has the range {start}..{end}, which ends before it starts")]
    InvertedRange {
        /// Which operation.
        op: usize,
        /// First position.
        start: u64,
        /// Position after the last.
        end: u64,
    },
    /// An operation starts before the previous one.
    #[error(
        "operation {op} goes back to position {start} after position {reached}; sort the operations"
    )]
    OutOfOrder {
        /// Which operation.
        op: usize,
        /// Where it starts.
        start: u64,
        /// The end of the operations before it.
        reached: u64,
    },
    /// Two operations refer to the same position.
    #[error(
        "operation {op} starts at position {start}, which an operation before it already covers up to {reached}"
    )]
    Overlap {
        /// Which operation.
        op: usize,
        /// Where it starts.
        start: u64,
        /// The end of the operations before it.
        reached: u64,
    },
    /// An operation of a newer version of the contract.
    #[error(
        "operation {op} is of kind {kind}, which this host does not know; use an older engine or a newer host"
    )]
    UnknownOperation {
        /// Which operation.
        op: usize,
        /// The number of its kind.
        kind: u32,
    },
    /// An inserted message with a role other than user or assistant.
    #[error("operation {op} inserts a message as {}; insert as user or assistant", role.name())]
    BadInsertRole {
        /// Which operation.
        op: usize,
        /// The role.
        role: Role,
    },
    /// An empty inserted or replaced text, which providers refuse.
    #[error(
        "operation {op} inserts an empty text; drop the entry instead, or describe what it contained"
    )]
    EmptyText {
        /// Which operation.
        op: usize,
    },
    /// The inserted text exceeds its share of the budget.
    #[error(
        "the plan inserts {} tokens of text, the limit is {} (invariants.inserted_text_max_share); shorten it", group_thousands(*tokens), group_thousands(*limit_tokens)
    )]
    InsertTooLarge {
        /// The inserted tokens.
        tokens: u64,
        /// The limit.
        limit_tokens: u64,
    },
    /// The JSON of a rewrite is not a message that can be sent.
    #[error(
        "operation {op} rewrites entry {seq} with JSON that no request can be written from: {reason}; send a message of the user, the model or a tool, or replace the text"
    )]
    InvalidRewrite {
        /// Which operation.
        op: usize,
        /// The entry.
        seq: u64,
        /// The parser's error.
        reason: String,
    },
    /// A rewrite changes the role.
    #[error("operation {op} rewrites entry {seq} from role {was:?} to {now:?}; the role must stay")]
    RewriteChangedRole {
        /// Which operation.
        op: usize,
        /// The entry.
        seq: u64,
        /// Its role in the session.
        was: String,
        /// The role of the rewrite.
        now: String,
    },
    /// A rewrite changes tool call ids.
    #[error(
        "operation {op} rewrites entry {seq} with other tool call ids; ids and their order must stay"
    )]
    RewriteChangedCalls {
        /// Which operation.
        op: usize,
        /// The entry.
        seq: u64,
    },
    /// A rewrite changes thinking, which its signature forbids.
    #[error(
        "operation {op} rewrites entry {seq} with other thinking; keep every thinking block unchanged or drop all of them"
    )]
    RewriteChangedThinking {
        /// Which operation.
        op: usize,
        /// The entry.
        seq: u64,
    },
}

/// Why an entry is pinned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PinReason {
    /// Pinned by the host: operator's rules, the first task.
    Pinned,
    /// The newest user message.
    NewestUserMessage,
    /// Part of the tool round that the model has not finished.
    LiveToolRound,
}

impl PinReason {
    /// The reason as text.
    pub const fn name(self) -> &'static str {
        match self {
            PinReason::Pinned => "pinned",
            PinReason::NewestUserMessage => "newest user message",
            PinReason::LiveToolRound => "live tool round",
        }
    }
}

/// A repair of a plan or of the conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Repair {
    /// A cut between a call and its result; these entries were reinserted.
    WidenedCut {
        /// The reinserted positions.
        entries: Range<u64>,
    },
    /// The plan dropped pinned entries.
    Reinserted {
        /// The reinserted positions, with the calls and results that belong to them.
        entries: Range<u64>,
        /// Why they are pinned.
        reason: PinReason,
    },
    /// The plan changed the text of a pinned entry.
    RestoredText {
        /// The entry.
        seq: u64,
        /// Why it is pinned.
        reason: PinReason,
    },
    /// The plan inserted text behind the message that the model has to answer; it was moved before it.
    MovedInsert {
        /// The position that the text stands before now.
        before: u64,
    },
    /// A result without a call was dropped.
    DroppedOrphan {
        /// The entry.
        seq: u64,
    },
    /// An aborted message without text, whose calls never ran, was dropped.
    DroppedAborted {
        /// The entry.
        seq: u64,
    },
    /// A result was moved behind its call.
    MovedResult {
        /// The entry.
        seq: u64,
    },
    /// A synthetic result was added for a call without one.
    AddedMissingResult {
        /// The entry that calls.
        seq: u64,
        /// The id of the call.
        call_id: String,
    },
}

impl fmt::Display for Repair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Repair::WidenedCut { entries } => write!(
                f,
                "reinserted entries {}..{}, which a cut had separated from their calls or results",
                entries.start, entries.end
            ),
            Repair::Reinserted { entries, reason } => {
                write!(
                    f,
                    "reinserted entries {}..{}: {}",
                    entries.start,
                    entries.end,
                    reason.name()
                )
            }
            Repair::RestoredText { seq, reason } => {
                write!(f, "restored the text of entry {seq}: {}", reason.name())
            }
            Repair::MovedInsert { before } => {
                write!(f, "moved an inserted text before entry {before}, where the request ends")
            }
            Repair::DroppedOrphan { seq } => {
                write!(f, "dropped entry {seq}: a result without a call")
            }
            Repair::DroppedAborted { seq } => {
                write!(f, "dropped entry {seq}: aborted without text or calls that ran")
            }
            Repair::MovedResult { seq } => write!(f, "moved result {seq} to its call"),
            Repair::AddedMissingResult { seq, call_id } => {
                write!(f, "added the missing result of call {call_id} in entry {seq}")
            }
        }
    }
}
