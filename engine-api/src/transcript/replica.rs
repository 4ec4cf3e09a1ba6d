//! Replicates a transcript to another process: the changes since the last snapshot, and the replica.
//!
//! The sender keeps the last snapshot and computes [`diff`]. The receiver keeps a [`TranscriptReplica`], which
//! copies all derived values, such as frames and token sums, and therefore cannot disagree with the log.

use std::borrow::Cow;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Entry, Transcript};
use crate::abi::view::{
    AbiEntry, CHUNK_ENTRIES, EntryChunk, EntryHead, EntryTexts, TranscriptSnapshot,
};

/// The changes from an older snapshot to a newer one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TranscriptDiff {
    /// Number of entries at the start that are kept; later ones are sent again.
    pub kept: u64,
    /// Kept entries whose frame or flags changed, such as a call that got its result.
    pub patches: Vec<EntryPatch>,
}

/// A change of an existing entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EntryPatch {
    /// Its position.
    pub seq: u64,
    /// See [`Entry::frame`].
    pub frame: u64,
    /// See [`Entry::flags`].
    pub flags: u16,
}

/// The wire format of an entry. Texts are borrowed from JSON where they need no unescaping.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReplicaEntry<'a> {
    /// Milliseconds since 1970.
    pub ts_ms: i64,
    /// See [`Entry::frame`].
    pub frame: u64,
    /// See [`Entry::tokens_before`].
    pub tokens_before: u64,
    /// See [`Entry::tokens`].
    pub tokens: u32,
    /// See [`Entry::flags`].
    pub flags: u16,
    /// The number of its role.
    pub role: u8,
    /// The number of its kind.
    pub kind: u8,
    /// See [`Entry::id`].
    #[serde(borrow)]
    pub id: Cow<'a, str>,
    /// See [`Entry::parent_id`].
    #[serde(borrow)]
    pub parent: Cow<'a, str>,
    /// See [`Entry::text`].
    #[serde(borrow)]
    pub text: Cow<'a, str>,
    /// See [`Entry::raw`].
    #[serde(borrow)]
    pub raw: Cow<'a, str>,
}

impl<'a> From<Entry<'a>> for ReplicaEntry<'a> {
    fn from(entry: Entry<'a>) -> Self {
        let raw = entry.raw;
        ReplicaEntry {
            ts_ms: raw.ts_ms,
            frame: raw.frame,
            tokens_before: raw.tokens_before,
            tokens: raw.tokens,
            flags: raw.flags,
            role: raw.role,
            kind: raw.kind,
            id: entry.id().into(),
            parent: entry.parent_id().into(),
            text: entry.text().into(),
            raw: entry.raw().into(),
        }
    }
}

/// Computes the changes from `old` to `new`. The cost grows with the changes and the number of chunks.
///
/// The snapshots may belong to different logs and epochs.
pub fn diff(old: &Transcript, new: &Transcript) -> TranscriptDiff {
    let mut changes = TranscriptDiff::default();
    let shared = old.len().min(new.len());
    for k in 0..shared.div_ceil(CHUNK_ENTRIES) {
        let (was, is) = (old.object.chunk(k), new.object.chunk(k));
        let (was, is) = (was.as_slice(), is.as_slice());
        let both = was.len().min(is.len());
        // Snapshots of one log share their chunks, so equal addresses mean equal entries.
        if std::ptr::eq(was.as_ptr(), is.as_ptr()) {
            changes.kept += both as u64;
            continue;
        }
        for (was, is) in was.iter().zip(is) {
            if !is_same(was, is) {
                return changes;
            }
            if (was.frame, was.flags) != (is.frame, is.flags) {
                let mark = EntryPatch { seq: changes.kept, frame: is.frame, flags: is.flags };
                changes.patches.push(mark);
            }
            changes.kept += 1;
        }
    }
    changes
}

fn is_same(was: &AbiEntry<'_>, is: &AbiEntry<'_>) -> bool {
    let numbers = |entry: &AbiEntry<'_>| {
        (entry.ts_ms, entry.tokens_before, entry.tokens, entry.role, entry.kind)
    };
    let texts = [(was.id, is.id), (was.parent, is.parent), (was.text, is.text), (was.raw, is.raw)];
    numbers(was) == numbers(is)
        && texts.iter().all(|(was, is)| {
            // Projections borrow strings of their base: comparing addresses avoids comparing texts.
            let is_shared = std::ptr::eq(was.as_ptr(), is.as_ptr()) && was.len() == is.len();
            is_shared || was.as_str() == is.as_str()
        })
}

/// A copy of a transcript of another process.
#[derive(Default)]
pub struct TranscriptReplica {
    chunks: Vec<Arc<EntryChunk>>,
    len: usize,
}

impl TranscriptReplica {
    /// An empty one.
    pub fn new() -> Self {
        TranscriptReplica::default()
    }

    /// Number of entries.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Keeps the first `kept` entries only.
    pub fn keep(&mut self, kept: u64) {
        self.len = usize::try_from(kept).unwrap_or(usize::MAX).min(self.len);
        // Whole chunks first; snapshots that share them keep their own references.
        self.chunks.truncate(self.len.div_ceil(CHUNK_ENTRIES));
        let rest = self.len % CHUNK_ENTRIES;
        if let Some(last) = self.chunks.last_mut().filter(|chunk| rest > 0 && chunk.len() > rest) {
            Arc::make_mut(last).truncate(rest);
        }
    }

    /// Applies a change of an entry; ignores unknown positions.
    pub fn patch(&mut self, mark: EntryPatch) {
        let at = usize::try_from(mark.seq).unwrap_or(usize::MAX);
        if let Some(chunk) = self.chunks.get_mut(at / CHUNK_ENTRIES) {
            let chunk = Arc::make_mut(chunk);
            chunk.set_frame(at % CHUNK_ENTRIES, mark.frame);
            chunk.set_flags(at % CHUNK_ENTRIES, mark.flags);
        }
    }

    /// Appends an entry.
    pub fn append(&mut self, entry: ReplicaEntry<'_>) {
        if self.chunks.last().is_none_or(|chunk| chunk.is_full()) {
            self.chunks.push(Arc::default());
        }
        let Some(chunk) = self.chunks.last_mut() else { return };
        let head = EntryHead {
            seq: self.len as u64,
            ts_ms: entry.ts_ms,
            frame: entry.frame,
            tokens_before: entry.tokens_before,
            tokens: entry.tokens,
            flags: entry.flags,
            role: entry.role,
            kind: entry.kind,
        };
        let texts = EntryTexts {
            id: entry.id.into(),
            parent: entry.parent.into(),
            text: entry.text.into(),
            raw: entry.raw.into(),
        };
        Arc::make_mut(chunk).push(head, Arc::new(texts));
        self.len += 1;
    }

    /// A snapshot of the current content as the transcript of an epoch.
    pub fn snapshot(&self, epoch: u64) -> Transcript {
        Transcript::new(TranscriptSnapshot::new(self.chunks.clone(), self.len, epoch).into_object())
    }
}

impl std::fmt::Debug for TranscriptReplica {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mirror").field("len", &self.len).finish_non_exhaustive()
    }
}

#[cfg(all(test, feature = "testing"))]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::testing::TranscriptBuilder;
    use crate::testing::generate::transcripts;
    use crate::transcript::log::TranscriptLog;

    /// Updates a replica from `old` to `new` and returns the number of entries sent.
    fn follow(mirror: &mut TranscriptReplica, old: &Transcript, new: &Transcript) -> u64 {
        let changes = diff(old, new);
        mirror.keep(changes.kept);
        changes.patches.iter().for_each(|mark| mirror.patch(*mark));
        for entry in new.range(changes.kept..new.len() as u64) {
            mirror.append(ReplicaEntry::from(entry));
        }
        new.len() as u64 - changes.kept
    }

    fn nothing() -> Transcript {
        TranscriptReplica::new().snapshot(0)
    }

    fn rows(transcript: &Transcript) -> Vec<ReplicaEntry<'_>> {
        transcript.iter().map(ReplicaEntry::from).collect()
    }

    proptest! {
        #[test]
        fn a_mirror_that_followed_step_by_step_shows_the_same(
            generated in transcripts(),
            steps in proptest::collection::vec(1_usize..5, 1..20),
        ) {
            let (mut log, mut mirror) = (TranscriptLog::new(3), TranscriptReplica::new());
            let mut seen = log.snapshot();
            let mut entries = generated.entries.into_iter().peekable();
            let mut steps = steps.into_iter().cycle();
            while entries.peek().is_some() {
                for entry in entries.by_ref().take(steps.next().unwrap()) {
                    log.append(entry);
                }
                let now = log.snapshot();
                follow(&mut mirror, &seen, &now);
                let shown = mirror.snapshot(now.epoch());
                prop_assert_eq!(rows(&shown), rows(&now));
                prop_assert_eq!(shown.epoch(), 3);
                seen = now;
            }
        }

        #[test]
        fn another_transcript_replaces_what_differs(one in transcripts(), two in transcripts()) {
            let (one, two) = (one.transcript(), two.transcript());
            let mut mirror = TranscriptReplica::new();
            follow(&mut mirror, &nothing(), &one);
            follow(&mut mirror, &one, &two);
            let shown = mirror.snapshot(1);
            prop_assert_eq!(rows(&shown), rows(&two));
        }
    }

    #[test]
    fn only_what_is_new_is_sent_of_a_long_transcript() {
        let mut builder = TranscriptBuilder::new();
        let long = CHUNK_ENTRIES as u64 * 2 + 100;
        while builder.len() < long {
            builder.user("and then?").assistant("this");
        }
        let before = builder.transcript();
        let mut mirror = TranscriptReplica::new();
        assert_eq!(follow(&mut mirror, &nothing(), &before), long);
        builder.calls(&[("c", "ls", "{}")]);
        let called = builder.transcript();
        assert_eq!(follow(&mut mirror, &before, &called), 1);
        builder.result("c", "ls", "a.rs");
        let answered = builder.transcript();
        assert_eq!(diff(&called, &answered).patches.len(), 1, "the call is answered now");
        assert_eq!(follow(&mut mirror, &called, &answered), 1);
        assert_eq!(rows(&mirror.snapshot(0)), rows(&answered));
    }

    #[test]
    fn a_snapshot_of_a_mirror_never_changes() {
        let mut builder = TranscriptBuilder::new();
        builder.user("one").assistant("two");
        let (mut mirror, original) = (TranscriptReplica::new(), builder.transcript());
        follow(&mut mirror, &nothing(), &original);
        let held = mirror.snapshot(0);
        mirror.keep(1);
        mirror.patch(EntryPatch { seq: 0, frame: 0, flags: 9 });
        assert_eq!(rows(&held), rows(&original));
        assert_eq!(mirror.snapshot(0).len(), 1);
    }
}
