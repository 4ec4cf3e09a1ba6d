//! The contents of a session file in memory: header, records, and lines that are neither.

use super::checkpoint::skipped::SkippedRecords;
use super::entry;
use super::error::SessionLineProblem;
use super::header::SessionHeader;
use super::lines::LineEnding;
use super::live_slots::LiveBase;
use super::record::Record;
use super::tree::RecordTree;

/// The contents of a session file.
#[derive(Clone, Debug)]
pub(super) struct SessionContents {
    pub(super) header: SessionHeader,
    pub(super) records: Vec<Record>,
    pub(super) tree: RecordTree,
    pub(super) problems: Vec<SessionLineProblem>,
    pub(super) lines: Vec<FileLine>,
    /// The version on disk, if it is older than [`SESSION_VERSION`](super::SESSION_VERSION).
    pub(super) migrated_from: Option<u32>,
    /// The first user message of the current branch.
    pub(super) first_task: Option<usize>,
    /// The live transcript after a compaction, if it was computed.
    pub(super) live_base: Option<LiveBase>,
    /// The records that were not loaded, if the contents are partial.
    pub(super) skipped: Option<SkippedRecords>,
}

/// One line of the file.
#[derive(Clone, Debug)]
pub(super) struct FileLine {
    pub(super) content: LineContent,
    pub(super) ending: LineEnding,
}

/// The content of a line.
#[derive(Clone, Debug)]
pub(super) enum LineContent {
    Header,
    /// The record at this position.
    Record(usize),
    /// A blank or invalid line, preserved as it is.
    Raw(Vec<u8>),
    /// A line above the length limit, which is not in memory.
    TooLong {
        length_bytes: u64,
    },
    /// An incomplete last line.
    Torn(Vec<u8>),
}

impl SessionContents {
    /// A session without records.
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

    /// Number of records in the file, including skipped ones.
    pub(super) fn record_count(&self) -> usize {
        self.records.len() + self.skipped_count()
    }

    /// Number of records that were not loaded.
    pub(super) fn skipped_count(&self) -> usize {
        self.skipped.as_ref().map_or(0, SkippedRecords::count)
    }

    /// Whether a record has this id, loaded or not.
    pub(super) fn has_id(&self, id: &str) -> bool {
        self.tree.contains(id)
            || self.skipped.as_ref().is_some_and(|skipped| skipped.id_fingerprints.has_record(id))
    }

    /// Makes a record the leaf; `None` is before the first one.
    pub(super) fn set_leaf(&mut self, position: Option<usize>) {
        // Another branch may begin with another task.
        self.tree.set_leaf(position);
        self.find_first_task();
    }

    /// Finds the first task of the current branch.
    pub(super) fn find_first_task(&mut self) {
        self.first_task = self.first_task_on(&self.tree.path());
    }

    /// The first user message on a path.
    pub(super) fn first_task_on(&self, path: &[usize]) -> Option<usize> {
        let is_task = |at: &usize| self.record_at(*at).is_some_and(entry::is_user_message);
        path.iter().copied().find(is_task)
    }

    /// The record at a position.
    pub(super) fn record_at(&self, position: usize) -> Option<&Record> {
        self.records.get(position)
    }

    /// The record with this id.
    pub(super) fn record(&self, id: &str) -> Option<&Record> {
        self.record_at(self.tree.position(id)?)
    }

    /// The position of the parent of a record.
    pub(super) fn parent_of(&self, record: &Record) -> Option<usize> {
        self.tree.path_backwards_from(self.tree.position(record.id())?).nth(1)
    }

    /// The newest record of the current branch.
    pub(super) fn leaf(&self) -> Option<&Record> {
        self.record_at(self.tree.leaf()?)
    }

    /// Adds a record as the last line, with the leaf as its parent.
    pub(super) fn push(&mut self, record: Record) {
        // The journal terminated the last line before it wrote this one.
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

    /// The line of a record, from 1.
    pub(super) fn line_of(&self, position: usize) -> Option<usize> {
        let is_it =
            |line: &FileLine| matches!(line.content, LineContent::Record(at) if at == position);
        // `lines` also contains lines without a record, so a record is not above its position. Records of a
        // checkpoint have no line.
        let first = if self.skipped.is_none() { position } else { 0 };
        self.lines.iter().skip(first).position(is_it).map(|at| first + at + 1)
    }

    /// Length of the file.
    pub(super) fn length_bytes(&self) -> u64 {
        let before = self.skipped.as_ref().map_or(0, |skipped| skipped.end_bytes);
        before + self.lines.iter().map(|line| self.line_bytes(line)).sum::<u64>()
    }

    /// Length of a line including its ending.
    pub(super) fn line_bytes(&self, line: &FileLine) -> u64 {
        let content_bytes = match &line.content {
            LineContent::Header => self.header.line().len(),
            LineContent::Record(at) => self.record_at(*at).map_or(0, |record| record.line().len()),
            LineContent::Raw(bytes) | LineContent::Torn(bytes) => bytes.len(),
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

    /// The bytes of an incomplete last line.
    pub(super) fn torn(&self) -> Option<&[u8]> {
        match &self.lines.last()?.content {
            LineContent::Torn(bytes) => Some(bytes),
            _ => None,
        }
    }

    /// Removes an incomplete last line.
    pub(super) fn drop_torn(&mut self) {
        if self.torn().is_some() {
            self.lines.pop();
        }
    }

    /// Prepares the contents for another store: no incomplete last line, every line terminated, current
    /// version.
    pub(super) fn normalize(&mut self) {
        self.drop_torn();
        if let Some(last) = self.lines.last_mut().filter(|line| line.ending == LineEnding::Missing)
        {
            last.ending = LineEnding::Lf;
        }
        // The bytes of the contents are those of the current version already.
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
                LineContent::Raw(raw) | LineContent::Torn(raw) => bytes.extend_from_slice(raw),
                // Not in memory, so a copy of the session has a blank line here.
                LineContent::TooLong { .. } => {}
            }
            bytes.extend_from_slice(line.ending.bytes());
        }
        bytes
    }
}
