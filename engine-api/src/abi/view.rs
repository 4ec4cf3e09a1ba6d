//! ABI types of transcripts: entries, chunks of entries, a read-only snapshot.

use std::sync::Arc;

use abi_stable::StableAbi;
use abi_stable::sabi_trait;
use abi_stable::sabi_trait::TD_Opaque;
use abi_stable::std_types::{RArc, RSlice, RStr};

/// Entries per chunk. Part of the ABI: entry `i` is in chunk `i / CHUNK_ENTRIES`.
pub(crate) const CHUNK_ENTRIES: usize = 1024;

/// The ABI of an entry. Frozen within the major version.
#[repr(C)]
#[derive(StableAbi, Clone, Copy)]
pub struct AbiEntry<'a> {
    pub(crate) seq: u64,
    pub(crate) ts_ms: i64,
    pub(crate) frame: u64,
    pub(crate) tokens_before: u64,
    pub(crate) tokens: u32,
    pub(crate) flags: u16,
    pub(crate) role: u8,
    pub(crate) kind: u8,
    pub(crate) id: RStr<'a>,
    pub(crate) parent: RStr<'a>,
    pub(crate) text: RStr<'a>,
    pub(crate) raw: RStr<'a>,
}

/// The ABI of a read-only snapshot.
#[sabi_trait]
pub trait AbiTranscript: Send + Sync + 'static {
    fn len(&self) -> usize;
    fn epoch(&self) -> u64;
    /// The entries of chunk `k`; empty past the end.
    #[sabi(last_prefix_field)]
    fn chunk(&self, k: usize) -> RSlice<'_, AbiEntry<'_>>;
}

/// A shared handle to a snapshot. The side that created the snapshot frees it.
pub(crate) struct TranscriptObj(pub(crate) AbiTranscript_TO<RArc<()>>);

impl TranscriptObj {
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
    pub(crate) fn epoch(&self) -> u64 {
        self.0.epoch()
    }
    pub(crate) fn chunk(&self, k: usize) -> RSlice<'_, AbiEntry<'_>> {
        self.0.chunk(k)
    }
}

impl Clone for TranscriptObj {
    fn clone(&self) -> Self {
        TranscriptObj(AbiTranscript_TO::from_sabi(self.0.obj.shallow_clone()))
    }
}

/// The strings that an entry of a chunk borrows.
#[derive(Debug, Default)]
pub(crate) struct EntryTexts {
    pub(crate) id: Box<str>,
    pub(crate) parent: Box<str>,
    pub(crate) text: Box<str>,
    pub(crate) raw: Box<str>,
}

/// Up to [`CHUNK_ENTRIES`] entries with the strings they borrow.
#[derive(Clone, Default)]
pub(crate) struct EntryChunk {
    // `'static` is wrong outside of this type: the strings live in `texts`, which holds them as long as
    // their entry, or in `view`, which never changes. `entries()` shortens the lifetime to that of the
    // chunk.
    entries: Vec<AbiEntry<'static>>,
    texts: Vec<Arc<EntryTexts>>,
    /// The base view from which some of the entries borrow their strings.
    view: Option<TranscriptObj>,
}

/// The numeric fields of an entry.
pub(crate) struct EntryHead {
    pub(crate) seq: u64,
    pub(crate) ts_ms: i64,
    pub(crate) frame: u64,
    pub(crate) tokens_before: u64,
    pub(crate) tokens: u32,
    pub(crate) flags: u16,
    pub(crate) role: u8,
    pub(crate) kind: u8,
}

impl EntryHead {
    /// Adds id, parent, text and JSON.
    fn with(self, [id, parent, text, raw]: [&str; 4]) -> AbiEntry<'static> {
        AbiEntry {
            seq: self.seq,
            ts_ms: self.ts_ms,
            frame: self.frame,
            tokens_before: self.tokens_before,
            tokens: self.tokens,
            flags: self.flags,
            role: self.role,
            kind: self.kind,
            id: outlive(id),
            parent: outlive(parent),
            text: outlive(text),
            raw: outlive(raw),
        }
    }
}

impl EntryChunk {
    /// An empty chunk that may borrow entries of a view.
    pub(crate) fn with_base(view: TranscriptObj) -> EntryChunk {
        EntryChunk { view: Some(view), ..EntryChunk::default() }
    }

    pub(crate) fn push(&mut self, head: EntryHead, texts: Arc<EntryTexts>) {
        self.entries.push(head.with([&*texts.id, &*texts.parent, &*texts.text, &*texts.raw]));
        // After its entry: see `outlive` for the order that keeps the borrowed strings valid.
        self.texts.push(texts);
    }

    /// Appends an entry that borrows the strings of an entry of the base view. Does nothing if the base has
    /// no such entry.
    pub(crate) fn push_from_base(&mut self, head: EntryHead, seq: u64) {
        // Missing entries are ignored: the caller checks positions, and this type must not panic.
        let Some(view) = &self.view else { return };
        let Ok(at) = usize::try_from(seq) else { return };
        let chunk = view.chunk(at / CHUNK_ENTRIES).as_slice();
        let Some(entry) = chunk.get(at % CHUNK_ENTRIES) else { return };
        let texts = [&entry.id, &entry.parent, &entry.text, &entry.raw].map(RStr::as_str);
        self.entries.push(head.with(texts));
    }

    pub(crate) fn entries(&self) -> &[AbiEntry<'_>] {
        &self.entries
    }

    pub(crate) fn is_full(&self) -> bool {
        self.entries.len() >= CHUNK_ENTRIES
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Drops all entries from `len` on, then their strings.
    pub(crate) fn truncate(&mut self, len: usize) {
        self.entries.truncate(len);
        // After the entries that borrow them.
        self.texts.truncate(len);
    }

    pub(crate) fn set_frame(&mut self, at: usize, frame: u64) {
        if let Some(entry) = self.entries.get_mut(at) {
            entry.frame = frame;
        }
    }

    pub(crate) fn set_flags(&mut self, at: usize, flags: u16) {
        if let Some(entry) = self.entries.get_mut(at) {
            entry.flags = flags;
        }
    }
}

fn outlive(text: &str) -> RStr<'static> {
    // SAFETY: only `EntryChunk::push` and `push_from_base` call this. `push` stores the `Arc<EntryTexts>` that
    // owns the text in `texts` for as long as the entry is in `entries`: `truncate` removes both in that order,
    // and `texts` has the order of its entries and is never longer, so no text is dropped before its entry. A
    // boxed str does not move. `push_from_base` reads the text from the snapshot in `view`, which is set once,
    // at creation, and whose strings are valid while a handle to it exists. Clones of a chunk clone both, and
    // `entries()` limits the lifetime to the borrow of the chunk.
    unsafe { RStr::from_raw_parts(text.as_ptr(), text.len()) }
}

/// A snapshot of a log that shares its chunks.
pub(crate) struct TranscriptSnapshot {
    chunks: Vec<Arc<EntryChunk>>,
    len: usize,
    epoch: u64,
}

impl TranscriptSnapshot {
    pub(crate) fn new(chunks: Vec<Arc<EntryChunk>>, len: usize, epoch: u64) -> Self {
        TranscriptSnapshot { chunks, len, epoch }
    }

    pub(crate) fn into_object(self) -> TranscriptObj {
        TranscriptObj(AbiTranscript_TO::from_ptr(RArc::new(self), TD_Opaque))
    }
}

impl AbiTranscript for TranscriptSnapshot {
    fn len(&self) -> usize {
        self.len
    }

    fn epoch(&self) -> u64 {
        self.epoch
    }

    fn chunk(&self, k: usize) -> RSlice<'_, AbiEntry<'_>> {
        let entries = self.chunks.get(k).map_or(&[][..], |chunk| chunk.entries());
        // The log copies a shared tail chunk before it appends, so this chunk has not grown. The limit makes
        // that independent of the log.
        let here = self.len.saturating_sub(k.saturating_mul(CHUNK_ENTRIES)).min(entries.len());
        RSlice::from_slice(entries.get(..here).unwrap_or(&[]))
    }
}
