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
    /// The beginnings of all frames, in order. A frame reaches to the next one.
    frames: Vec<u64>,
    /// The first entry whose frame is out of date in its chunk.
    stale_from: Option<u64>,
    /// The number of entries since the chunks had all frames.
    since_written: u64,
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
        self.write_old_frames();
        seq
    }

    /// A snapshot of all entries. Copies one pointer per chunk of 1,024 entries.
    pub fn snapshot(&self) -> Transcript {
        let mut chunks = self.chunks.clone();
        if let Some(from) = self.stale_from {
            write_frames(&mut chunks, &self.frames, from);
        }
        let snapshot = TranscriptSnapshot::new(chunks, self.len, self.epoch);
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
        frame_in(&self.frames, seq)
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

    /// Adds the entries from `frame` to `seq`, which is appended, to that frame.
    fn join_frame(&mut self, frame: u64, seq: u64) {
        while let Some(joined) = self.frames.pop_if(|begin| *begin > frame) {
            self.stale_from = Some(self.stale_from.map_or(joined, |from| from.min(joined)));
        }
        if frame == seq {
            self.frames.push(seq);
        }
    }

    /// Writes the frames of old entries into their chunks once as many were appended: results in the reverse
    /// order of their calls join all entries between them, each again, which would be quadratic.
    fn write_old_frames(&mut self) {
        self.since_written += 1;
        let Some(from) = self.stale_from else { return };
        if self.since_written >= self.len as u64 - from {
            write_frames(&mut self.chunks, &self.frames, from);
            (self.stale_from, self.since_written) = (None, 0);
        }
    }
}

/// Writes the frames of the entries after `from` that are out of date.
fn write_frames(chunks: &mut [Arc<EntryChunk>], frames: &[u64], from: u64) {
    let first = from as usize / CHUNK_ENTRIES;
    for chunk in chunks.iter_mut().skip(first) {
        let is_stale = |entry: &AbiEntry<'_>| entry.frame != frame_in(frames, entry.seq);
        let stale = chunk.entries().iter().enumerate().filter(|(_, entry)| is_stale(entry));
        let stale: Vec<(usize, u64)> =
            stale.map(|(at, entry)| (at, frame_in(frames, entry.seq))).collect();
        // A chunk that a snapshot shares is copied only where something changes.
        if !stale.is_empty() {
            let chunk = Arc::make_mut(chunk);
            stale.into_iter().for_each(|(at, frame)| chunk.set_frame(at, frame));
        }
    }
}

/// The beginning of the frame of an entry.
fn frame_in(frames: &[u64], seq: u64) -> u64 {
    let after = frames.partition_point(|begin| *begin <= seq);
    after.checked_sub(1).and_then(|at| frames.get(at)).copied().unwrap_or(seq)
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

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(number: usize, role: Role) -> NewEntry {
        NewEntry {
            id: number.to_string(),
            parent_id: String::new(),
            timestamp_ms: 0,
            role,
            kind: EntryKind::Message,
            flags: Flags::default(),
            tokens: 1,
            text: String::new(),
            raw: "{}".into(),
            calls: Vec::new(),
            answers: None,
        }
    }

    fn call(number: usize) -> NewEntry {
        let calls = vec![format!("c{number}")];
        NewEntry { calls, ..entry(number, Role::Assistant) }
    }

    fn result(number: usize) -> NewEntry {
        let answers = Some(format!("c{number}"));
        NewEntry { answers, ..entry(number, Role::Tool) }
    }

    fn frames(log: &TranscriptLog) -> Vec<u64> {
        log.snapshot().iter().map(|entry| entry.frame()).collect()
    }

    #[test]
    fn results_in_any_order_join_all_entries_back_to_their_call() {
        for seed in 0..40_u64 {
            let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
            let mut random = |below: usize| {
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                usize::try_from(state >> 33).unwrap() % below
            };
            let (mut log, mut expected, mut open) = (TranscriptLog::new(0), Vec::new(), Vec::new());
            for number in 0..400 {
                let seq = number as u64;
                match random(3) {
                    0 => {
                        open.push((number, seq));
                        expected.push(seq);
                        log.append(call(number));
                    }
                    1 if !open.is_empty() => {
                        let (answered, at) = open.remove(random(open.len()));
                        let frame: u64 = expected[usize::try_from(at).unwrap()];
                        expected.push(frame);
                        let later = expected.iter_mut().skip(usize::try_from(frame).unwrap());
                        later.for_each(|entry| *entry = frame);
                        log.append(result(answered));
                    }
                    _ => {
                        expected.push(seq);
                        log.append(entry(number, Role::User));
                    }
                }
                if number % 7 == 0 {
                    assert_eq!(frames(&log), expected, "seed {seed}, entry {number}");
                }
            }
            assert_eq!(frames(&log), expected, "seed {seed}");
        }
    }

    #[test]
    fn frames_are_written_once_for_as_many_new_entries() {
        let mut log = TranscriptLog::new(0);
        (0..1_000).for_each(|number| _ = log.append(call(number)));
        let mut written = 0;
        for number in (0..1_000).rev() {
            log.append(result(number));
            written += usize::from(log.stale_from.is_none());
        }
        assert!(written < 10, "{written} times");
        assert!(frames(&log).iter().all(|frame| *frame == 0));
    }
}
