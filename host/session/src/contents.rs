//! All that a session file holds, in memory: header, records and the lines that are neither.

use super::checkpoint::SkippedRecords;
use super::error::SessionLineProblem;
use super::header::SessionHeader;
use super::lines::LineEnding;
use super::live_transcript::{LiveBase, LiveTranscript};
use super::record::{Record, RecordKind};
use super::tree::RecordTree;
use super::{entry, orphan_results, projection_items};

/// The contents of a session file.
#[derive(Clone, Debug)]
pub(super) struct SessionContents {
    pub(super) header: SessionHeader,
    pub(super) records: Vec<Record>,
    pub(super) tree: RecordTree,
    pub(super) problems: Vec<SessionLineProblem>,
    pub(super) lines: Vec<FileLine>,
    /// The version on disk where it is an older one.
    pub(super) migrated_from: Option<u32>,
    /// The first message of the person on the current branch.
    pub(super) first_task: Option<usize>,
    /// What was live behind a compaction, where that is known already.
    pub(super) live_base: Option<LiveBase>,
    /// What is left out, where these are not all contents of the file but what the next turn needs.
    pub(super) skipped: Option<SkippedRecords>,
}

/// One line of the file.
#[derive(Clone, Debug)]
pub(super) struct FileLine {
    pub(super) content: LineContent,
    pub(super) ending: LineEnding,
}

/// What stands on a line.
#[derive(Clone, Debug)]
pub(super) enum LineContent {
    /// The header.
    Header,
    /// The record at this position.
    Record(usize),
    /// A blank or a bad line, which stays as it is.
    Raw(Vec<u8>),
    /// A line that is too long to be held.
    TooLong { length_bytes: u64 },
    /// The beginning of a last line whose write was cut short.
    Torn(Vec<u8>),
}

impl SessionContents {
    /// A session with nothing but a header.
    pub(super) fn new(header: SessionHeader) -> SessionContents {
        let lines = vec![FileLine { content: LineContent::Header, ending: LineEnding::Lf }];
        SessionContents {
            header,
            records: Vec::new(),
            tree: RecordTree::default(),
            problems: Vec::new(),
            lines,
            migrated_from: None,
            first_task: None,
            live_base: None,
            skipped: None,
        }
    }

    /// How many records the file has, those that are left out included.
    pub(super) fn record_count(&self) -> usize {
        self.records.len() + self.skipped_count()
    }

    /// How many of them are left out.
    pub(super) fn skipped_count(&self) -> usize {
        self.skipped.as_ref().map_or(0, SkippedRecords::count)
    }

    /// Whether an excerpt can tell a record right that is about to follow the newest one.
    pub(super) fn can_append(&self, record: &Record) -> bool {
        let is_projected = || {
            let items = projection_items::read_items(record);
            let live = LiveTranscript::from_branch(self, self.first_task);
            items.is_some_and(|items| live.project(self.records.len(), &items).is_some())
        };
        orphan_results::call_records(self, record, self.tree.leaf()).is_some()
            && (*record.kind() != RecordKind::Compaction || is_projected())
    }

    /// Whether an id is that of a record, be it one that is left out.
    pub(super) fn has_id(&self, id: &str) -> bool {
        self.tree.contains(id)
            || self.skipped.as_ref().is_some_and(|older| older.id_fingerprints.has_record(id))
    }

    /// Goes to a record, or before the first one.
    pub(super) fn set_leaf(&mut self, position: Option<usize>) {
        self.tree.set_leaf(position);
        self.find_first_task();
    }

    /// Finds the first task of the branch where the session stands.
    pub(super) fn find_first_task(&mut self) {
        self.first_task = self.first_task_on(&self.tree.path());
    }

    /// The first message of the person on a path.
    pub(super) fn first_task_on(&self, path: &[usize]) -> Option<usize> {
        let is_task = |at: &usize| self.record_at(*at).is_some_and(entry::is_user_message);
        path.iter().copied().find(is_task)
    }

    /// The records at these positions.
    pub(super) fn record_at(&self, position: usize) -> Option<&Record> {
        self.records.get(position)
    }

    /// The record with this id.
    pub(super) fn record(&self, id: &str) -> Option<&Record> {
        self.record_at(self.tree.position(id)?)
    }

    /// The position of the record that a record follows.
    pub(super) fn parent_of(&self, record: &Record) -> Option<usize> {
        self.tree.path_backwards_from(self.tree.position(record.id())?).nth(1)
    }

    /// The record where the session stands.
    pub(super) fn leaf(&self) -> Option<&Record> {
        self.record_at(self.tree.leaf()?)
    }

    /// Adds a record as the last line, behind the record where the session stands.
    pub(super) fn push(&mut self, record: Record) {
        if let Some(last) = self.lines.last_mut()
            && last.ending == LineEnding::Missing
        {
            last.ending = LineEnding::Lf;
        }
        let content = LineContent::Record(self.records.len());
        self.lines.push(FileLine { content, ending: LineEnding::Lf });
        self.tree.push(&record, self.tree.leaf());
        if self.first_task.is_none() && entry::is_user_message(&record) {
            self.first_task = self.tree.leaf();
        }
        self.records.push(record);
    }

    /// The line that a record stands on, from 1.
    pub(super) fn line_of(&self, position: usize) -> Option<usize> {
        let is_it =
            |line: &FileLine| matches!(line.content, LineContent::Record(at) if at == position);
        self.lines.iter().position(is_it).map(|at| at + 1)
    }

    /// Works out what is live behind the newest compaction of the branch; its position.
    pub(super) fn compute_live_base(&mut self) -> Option<usize> {
        let is_compaction =
            |at: &usize| self.record_at(*at).is_some_and(|it| *it.kind() == RecordKind::Compaction);
        let mut path = self.tree.path();
        let step = path.iter().rposition(is_compaction)?;
        path.truncate(step + 1);
        let at = path.last().copied()?;
        self.live_base = Some(LiveTranscript::base_at(self, at, &path));
        Some(at)
    }

    /// How long the file is.
    pub(super) fn length_bytes(&self) -> u64 {
        let before = self.skipped.as_ref().map_or(0, |older| older.end_bytes);
        before + self.lines.iter().map(|line| self.line_bytes(line)).sum::<u64>()
    }

    /// How long a line is, its ending included.
    pub(super) fn line_bytes(&self, line: &FileLine) -> u64 {
        let content_bytes = match &line.content {
            LineContent::Header => self.header.line().len(),
            LineContent::Record(at) => self.record_at(*at).map_or(0, |record| record.line().len()),
            LineContent::Raw(kept) | LineContent::Torn(kept) => kept.len(),
            LineContent::TooLong { length_bytes } => {
                usize::try_from(*length_bytes).unwrap_or(usize::MAX)
            }
        };
        (content_bytes + line.ending.bytes().len()) as u64
    }

    /// Whether the last line lacks its line break.
    pub(super) fn lacks_final_newline(&self) -> bool {
        self.lines.last().is_some_and(|line| line.ending == LineEnding::Missing)
    }

    /// The bytes of a torn last line.
    pub(super) fn torn(&self) -> Option<&[u8]> {
        match &self.lines.last()?.content {
            LineContent::Torn(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// Forgets a torn last line, once its bytes are safe elsewhere.
    pub(super) fn drop_torn(&mut self) {
        if self.torn().is_some() {
            self.lines.pop();
        }
    }

    /// Puts right what another place must not take over: a torn last line, one without its line break,
    /// an older version.
    pub(super) fn normalize(&mut self) {
        self.drop_torn();
        if let Some(last) = self.lines.last_mut().filter(|line| line.ending == LineEnding::Missing)
        {
            last.ending = LineEnding::Lf;
        }
        self.migrated_from = None;
    }

    /// The whole file.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for line in &self.lines {
            match &line.content {
                LineContent::Header => bytes.extend_from_slice(self.header.line().as_bytes()),
                LineContent::Record(at) => {
                    let text = self.record_at(*at).map_or("", Record::line);
                    bytes.extend_from_slice(text.as_bytes());
                }
                LineContent::Raw(kept) | LineContent::Torn(kept) => bytes.extend_from_slice(kept),
                // Only the file has it: a copy of the session has a blank line there.
                LineContent::TooLong { .. } => {}
            }
            bytes.extend_from_slice(line.ending.bytes());
        }
        bytes
    }
}
