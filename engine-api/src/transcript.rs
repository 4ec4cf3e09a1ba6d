//! The transcript: the entries of a conversation in context order.
//!
//! The host owns the transcript. An engine receives a [`Transcript`], a cheap handle to an immutable
//! snapshot, and reads borrowed [`Entry`] values. Entries are parsed on demand by [`Entry::message`].

pub mod links;
pub mod log;
pub mod message;
pub mod open_calls;
pub mod projection_builder;
pub mod replica;
pub mod tokens;

use std::ops::Range;

use serde::{Deserialize, Serialize};

use crate::abi::view::{AbiEntry, CHUNK_ENTRIES, TranscriptObj, TranscriptSnapshot};
pub use message::{ContentBlock, Message, ToolCall, ToolResult};

/// The author of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Role {
    /// Instructions of the host or the operator.
    System,
    /// The user, or text that is sent as user text (summaries, notes).
    User,
    /// The model.
    Assistant,
    /// The result of one tool call.
    Tool,
    /// A role of a newer host. Treat the entry as opaque and keep it.
    Unknown,
}

impl Role {
    /// The number of the role in the ABI.
    pub const fn code(self) -> u8 {
        match self {
            Role::System => 1,
            Role::User => 2,
            Role::Assistant => 3,
            Role::Tool => 4,
            Role::Unknown => 0,
        }
    }

    /// The role of a number in the ABI; [`Role::Unknown`] for an unknown number.
    pub const fn from_code(code: u8) -> Role {
        match code {
            1 => Role::System,
            2 => Role::User,
            3 => Role::Assistant,
            4 => Role::Tool,
            _ => Role::Unknown,
        }
    }

    /// The lower-case name for logs and reports.
    pub const fn name(self) -> &'static str {
        match self {
            Role::System => "system",
            Role::User => "user",
            Role::Assistant => "assistant",
            Role::Tool => "tool",
            Role::Unknown => "unknown",
        }
    }
}

/// The kind of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EntryKind {
    /// A message of the user, the model or a tool.
    Message,
    /// The summary of a compaction, which replaces earlier entries.
    CompactionSummary,
    /// The summary of an abandoned branch.
    BranchSummary,
    /// A message of an extension of the agent.
    Custom,
    /// A shell command that the user ran, with its output.
    Bash,
    /// A kind of a newer host. Treat the entry as opaque and keep it.
    Unknown,
}

impl EntryKind {
    /// The number of the kind in the ABI.
    pub const fn code(self) -> u8 {
        match self {
            EntryKind::Message => 1,
            EntryKind::CompactionSummary => 2,
            EntryKind::BranchSummary => 3,
            EntryKind::Custom => 4,
            EntryKind::Bash => 5,
            EntryKind::Unknown => 0,
        }
    }

    /// The kind that a number of the ABI stands for; any unknown number is [`EntryKind::Unknown`].
    pub const fn from_code(code: u8) -> EntryKind {
        match code {
            1 => EntryKind::Message,
            2 => EntryKind::CompactionSummary,
            3 => EntryKind::BranchSummary,
            4 => EntryKind::Custom,
            5 => EntryKind::Bash,
            _ => EntryKind::Unknown,
        }
    }
}

/// Properties of an entry, computed by the host when it was appended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flags(pub u16);

impl Flags {
    /// An assistant message that calls at least one tool.
    pub const TOOL_CALLS: Flags = Flags(1);
    /// Contains at least one image.
    pub const IMAGES: Flags = Flags(1 << 1);
    /// A tool result that reports a failure.
    pub const ERROR: Flags = Flags(1 << 2);
    /// An assistant message that was aborted or ended in an error.
    pub const ABORTED: Flags = Flags(1 << 3);
    /// Contains thinking blocks, which must be sent byte for byte or dropped.
    pub const THINKING: Flags = Flags(1 << 4);
    /// A tool result whose call is not in the transcript; it cannot be sent.
    pub const ORPHAN: Flags = Flags(1 << 5);
    /// Written by an engine or the host.
    pub const SYNTHETIC: Flags = Flags(1 << 6);
    /// Its text was replaced by an earlier compaction; the session keeps the original.
    pub const REPLACED: Flags = Flags(1 << 7);
    /// Pinned by the host: system entries and the first task. A plan must keep it.
    pub const PINNED: Flags = Flags(1 << 8);
    /// A message of a heartbeat instead of the user.
    pub const HEARTBEAT: Flags = Flags(1 << 9);

    /// An assistant message with at least one call without a result.
    pub const UNANSWERED: Flags = Flags(1 << 10);
    /// A tool result that does not directly follow its call or the call's other results.
    pub const DISPLACED: Flags = Flags(1 << 11);

    /// Whether every bit of `other` is set.
    pub const fn contains(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }

    /// The bits that are not in `other`.
    #[must_use]
    pub const fn without(self, other: Flags) -> Flags {
        Flags(self.0 & !other.0)
    }

    /// The bits of both.
    #[must_use]
    pub const fn with(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }
}

/// An entry of a transcript, borrowed from the snapshot.
#[derive(Clone, Copy)]
pub struct Entry<'a> {
    raw: &'a AbiEntry<'a>,
}

impl<'a> Entry<'a> {
    pub(crate) fn new(raw: &'a AbiEntry<'a>) -> Self {
        Entry { raw }
    }

    /// Position in this snapshot, from 0 without gaps. Plans refer to it.
    pub fn seq(&self) -> u64 {
        self.raw.seq
    }

    /// Its time, in milliseconds since 1970; 0 if unknown.
    pub fn timestamp_ms(&self) -> i64 {
        self.raw.ts_ms
    }

    /// Its tokens, as estimated by the host for the active model, without a margin.
    pub fn tokens(&self) -> u64 {
        u64::from(self.raw.tokens)
    }

    /// The tokens of all entries before this one; allows a binary search for a budget.
    pub fn tokens_before(&self) -> u64 {
        self.raw.tokens_before
    }

    /// The nearest position at or before this entry where a cut does not separate a call from its result.
    ///
    /// A kept range may start at entries with `frame() == seq()`.
    pub fn frame(&self) -> u64 {
        self.raw.frame
    }

    /// Whether a kept range may start here without separating a call from its result.
    pub fn is_cut_point(&self) -> bool {
        self.raw.frame == self.raw.seq
    }

    /// The author.
    pub fn role(&self) -> Role {
        Role::from_code(self.raw.role)
    }

    /// The kind of the entry.
    pub fn kind(&self) -> EntryKind {
        EntryKind::from_code(self.raw.kind)
    }

    /// Properties computed by the host.
    pub fn flags(&self) -> Flags {
        Flags(self.raw.flags)
    }

    /// Whether all bits of `flag` are set.
    pub fn has(&self, flag: Flags) -> bool {
        self.flags().contains(flag)
    }

    /// Whether this is a message of the user, not a summary, a note or a heartbeat.
    pub fn is_user_message(&self) -> bool {
        // Summaries and notes have the role `User` as well, because providers offer no other one.
        self.role() == Role::User
            && self.kind() == EntryKind::Message
            && !self.has(Flags::HEARTBEAT)
    }

    /// The `customType` of a note with [instructions](Self::is_instruction).
    pub const INSTRUCTION_TYPE: &'static str = "ctxhost.instruction";

    /// Whether this note is a message of the system within the conversation: what the client's program wants of the model
    /// from here on.
    pub fn is_instruction(&self) -> bool {
        #[derive(serde::Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct NoteType {
            custom_type: String,
        }
        self.kind() == EntryKind::Custom
            && serde_json::from_str(self.raw())
                .is_ok_and(|note: NoteType| note.custom_type == Self::INSTRUCTION_TYPE)
    }

    /// The id of the entry in the session file; stable across compactions and restarts.
    pub fn id(&self) -> &'a str {
        self.raw.id.as_str()
    }

    /// The id of the previous entry in the session file; empty for the first.
    pub fn parent_id(&self) -> &'a str {
        self.raw.parent.as_str()
    }

    /// The text of all text blocks, joined by newlines, without thinking and calls.
    pub fn text(&self) -> &'a str {
        self.raw.text.as_str()
    }

    /// The JSON of the message (of the whole entry for summaries and custom messages), Pi session v3.
    pub fn raw(&self) -> &'a str {
        self.raw.raw.as_str()
    }

    /// Parses [`raw`](Self::raw) into blocks. The result is not cached.
    ///
    /// An entry whose JSON is not a message becomes one text block with [`text`](Self::text).
    pub fn message(&self) -> Message<'a> {
        Message::parse(self.raw(), self.text())
    }

    /// The calls of an assistant message, in order. Parses only entries that have calls.
    pub fn tool_calls(&self) -> Vec<ToolCall<'a>> {
        if self.has(Flags::TOOL_CALLS) { self.message().tool_calls() } else { Vec::new() }
    }

    /// The head of a tool result; `None` for other roles, without parsing.
    pub fn tool_result(&self) -> Option<ToolResult<'a>> {
        if self.role() == Role::Tool { ToolResult::parse(self.raw()) } else { None }
    }
}

impl std::fmt::Debug for Entry<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Entry")
            .field("seq", &self.seq())
            .field("id", &self.id())
            .field("role", &self.role())
            .field("kind", &self.kind())
            .field("tokens", &self.tokens())
            .finish_non_exhaustive()
    }
}

/// An immutable snapshot of the live transcript of one session, oldest entry first. Cloning is cheap.
///
/// A compaction starts a new live transcript with the summary and increments [`epoch`](Self::epoch).
/// Entry ids are stable, positions are not. [`Host::history`](crate::Host::history) reads removed entries.
#[derive(Clone)]
pub struct Transcript {
    object: TranscriptObj,
    len: usize,
}

impl Transcript {
    pub(crate) fn new(object: TranscriptObj) -> Self {
        // Cached, because every call of the object crosses the ABI.
        let len = object.len();
        Transcript { object, len }
    }

    pub(crate) fn into_object(self) -> TranscriptObj {
        self.object
    }

    /// A transcript without entries, for calls that have none.
    pub fn empty() -> Self {
        Transcript::new(TranscriptSnapshot::new(Vec::new(), 0, 0).into_object())
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Increments at each compaction. Stored positions are stale when this changes.
    pub fn epoch(&self) -> u64 {
        self.object.epoch()
    }

    /// The entry at a position, `None` past the end.
    pub fn get(&self, seq: u64) -> Option<Entry<'_>> {
        let at = usize::try_from(seq).ok().filter(|at| *at < self.len)?;
        let chunk = self.object.chunk(at / CHUNK_ENTRIES).as_slice();
        chunk.get(at % CHUNK_ENTRIES).map(Entry::new)
    }

    /// The last entry.
    pub fn last(&self) -> Option<Entry<'_>> {
        self.get((self.len as u64).checked_sub(1)?)
    }

    /// All entries, oldest first.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = Entry<'_>> {
        self.range(0..self.len as u64)
    }

    /// The entries of a range, oldest first; positions past the end are skipped.
    pub fn range(&self, range: Range<u64>) -> impl DoubleEndedIterator<Item = Entry<'_>> {
        let end = range.end.min(self.len as u64);
        let start = range.start.min(end);
        // Whole chunks at a time: one ABI call for each 1,024 entries.
        let chunks = (start as usize / CHUNK_ENTRIES)..(end as usize).div_ceil(CHUNK_ENTRIES);
        chunks.flat_map(move |k| {
            let first = (k * CHUNK_ENTRIES) as u64;
            let chunk = self.object.chunk(k).as_slice();
            let from = (start.saturating_sub(first) as usize).min(chunk.len());
            let to = (end.saturating_sub(first) as usize).clamp(from, chunk.len());
            chunk.get(from..to).unwrap_or(&[]).iter().map(Entry::new)
        })
    }

    /// The tokens of a range, without a margin. Constant time.
    pub fn tokens(&self, range: Range<u64>) -> u64 {
        self.tokens_until(range.end).saturating_sub(self.tokens_until(range.start))
    }

    /// The tokens of all entries.
    pub fn total_tokens(&self) -> u64 {
        self.tokens_until(self.len as u64)
    }

    /// The nearest position at or before `seq` where a cut does not separate a call from its result; the
    /// length past the end.
    pub fn cut_at_or_before(&self, seq: u64) -> u64 {
        self.get(seq).map_or(self.len as u64, |entry| entry.frame())
    }

    /// The nearest position at or after `seq` where a cut does not separate a call from its result; the
    /// length if there is none.
    pub fn cut_at_or_after(&self, seq: u64) -> u64 {
        self.range(seq..self.len as u64)
            .find(Entry::is_cut_point)
            .map_or(self.len as u64, |entry| entry.seq())
    }

    /// The first cut point from which the rest has at most `budget` tokens; the length if none.
    pub fn tail_within(&self, budget: u64) -> u64 {
        // A binary search over the token sums, then forward to a safe cut: going back would exceed
        // the budget.
        let floor = self.total_tokens().saturating_sub(budget);
        let (mut low, mut high) = (0, self.len as u64);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.tokens_until(middle) < floor { low = middle + 1 } else { high = middle }
        }
        self.cut_at_or_after(low)
    }

    /// The newest user message, if any.
    pub fn newest_user_message(&self) -> Option<Entry<'_>> {
        self.iter().rev().find(Entry::is_user_message)
    }

    fn tokens_until(&self, seq: u64) -> u64 {
        match self.get(seq) {
            Some(entry) => entry.tokens_before(),
            // Positions past the end count as the end, so that `tokens` accepts any range.
            None => self.last().map_or(0, |entry| entry.tokens_before() + entry.tokens()),
        }
    }
}

impl std::fmt::Debug for Transcript {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Transcript")
            .field("len", &self.len)
            .field("epoch", &self.epoch())
            .finish_non_exhaustive()
    }
}
