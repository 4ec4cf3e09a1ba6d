//! Partial load: the records that a checkpoint names, and every line after them.

use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use ctxhost_files::MAX_LINE_BYTES;

use super::file::{CheckpointFile, CheckpointRecord, SavedSlot, SavedSource};
use super::id_fingerprints::{FingerprintCoverage, IdFingerprints, fingerprint};
use super::skipped::{LinePosition, SkippedRecords};
use crate::contents::{LineContent, SessionContents};
use crate::header::{SESSION_VERSION, SessionHeader};
use crate::live_slots::{LiveBase, LiveSlot, SlotChange, SlotSource};
use crate::live_transcript::LiveTranscript;
use crate::projection_items::{self, StoredItem};
use crate::record::{Record, RecordKind};
use crate::{orphan_results, parse, undo};

/// Loads what the next turn needs of a session file of this length; `None` if the whole file must be read.
pub(crate) fn load(
    path: &Path,
    length_bytes: u64,
) -> Option<(SessionContents, FingerprintCoverage)> {
    let checkpoint = CheckpointFile::read(path)?;
    let id_fingerprints = IdFingerprints::read(path, checkpoint.marks)?;
    let source = CheckpointSource { file: ctxhost_files::open(path).ok()? };
    let mut contents = load_held(&source, &checkpoint, id_fingerprints)?;
    let tail_bytes = length_bytes.checked_sub(checkpoint.end_bytes)?;
    // The tail is read at once, so it must not contain a line above the limit; reading the whole
    // file skips such lines.
    let tail = (tail_bytes <= MAX_LINE_BYTES as u64)
        .then(|| source.read(checkpoint.end_bytes, tail_bytes))??;
    parse::append_bytes(&mut contents, &tail);
    let coverage = FingerprintCoverage { sum: checkpoint.marks, records: checkpoint.records };
    is_sufficient(&contents).then_some((contents, coverage))
}

/// The session file that a checkpoint describes.
struct CheckpointSource {
    file: File,
}

impl CheckpointSource {
    fn read(&self, at_bytes: u64, length_bytes: u64) -> Option<Vec<u8>> {
        // Checked before the allocation: a damaged checkpoint could name any length.
        if at_bytes.checked_add(length_bytes)? > self.file.metadata().ok()?.len() {
            return None;
        }
        let mut bytes = vec![0; usize::try_from(length_bytes).ok()?];
        ctxhost_platform::files::read_exact_at(&self.file, &mut bytes, at_bytes)
            .ok()
            .map(|()| bytes)
    }

    /// The line at a position; `None` if its fingerprint differs.
    fn line(&self, position: LinePosition) -> Option<String> {
        let bytes = self.read(position.at_bytes, position.length_bytes)?;
        let is_same = fingerprint(&bytes) == position.fingerprint;
        is_same.then(|| String::from_utf8(bytes).ok())?
    }
}

/// Loads the header and the held records.
fn load_held(
    source: &CheckpointSource,
    checkpoint: &CheckpointFile,
    id_fingerprints: IdFingerprints,
) -> Option<SessionContents> {
    let header = SessionHeader::parse(&source.line(checkpoint.header)?).ok()?;
    // Migrating an older file needs all its lines.
    if header.version() != SESSION_VERSION {
        return None;
    }
    let mut contents = SessionContents::new(header);
    // Lines start after the checkpoint; the header is before it.
    contents.lines.clear();
    let mut parent = None;
    for held in &checkpoint.held {
        let record = Record::parse(&source.line(held.place)?).ok()?.record;
        // Records of other branches are held for the state of the host only, so they need no parent.
        contents.tree.push(&record, parent.filter(|_| held.on_branch));
        if held.on_branch {
            parent = contents.tree.leaf();
        }
        contents.records.push(record);
    }
    let compaction = contents.records.len().checked_sub(1)?;
    let is_compaction = *contents.record_at(compaction)?.kind() == RecordKind::Compaction;
    // The fingerprint of the compaction does not cover its line break.
    let ends_a_line = source.read(checkpoint.end_bytes.checked_sub(1)?, 1)? == b"\n";
    if checkpoint.records < checkpoint.held.len()
        || !is_compaction
        || !ends_a_line
        || parent != Some(compaction)
    {
        return None;
    }
    contents.live_base =
        Some(LiveBase { at: compaction, slots: live_slots(&contents, &checkpoint.live)? });
    contents.skipped = Some(SkippedRecords {
        end_bytes: checkpoint.end_bytes,
        id_fingerprints: Arc::new(id_fingerprints),
        records: checkpoint.records,
        header: checkpoint.header,
        positions: checkpoint.held.iter().map(|held| held.place).collect(),
        gaps: held_numbers(checkpoint, |held| held.is_cut).collect(),
        hidden_entries: held_numbers(checkpoint, |held| held.hides).collect(),
    });
    Some(contents)
}

fn held_numbers(
    checkpoint: &CheckpointFile,
    is_wanted: fn(&CheckpointRecord) -> bool,
) -> impl Iterator<Item = usize> {
    let held = checkpoint.held.iter().enumerate();
    held.filter(move |(_, held)| is_wanted(held)).map(|(number, _)| number)
}

/// The live slots, with their content taken from the compaction records.
fn live_slots(contents: &SessionContents, saved: &[SavedSlot]) -> Option<Vec<LiveSlot>> {
    let is_compaction = |record: &&Record| *record.kind() == RecordKind::Compaction;
    let items_of = |at: usize| {
        let compaction = contents.record_at(at).filter(is_compaction)?;
        Some(projection_items::read_projection(compaction)?.items)
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

/// Whether the loaded records suffice for the next turn.
fn is_sufficient(contents: &SessionContents) -> bool {
    let (Some(skipped), Some(base)) = (&contents.skipped, &contents.live_base) else {
        return false;
    };
    let tail = contents.records.iter().skip(base.at + 1);
    let has_raw_line =
        contents.lines.iter().any(|line| matches!(line.content, LineContent::Raw(_)));
    // A damaged line may be the parent of later records. Blank lines count too, they are rare.
    !has_raw_line
        // Otherwise it was attached to the preceding record, which may be wrong.
        && tail.clone().all(|record| has_loaded_parent(contents, record))
        // A duplicate id makes the record invalid, and an undo copies records that are not loaded.
        && !tail
            .clone()
            .any(|record| skipped.id_fingerprints.has_record(record.id()) || undo::is_undo(record))
        && tail.clone().all(|record| orphan_results::is_resolvable(contents, record))
        // It was made from records before the base.
        && !tail.clone().any(ignores_compactions)
        // On another branch, other records may be live.
        && contents.tree.path_backwards().any(|at| at == base.at)
        // Pi's rule takes records from before the compaction.
        && !LiveTranscript::from_branch(contents, contents.first_task, &[]).used_pi_rule()
}

/// Whether a record is a compaction that was made without earlier ones.
fn ignores_compactions(record: &Record) -> bool {
    *record.kind() == RecordKind::Compaction
        && projection_items::read_projection(record)
            .is_some_and(|projection| !projection.ignored_compactions.is_empty())
}

/// Whether the parent that a record names is loaded and is the one it was attached to.
fn has_loaded_parent(contents: &SessionContents, record: &Record) -> bool {
    let named = record.parent_id().and_then(|id| contents.tree.position(id));
    named.is_some() && named == contents.parent_of(record)
}
