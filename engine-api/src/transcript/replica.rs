//! A transcript on the other side of a wire: what is new since it was last sent, and the copy that
//! takes that in.
//!
//! The one side holds the snapshot it sent last and asks [`diff`]. Snapshots of one log share
//! their entries, so what did not change is found by looking at addresses, not at texts. The other
//! side keeps a [`TranscriptReplica`], which is told numbers as the log worked them out and works nothing out
//! itself: a copy can never disagree with its original.

use std::borrow::Cow;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::{Entry, Transcript};
use crate::abi::view::{
    AbiEntry, CHUNK_ENTRIES, EntryChunk, EntryHead, EntryTexts, TranscriptSnapshot,
};

/// What of an older snapshot stays in a newer one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TranscriptDiff {
    /// The first so many entries stay; everything behind them is sent anew.
    pub kept: u64,
    /// Entries among them whose frame or flags changed: a call that was answered since, for instance.
    pub patches: Vec<EntryPatch>,
}

/// What can change of an entry that is already there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EntryPatch {
    /// Its position.
    pub seq: u64,
    /// See [`Entry::frame`].
    pub frame: u64,
    /// See [`Entry::flags`].
    pub flags: u16,
}

/// One entry, as it is sent. Its texts are borrowed where the wire holds them unescaped.
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

/// What of `old` stays in `new`. Costs what changed, and a look at each thousand entries that did not.
///
/// Two snapshots need not be of one log, nor of one epoch: entries are the same where all that is
/// fixed about them is.
pub fn diff(old: &Transcript, new: &Transcript) -> TranscriptDiff {
    let mut difference = TranscriptDiff::default();
    let shared = old.len().min(new.len());
    for k in 0..shared.div_ceil(CHUNK_ENTRIES) {
        let (was, is) = (old.object.chunk(k), new.object.chunk(k));
        let (was, is) = (was.as_slice(), is.as_slice());
        let both = was.len().min(is.len());
        if std::ptr::eq(was.as_ptr(), is.as_ptr()) {
            difference.kept += both as u64;
            continue;
        }
        for (was, is) in was.iter().zip(is) {
            if !is_same(was, is) {
                return difference;
            }
            if (was.frame, was.flags) != (is.frame, is.flags) {
                let mark = EntryPatch { seq: difference.kept, frame: is.frame, flags: is.flags };
                difference.patches.push(mark);
            }
            difference.kept += 1;
        }
    }
    difference
}

fn is_same(was: &AbiEntry<'_>, is: &AbiEntry<'_>) -> bool {
    let numbers = |entry: &AbiEntry<'_>| {
        (entry.ts_ms, entry.tokens_before, entry.tokens, entry.role, entry.kind)
    };
    let texts = [(was.id, is.id), (was.parent, is.parent), (was.text, is.text), (was.raw, is.raw)];
    numbers(was) == numbers(is)
        && texts.iter().all(|(was, is)| {
            let is_shared = std::ptr::eq(was.as_ptr(), is.as_ptr()) && was.len() == is.len();
            is_shared || was.as_str() == is.as_str()
        })
}

/// A copy of a transcript that lies elsewhere.
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
        self.chunks.truncate(self.len.div_ceil(CHUNK_ENTRIES));
        let rest = self.len % CHUNK_ENTRIES;
        if let Some(last) = self.chunks.last_mut().filter(|chunk| rest > 0 && chunk.len() > rest) {
            Arc::make_mut(last).truncate(rest);
        }
    }

    /// Takes in what changed of an entry; one that is not there is nobody's.
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

    /// What it holds now, as the transcript of an epoch.
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

    /// Brings a mirror that shows `old` to show `new`, and answers how many entries that took.
    fn follow(mirror: &mut TranscriptReplica, old: &Transcript, new: &Transcript) -> u64 {
        let difference = diff(old, new);
        mirror.keep(difference.kept);
        difference.patches.iter().for_each(|mark| mirror.patch(*mark));
        for entry in new.range(difference.kept..new.len() as u64) {
            mirror.append(ReplicaEntry::from(entry));
        }
        new.len() as u64 - difference.kept
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
        let mut talk = TranscriptBuilder::new();
        let long = CHUNK_ENTRIES as u64 * 2 + 100;
        while talk.len() < long {
            talk.user("and then?").assistant("this");
        }
        let before = talk.transcript();
        let mut mirror = TranscriptReplica::new();
        assert_eq!(follow(&mut mirror, &nothing(), &before), long);
        talk.calls(&[("c", "ls", "{}")]);
        let called = talk.transcript();
        assert_eq!(follow(&mut mirror, &before, &called), 1);
        talk.result("c", "ls", "a.rs");
        let answered = talk.transcript();
        assert_eq!(diff(&called, &answered).patches.len(), 1, "the call is answered now");
        assert_eq!(follow(&mut mirror, &called, &answered), 1);
        assert_eq!(rows(&mirror.snapshot(0)), rows(&answered));
    }

    #[test]
    fn a_snapshot_of_a_mirror_never_changes() {
        let mut talk = TranscriptBuilder::new();
        talk.user("one").assistant("two");
        let (mut mirror, told) = (TranscriptReplica::new(), talk.transcript());
        follow(&mut mirror, &nothing(), &told);
        let held = mirror.snapshot(0);
        mirror.keep(1);
        mirror.patch(EntryPatch { seq: 0, frame: 0, flags: 9 });
        assert_eq!(rows(&held), rows(&told));
        assert_eq!(mirror.snapshot(0).len(), 1);
    }
}
