//! All that a session file holds, in memory: header, records and the lines that are neither.

use super::checkpoint::Older;
use super::error::LineProblem;
use super::header::Header;
use super::lines::Ending;
use super::live::{Live, Standing};
use super::record::{Record, RecordKind};
use super::tree::Tree;
use super::{adoption, entry, items};

/// The contents of a session file.
#[derive(Clone, Debug)]
pub(super) struct Contents {
    pub(super) header: Header,
    pub(super) records: Vec<Record>,
    pub(super) tree: Tree,
    pub(super) problems: Vec<LineProblem>,
    pub(super) lines: Vec<Line>,
    /// The version on disk where it is an older one.
    pub(super) migrated_from: Option<u32>,
    /// The first message of the person on the current branch.
    pub(super) first_task: Option<usize>,
    /// What was live behind a compaction, where that is known already.
    pub(super) standing: Option<Standing>,
    /// What is left out, where these are not all contents of the file but what the next turn needs.
    pub(super) older: Option<Older>,
}

/// One line of the file.
#[derive(Clone, Debug)]
pub(super) struct Line {
    pub(super) content: Content,
    pub(super) ending: Ending,
}

/// What stands on a line.
#[derive(Clone, Debug)]
pub(super) enum Content {
    /// The header.
    Header,
    /// The record at this position.
    Record(usize),
    /// A blank or a bad line, which stays as it is.
    Kept(Vec<u8>),
    /// A line that is too long to be held.
    TooLong { length_bytes: u64 },
    /// The beginning of a last line whose write was cut short.
    Torn(Vec<u8>),
}

impl Contents {
    /// A session with nothing but a header.
    pub(super) fn new(header: Header) -> Contents {
        let lines = vec![Line { content: Content::Header, ending: Ending::Lf }];
        Contents {
            header,
            records: Vec::new(),
            tree: Tree::default(),
            problems: Vec::new(),
            lines,
            migrated_from: None,
            first_task: None,
            standing: None,
            older: None,
        }
    }

    /// How many records the file has, those that are left out included.
    pub(super) fn record_count(&self) -> usize {
        self.records.len() + self.left_out_records()
    }

    /// How many of them are left out.
    pub(super) fn left_out_records(&self) -> usize {
        self.older.as_ref().map_or(0, Older::left_out_records)
    }

    /// Whether an excerpt can tell a record right that is about to follow the newest one.
    pub(super) fn can_take(&self, record: &Record) -> bool {
        let is_projected = || {
            let items = items::of(record);
            let live = Live::of(self, self.first_task);
            items.is_some_and(|items| live.project(self.records.len(), &items).is_some())
        };
        adoption::leans_on(self, record, self.tree.leaf()).is_some()
            && (*record.kind() != RecordKind::Compaction || is_projected())
    }

    /// Whether an id is that of a record, be it one that is left out.
    pub(super) fn is_taken(&self, id: &str) -> bool {
        self.tree.contains(id)
            || self.older.as_ref().is_some_and(|older| older.marks.has_record(id))
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
        let is_task = |at: &usize| self.at(*at).is_some_and(entry::is_user_message);
        path.iter().copied().find(is_task)
    }

    /// The records at these positions.
    pub(super) fn at(&self, position: usize) -> Option<&Record> {
        self.records.get(position)
    }

    /// The record with this id.
    pub(super) fn record(&self, id: &str) -> Option<&Record> {
        self.at(self.tree.position(id)?)
    }

    /// The position of the record that a record follows.
    pub(super) fn parent_of(&self, record: &Record) -> Option<usize> {
        self.tree.path_backwards_from(self.tree.position(record.id())?).nth(1)
    }

    /// The record where the session stands.
    pub(super) fn leaf(&self) -> Option<&Record> {
        self.at(self.tree.leaf()?)
    }

    /// Adds a record as the last line, behind the record where the session stands.
    pub(super) fn push(&mut self, record: Record) {
        if let Some(last) = self.lines.last_mut()
            && last.ending == Ending::Missing
        {
            last.ending = Ending::Lf;
        }
        let content = Content::Record(self.records.len());
        self.lines.push(Line { content, ending: Ending::Lf });
        self.tree.push(&record, self.tree.leaf());
        if self.first_task.is_none() && entry::is_user_message(&record) {
            self.first_task = self.tree.leaf();
        }
        self.records.push(record);
    }

    /// The line that a record stands on, from 1.
    pub(super) fn line_of(&self, position: usize) -> Option<usize> {
        let is_it = |line: &Line| matches!(line.content, Content::Record(at) if at == position);
        self.lines.iter().position(is_it).map(|at| at + 1)
    }

    /// Works out what is live behind the newest compaction of the branch; its position.
    pub(super) fn stand(&mut self) -> Option<usize> {
        let is_compaction =
            |at: &usize| self.at(*at).is_some_and(|it| *it.kind() == RecordKind::Compaction);
        let mut path = self.tree.path();
        let step = path.iter().rposition(is_compaction)?;
        path.truncate(step + 1);
        let at = path.last().copied()?;
        self.standing = Some(Live::standing(self, at, &path));
        Some(at)
    }

    /// How long the file is.
    pub(super) fn length_bytes(&self) -> u64 {
        let before = self.older.as_ref().map_or(0, |older| older.end_bytes);
        before + self.lines.iter().map(|line| self.line_bytes(line)).sum::<u64>()
    }

    /// How long a line is, its ending included.
    pub(super) fn line_bytes(&self, line: &Line) -> u64 {
        let content_bytes = match &line.content {
            Content::Header => self.header.line().len(),
            Content::Record(at) => self.at(*at).map_or(0, |record| record.line().len()),
            Content::Kept(kept) | Content::Torn(kept) => kept.len(),
            Content::TooLong { length_bytes } => {
                usize::try_from(*length_bytes).unwrap_or(usize::MAX)
            }
        };
        (content_bytes + line.ending.bytes().len()) as u64
    }

    /// Whether the last line lacks its line break.
    pub(super) fn is_unfinished(&self) -> bool {
        self.lines.last().is_some_and(|line| line.ending == Ending::Missing)
    }

    /// The bytes of a torn last line.
    pub(super) fn torn(&self) -> Option<&[u8]> {
        match &self.lines.last()?.content {
            Content::Torn(bytes) => Some(bytes),
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
    pub(super) fn settle(&mut self) {
        self.drop_torn();
        if let Some(last) = self.lines.last_mut().filter(|line| line.ending == Ending::Missing) {
            last.ending = Ending::Lf;
        }
        self.migrated_from = None;
    }

    /// The whole file.
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for line in &self.lines {
            match &line.content {
                Content::Header => bytes.extend_from_slice(self.header.line().as_bytes()),
                Content::Record(at) => {
                    let text = self.at(*at).map_or("", Record::line);
                    bytes.extend_from_slice(text.as_bytes());
                }
                Content::Kept(kept) | Content::Torn(kept) => bytes.extend_from_slice(kept),
                // Only the file has it: a copy of the session has a blank line there.
                Content::TooLong { .. } => {}
            }
            bytes.extend_from_slice(line.ending.bytes());
        }
        bytes
    }
}
