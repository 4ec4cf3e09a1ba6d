//! A session opened from its checkpoint: the records that it names, and all that follows them.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;

use ctxhost_files::MAX_LINE_BYTES;

use super::{
    CheckpointFile, CheckpointRecord, FingerprintCoverage, IdFingerprints, LinePosition, SavedSlot,
    SavedSource, SkippedRecords, fingerprint,
};
use crate::contents::{LineContent, SessionContents};
use crate::header::{SESSION_VERSION, SessionHeader};
use crate::live_transcript::{LiveBase, LiveSlot, LiveTranscript, SlotChange, SlotSource};
use crate::projection_items::{self, StoredItem};
use crate::record::{Record, RecordKind};
use crate::{orphan_results, parse, undo};

/// The contents that the next turn needs of a session file of this length, by its checkpoint; `None` where
/// only all of the file tells.
pub(crate) fn load(
    path: &Path,
    length_bytes: u64,
) -> Option<(SessionContents, FingerprintCoverage)> {
    let checkpoint = CheckpointFile::read(path)?;
    let marks = IdFingerprints::read(path, checkpoint.marks)?;
    let source = CheckpointSource { file: ctxhost_files::open(path).ok()? };
    let mut contents = held(&source, &checkpoint, marks)?;
    let tail_bytes = length_bytes.checked_sub(checkpoint.end_bytes)?;
    // A line that is too long is left out by those who read all of the file.
    let tail = (tail_bytes <= MAX_LINE_BYTES as u64)
        .then(|| source.bytes(checkpoint.end_bytes, tail_bytes))??;
    parse::append_bytes(&mut contents, &tail);
    let sealed = FingerprintCoverage { seal: checkpoint.marks, records: checkpoint.records };
    is_all_that_is_needed(&contents).then_some((contents, sealed))
}

/// The session file.
struct CheckpointSource {
    file: File,
}

impl CheckpointSource {
    fn bytes(&self, at_bytes: u64, length_bytes: u64) -> Option<Vec<u8>> {
        if at_bytes.checked_add(length_bytes)? > self.file.metadata().ok()?.len() {
            return None;
        }
        let mut bytes = vec![0; usize::try_from(length_bytes).ok()?];
        let read: io::Result<()> = self.file.read_exact_at(&mut bytes, at_bytes);
        read.ok().map(|()| bytes)
    }

    /// The line at a place, where it is still the one that was there.
    fn line(&self, place: LinePosition) -> Option<String> {
        let bytes = self.bytes(place.at_bytes, place.length_bytes)?;
        let is_it = fingerprint(&bytes) == place.fingerprint;
        is_it.then(|| String::from_utf8(bytes).ok())?
    }
}

/// The part before the tail.
fn held(
    source: &CheckpointSource,
    checkpoint: &CheckpointFile,
    marks: IdFingerprints,
) -> Option<SessionContents> {
    let header = SessionHeader::parse(&source.line(checkpoint.header)?).ok()?;
    if header.version() != SESSION_VERSION {
        return None;
    }
    let mut contents = SessionContents::new(header);
    contents.lines.clear();
    let mut before = None;
    for held in &checkpoint.held {
        let record = Record::parse(&source.line(held.place)?).ok()?.record;
        contents.tree.push(&record, before.filter(|_| held.on_branch));
        if held.on_branch {
            before = contents.tree.leaf();
        }
        contents.records.push(record);
    }
    let compaction = contents.records.len().checked_sub(1)?;
    let is_compaction = *contents.record_at(compaction)?.kind() == RecordKind::Compaction;
    let ends_a_line = source.bytes(checkpoint.end_bytes.checked_sub(1)?, 1)? == b"\n";
    if checkpoint.records < checkpoint.held.len()
        || !is_compaction
        || !ends_a_line
        || before != Some(compaction)
    {
        return None;
    }
    contents.live_base =
        Some(LiveBase { at: compaction, slots: slots(&contents, &checkpoint.live)? });
    contents.skipped = Some(SkippedRecords {
        end_bytes: checkpoint.end_bytes,
        id_fingerprints: Arc::new(marks),
        records: checkpoint.records,
        header: checkpoint.header,
        places: checkpoint.held.iter().map(|held| held.place).collect(),
        cuts: numbers(checkpoint, |held| held.is_cut).collect(),
        hiding: numbers(checkpoint, |held| held.hides).collect(),
    });
    Some(contents)
}

fn numbers(
    checkpoint: &CheckpointFile,
    which: fn(&CheckpointRecord) -> bool,
) -> impl Iterator<Item = usize> {
    let held = checkpoint.held.iter().enumerate();
    held.filter(move |(_, held)| which(held)).map(|(number, _)| number)
}

/// The live entries; what they say is in the records.
fn slots(contents: &SessionContents, saved: &[SavedSlot]) -> Option<Vec<LiveSlot>> {
    let is_compaction = |at: &&Record| *at.kind() == RecordKind::Compaction;
    let items_of = |at: usize| {
        contents.record_at(at).filter(is_compaction).and_then(projection_items::read_items)
    };
    let items: Vec<Option<Vec<StoredItem>>> = (0..contents.records.len()).map(items_of).collect();
    let items = |at: usize| items.get(at)?.as_deref();
    let slot = |saved: &SavedSlot| {
        let source = match saved.source {
            SavedSource::Record(at) => contents.record_at(at).map(|_| SlotSource::Record(at))?,
            SavedSource::Checkpoint(at) => {
                contents.record_at(at).map(|_| SlotSource::Checkpoint(at))?
            }
            SavedSource::Inserted(at, item) => SlotSource::from_insert(at, items(at)?, item)?,
        };
        let changes =
            saved.changes.iter().map(|(at, item)| SlotChange::from_item(*at, items(*at)?, *item));
        Some(LiveSlot { source, changes: changes.collect::<Option<_>>()? })
    };
    saved.iter().map(slot).collect()
}

/// Whether what is read says all there is to say of the next turn.
///
/// A damaged line, a record that follows one that was not read, another branch, a compaction of Pi: each
/// is told right by those alone who read all of the file.
fn is_all_that_is_needed(contents: &SessionContents) -> bool {
    let (Some(older), Some(standing)) = (&contents.skipped, &contents.live_base) else {
        return false;
    };
    let tail = contents.records.iter().skip(standing.at + 1);
    let is_plain = |line: &LineContent| !matches!(line, LineContent::Raw(_));
    contents.lines.iter().all(|line| is_plain(&line.content))
        && tail.clone().all(|record| follows_a_known_one(contents, record))
        && !tail
            .clone()
            .any(|record| older.id_fingerprints.has_record(record.id()) || undo::is_undo(record))
        && tail.clone().all(|record| is_told(contents, record))
        && contents.tree.path_backwards().any(|at| at == standing.at)
        && !LiveTranscript::from_branch(contents, contents.first_task).used_pi_rule()
}

fn is_told(contents: &SessionContents, record: &Record) -> bool {
    orphan_results::call_records(contents, record, contents.parent_of(record)).is_some()
}

/// Whether a record says which one it follows, and that one stands above it.
fn follows_a_known_one(contents: &SessionContents, record: &Record) -> bool {
    let said = record.parent_id().and_then(|id| contents.tree.position(id));
    said.is_some() && said == contents.parent_of(record)
}
