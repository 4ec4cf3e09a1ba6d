//! The append-only log behind transcripts, on the host's side.
//!
//! Token sums and the pairing of calls with results are updated at each append, so that the cost of a turn
//! does not grow with the history.

use std::collections::HashMap;
use std::sync::Arc;

use super::links::AnswerLinks;
use super::open_calls::OpenCalls;
use super::{EntryKind, Flags, Role, Transcript};
use crate::abi::view::{
    AbiEntry, CHUNK_ENTRIES, EntryChunk, EntryHead, EntryTexts, TranscriptSnapshot,
};

/// An entry to append.
#[derive(Clone, Debug)]
pub struct NewEntry {
    /// The id in the session file.
    pub id: String,
    /// The id of the previous entry; empty for the first.
    pub parent_id: String,
    /// Milliseconds since 1970; 0 when unknown.
    pub timestamp_ms: i64,
    /// The author.
    pub role: Role,
    /// The kind of the entry.
    pub kind: EntryKind,
    /// Flags known to the writer; the log adds those of calls and results.
    pub flags: Flags,
    /// Its tokens, without margin.
    pub tokens: u64,
    /// The text of its text blocks.
    pub text: String,
    /// Its JSON.
    pub raw: String,
    /// The ids of the calls it makes, in order.
    pub calls: Vec<String>,
    /// The id of the call it answers.
    pub answers: Option<String>,
}

/// An append-only transcript.
#[derive(Default)]
pub struct TranscriptLog {
    epoch: u64,
    len: usize,
    tokens: u64,
    chunks: Vec<Arc<EntryChunk>>,
    /// The position of the newest answer under each id of a call or a link.
    answers: HashMap<String, u64>,
    /// Calls without a result: the position of the assistant message of each.
    open_calls: OpenCalls<u64>,
    /// Number of calls without a result, by position of the assistant message.
    unanswered: HashMap<u64, usize>,
    /// The newest entry that is not a result.
    last_other: Option<u64>,
}

impl TranscriptLog {
    /// An empty transcript of the given epoch.
    pub fn new(epoch: u64) -> Self {
        TranscriptLog { epoch, ..TranscriptLog::default() }
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The epoch of this log.
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// The tokens of all entries, without margin.
    pub fn total_tokens(&self) -> u64 {
        self.tokens
    }

    /// Appends an entry and returns its position.
    pub fn append(&mut self, entry: NewEntry) -> u64 {
        let seq = self.len as u64;
        // Removes the call: a result too many is an orphan.
        let answered = entry.answers.as_ref().and_then(|call| self.open_calls.take(call));
        let is_answer = entry.role == Role::Assistant;
        let links = if is_answer { AnswerLinks::parse(&entry.raw) } else { AnswerLinks::default() };
        let linked = links.refers_to.iter().filter_map(|id| self.answers.get(id).copied());
        let frame = answered.into_iter().chain(linked).map(|seq| self.frame_of(seq)).min();
        let frame = frame.unwrap_or(seq);
        self.join_frame(frame, seq);
        let mut flags = entry.flags;
        match answered {
            Some(assistant) => {
                // Providers require results directly after their calls; the flag marks exceptions.
                if self.last_other > Some(assistant) {
                    flags = flags.with(Flags::DISPLACED);
                }
                self.answer(assistant);
            }
            None if entry.role == Role::Tool => flags = flags.with(Flags::ORPHAN),
            None => {}
        }
        if !entry.calls.is_empty() {
            flags = flags.with(Flags::TOOL_CALLS).with(Flags::UNANSWERED);
            self.unanswered.insert(seq, entry.calls.len());
        }
        // A reused id refers to its newest answer, as for providers.
        let ids = links.ids.iter().chain(&entry.calls).cloned();
        self.answers.extend(ids.map(|id| (id, seq)));
        self.open_calls.open(entry.calls.into_iter().map(|call| (call, seq)));
        // 32 bits in the ABI, enough for an entry of 16 GB.
        let tokens = u32::try_from(entry.tokens).unwrap_or(u32::MAX);
        let head = EntryHead {
            seq,
            ts_ms: entry.timestamp_ms,
            frame,
            tokens_before: self.tokens,
            tokens,
            flags: flags.0,
            role: entry.role.code(),
            kind: entry.kind.code(),
        };
        let texts = EntryTexts {
            id: entry.id.into(),
            parent: entry.parent_id.into(),
            text: entry.text.into(),
            raw: entry.raw.into(),
        };
        if entry.role != Role::Tool {
            self.last_other = Some(seq);
        }
        self.push(head, texts);
        self.len += 1;
        self.tokens += u64::from(tokens);
        seq
    }

    /// A snapshot of all entries. Copies one pointer per chunk of 1,024 entries.
    pub fn snapshot(&self) -> Transcript {
        let snapshot = TranscriptSnapshot::new(self.chunks.clone(), self.len, self.epoch);
        Transcript::new(snapshot.into_object())
    }

    fn push(&mut self, head: EntryHead, texts: EntryTexts) {
        let texts = Arc::new(texts);
        match self.chunks.last_mut().filter(|chunk| !chunk.is_full()) {
            // Copies the chunk if a snapshot still shares it, so that snapshots never change.
            Some(chunk) => Arc::make_mut(chunk).push(head, texts),
            None => {
                let mut chunk = EntryChunk::default();
                chunk.push(head, texts);
                self.chunks.push(Arc::new(chunk));
            }
        }
    }

    fn entry(&self, seq: u64) -> Option<&AbiEntry<'_>> {
        let at = seq as usize;
        self.chunks.get(at / CHUNK_ENTRIES)?.entries().get(at % CHUNK_ENTRIES)
    }

    fn chunk_of(&mut self, seq: u64) -> Option<&mut EntryChunk> {
        self.chunks.get_mut(seq as usize / CHUNK_ENTRIES).map(Arc::make_mut)
    }

    fn frame_of(&self, seq: u64) -> u64 {
        self.entry(seq).map_or(seq, |entry| entry.frame)
    }

    /// Records the result of one call of an assistant message.
    fn answer(&mut self, assistant: u64) {
        let Some(open) = self.unanswered.get_mut(&assistant) else { return };
        *open -= 1;
        if *open > 0 {
            return;
        }
        self.unanswered.remove(&assistant);
        let flags = Flags(self.entry(assistant).map_or(0, |entry| entry.flags));
        if let Some(chunk) = self.chunk_of(assistant) {
            chunk.set_flags(assistant as usize % CHUNK_ENTRIES, flags.without(Flags::UNANSWERED).0);
        }
    }

    /// Adds the entries from `frame` to `end` to that frame.
    fn join_frame(&mut self, frame: u64, end: u64) {
        // Backwards, up to the first entry of the frame: earlier ones were joined with it before. A
        // turn with many results would be quadratic otherwise.
        for seq in (frame..end).rev() {
            if self.frame_of(seq) <= frame {
                break;
            }
            if let Some(chunk) = self.chunk_of(seq) {
                chunk.set_frame(seq as usize % CHUNK_ENTRIES, frame);
            }
        }
    }
}

impl std::fmt::Debug for TranscriptLog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TranscriptLog")
            .field("epoch", &self.epoch)
            .field("len", &self.len)
            .field("tokens", &self.tokens)
            .finish_non_exhaustive()
    }
}
