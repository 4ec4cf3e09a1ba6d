//! What the law says about a plan: why it refused one, what it mended in one.

use std::fmt;
use std::ops::Range;

use ctxhost_engine_api::Role;

/// Why a plan is refused. The engine is at fault; no request is made of such a plan.
///
/// `op` counts the operations of the plan from 0.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlanViolation {
    /// An operation speaks about positions that the transcript does not have.
    #[error(
        "operation {op} speaks about positions {start}..{end}, but the transcript has {len} entries"
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
    /// An operation goes back behind the one before it.
    #[error(
        "operation {op} goes back to position {start} after position {reached}; sort the operations, or insert what is to come later"
    )]
    OutOfOrder {
        /// Which operation.
        op: usize,
        /// Where it starts.
        start: u64,
        /// Where the operations before it had come to.
        reached: u64,
    },
    /// Two operations speak about the same position.
    #[error(
        "operation {op} starts at position {start}, which an operation before it already covers up to {reached}"
    )]
    Overlap {
        /// Which operation.
        op: usize,
        /// Where it starts.
        start: u64,
        /// Where the operations before it had come to.
        reached: u64,
    },
    /// An operation of a newer engine.
    #[error(
        "operation {op} is of kind {kind}, which this host does not know; use an older engine or a newer host"
    )]
    UnknownOperation {
        /// Which operation.
        op: usize,
        /// The number of its kind.
        kind: u32,
    },
    /// An inserted message in a role that is not the engine's to take.
    #[error("operation {op} inserts a message as {}; insert as user or assistant", role.name())]
    BadInsertRole {
        /// Which operation.
        op: usize,
        /// The role.
        role: Role,
    },
    /// An inserted or replaced text with nothing in it, which providers refuse.
    #[error("operation {op} puts in an empty text; leave the entry out, or say what was there")]
    EmptyText {
        /// Which operation.
        op: usize,
    },
    /// The engine's own words take too much of the budget.
    #[error(
        "the plan puts in {tokens} tokens of its own words, more than the {limit_tokens} it may; shorten them"
    )]
    InsertTooLarge {
        /// What it puts in.
        tokens: u64,
        /// What it may.
        limit_tokens: u64,
    },
    /// The JSON of a rewrite is no message.
    #[error("operation {op} rewrites entry {seq} with JSON that is no message: {reason}")]
    InvalidRewrite {
        /// Which operation.
        op: usize,
        /// The entry.
        seq: u64,
        /// What the parser said.
        reason: String,
    },
    /// A rewrite speaks in another role.
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
    /// A rewrite makes other calls, or answers another one.
    #[error(
        "operation {op} rewrites entry {seq} with other tool call ids; ids and their order must stay"
    )]
    RewriteChangedCalls {
        /// Which operation.
        op: usize,
        /// The entry.
        seq: u64,
    },
    /// A rewrite touches thinking, which its signature forbids.
    #[error(
        "operation {op} rewrites entry {seq} with other thinking; keep every thinking block to the byte or leave all of them out"
    )]
    RewriteChangedThinking {
        /// Which operation.
        op: usize,
        /// The entry.
        seq: u64,
    },
}

/// Why an entry must stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PinReason {
    /// The host pinned it: operator's rules, the first task.
    Pinned,
    /// It is the newest message of the person.
    NewestUserMessage,
    /// It belongs to the calls that the model is in the middle of.
    LiveToolRound,
}

impl PinReason {
    /// The reason in words.
    pub const fn name(self) -> &'static str {
        match self {
            PinReason::Pinned => "pinned",
            PinReason::NewestUserMessage => "newest user message",
            PinReason::LiveToolRound => "live tool round",
        }
    }
}

/// What the law mended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Repair {
    /// A cut went between a call and its result; these entries came back to close the gap.
    WidenedCut {
        /// The positions that came back.
        entries: Range<u64>,
    },
    /// The plan left out what must stay.
    Reinserted {
        /// The positions that came back, with the calls and results that belong to them.
        entries: Range<u64>,
        /// Why they must stay.
        because: PinReason,
    },
    /// The plan changed the words of an entry that is sent as it was written.
    RestoredText {
        /// The entry.
        seq: u64,
        /// Why it must stay.
        because: PinReason,
    },
    /// A result without a call was left out.
    DroppedOrphan {
        /// The entry.
        seq: u64,
    },
    /// An aborted message that said nothing and whose calls never ran was left out.
    DroppedAborted {
        /// The entry.
        seq: u64,
    },
    /// A result was moved to its place behind its call.
    MovedResult {
        /// The entry.
        seq: u64,
    },
    /// A call without a result got one.
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
                "put back entries {}..{}, which a cut had separated from their calls or results",
                entries.start, entries.end
            ),
            Repair::Reinserted { entries, because } => {
                write!(f, "put back entries {}..{}: {}", entries.start, entries.end, because.name())
            }
            Repair::RestoredText { seq, because } => {
                write!(f, "restored the words of entry {seq}: {}", because.name())
            }
            Repair::DroppedOrphan { seq } => {
                write!(f, "left out entry {seq}: a result without a call")
            }
            Repair::DroppedAborted { seq } => {
                write!(f, "left out entry {seq}: aborted before it said or did anything")
            }
            Repair::MovedResult { seq } => write!(f, "moved result {seq} to its call"),
            Repair::AddedMissingResult { seq, call_id } => {
                write!(f, "added the missing result of call {call_id} in entry {seq}")
            }
        }
    }
}
