//! A session opened from its checkpoint: the records that it names, and all that follows them.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;

use ctxhost_files::MOST_LINE_BYTES;

use super::{Checkpoint, Held, Marks, Older, Place, SavedSlot, SavedSource, Sealed, fingerprint};
use crate::contents::{Content, Contents};
use crate::header::{Header, SESSION_VERSION};
use crate::items::{self, Item};
use crate::live::{Change, Live, Slot, Source, Standing};
use crate::record::{Record, RecordKind};
use crate::{adoption, parse, undo};

/// The contents that the next turn needs of a session file of this length, by its checkpoint; `None` where
/// only all of the file tells.
pub(crate) fn open(path: &Path, length_bytes: u64) -> Option<(Contents, Sealed)> {
    let checkpoint = Checkpoint::read(path)?;
    let marks = Marks::read(path, checkpoint.marks)?;
    let source = Lines { file: ctxhost_files::open(path).ok()? };
    let mut contents = held(&source, &checkpoint, marks)?;
    let tail_bytes = length_bytes.checked_sub(checkpoint.end_bytes)?;
    // A line that is too long is left out by those who read all of the file.
    let tail = (tail_bytes <= MOST_LINE_BYTES as u64)
        .then(|| source.bytes(checkpoint.end_bytes, tail_bytes))??;
    parse::more(&mut contents, &tail);
    let sealed = Sealed { seal: checkpoint.marks, records: checkpoint.records };
    is_all_that_is_needed(&contents).then_some((contents, sealed))
}

/// The session file.
struct Lines {
    file: File,
}

impl Lines {
    fn bytes(&self, at_bytes: u64, length_bytes: u64) -> Option<Vec<u8>> {
        if at_bytes.checked_add(length_bytes)? > self.file.metadata().ok()?.len() {
            return None;
        }
        let mut bytes = vec![0; usize::try_from(length_bytes).ok()?];
        let read: io::Result<()> = self.file.read_exact_at(&mut bytes, at_bytes);
        read.ok().map(|()| bytes)
    }

    /// The line at a place, where it is still the one that was there.
    fn line(&self, place: Place) -> Option<String> {
        let bytes = self.bytes(place.at_bytes, place.length_bytes)?;
        let is_it = fingerprint(&bytes) == place.fingerprint;
        is_it.then(|| String::from_utf8(bytes).ok())?
    }
}

/// The part before the tail.
fn held(source: &Lines, checkpoint: &Checkpoint, marks: Marks) -> Option<Contents> {
    let header = Header::parse(&source.line(checkpoint.header)?).ok()?;
    if header.version() != SESSION_VERSION {
        return None;
    }
    let mut contents = Contents::new(header);
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
    let is_compaction = *contents.at(compaction)?.kind() == RecordKind::Compaction;
    let ends_a_line = source.bytes(checkpoint.end_bytes.checked_sub(1)?, 1)? == b"\n";
    if checkpoint.records < checkpoint.held.len()
        || !is_compaction
        || !ends_a_line
        || before != Some(compaction)
    {
        return None;
    }
    contents.standing =
        Some(Standing { at: compaction, slots: slots(&contents, &checkpoint.live)? });
    contents.older = Some(Older {
        end_bytes: checkpoint.end_bytes,
        marks: Arc::new(marks),
        records: checkpoint.records,
        header: checkpoint.header,
        places: checkpoint.held.iter().map(|held| held.place).collect(),
        cuts: numbers(checkpoint, |held| held.is_cut).collect(),
        hiding: numbers(checkpoint, |held| held.hides).collect(),
    });
    Some(contents)
}

fn numbers(checkpoint: &Checkpoint, which: fn(&Held) -> bool) -> impl Iterator<Item = usize> {
    let held = checkpoint.held.iter().enumerate();
    held.filter(move |(_, held)| which(held)).map(|(number, _)| number)
}

/// The live entries; what they say is in the records.
fn slots(contents: &Contents, saved: &[SavedSlot]) -> Option<Vec<Slot>> {
    let is_compaction = |at: &&Record| *at.kind() == RecordKind::Compaction;
    let items_of = |at: usize| contents.at(at).filter(is_compaction).and_then(items::of);
    let items: Vec<Option<Vec<Item>>> = (0..contents.records.len()).map(items_of).collect();
    let items = |at: usize| items.get(at)?.as_deref();
    let slot = |saved: &SavedSlot| {
        let source = match saved.source {
            SavedSource::Record(at) => contents.at(at).map(|_| Source::Record(at))?,
            SavedSource::Checkpoint(at) => contents.at(at).map(|_| Source::Checkpoint(at))?,
            SavedSource::Inserted(at, item) => Source::inserted(at, items(at)?, item)?,
        };
        let changes = saved.changes.iter().map(|(at, item)| Change::of(*at, items(*at)?, *item));
        Some(Slot { source, changes: changes.collect::<Option<_>>()? })
    };
    saved.iter().map(slot).collect()
}

/// Whether what is read says all there is to say of the next turn.
///
/// A damaged line, a record that follows one that was not read, another branch, a compaction of Pi: each
/// is told right by those alone who read all of the file.
fn is_all_that_is_needed(contents: &Contents) -> bool {
    let (Some(older), Some(standing)) = (&contents.older, &contents.standing) else { return false };
    let tail = contents.records.iter().skip(standing.at + 1);
    let is_plain = |line: &Content| !matches!(line, Content::Kept(_));
    contents.lines.iter().all(|line| is_plain(&line.content))
        && tail.clone().all(|record| follows_a_known_one(contents, record))
        && !tail.clone().any(|record| older.marks.has_record(record.id()) || undo::tells(record))
        && tail.clone().all(|record| is_told(contents, record))
        && contents.tree.path_backwards().any(|at| at == standing.at)
        && !Live::of(contents, contents.first_task).is_by_rule()
}

fn is_told(contents: &Contents, record: &Record) -> bool {
    adoption::leans_on(contents, record, contents.parent_of(record)).is_some()
}

/// Whether a record says which one it follows, and that one stands above it.
fn follows_a_known_one(contents: &Contents, record: &Record) -> bool {
    let said = record.parent_id().and_then(|id| contents.tree.position(id));
    said.is_some() && said == contents.parent_of(record)
}
