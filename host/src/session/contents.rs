//! All that a session file holds, in memory: header, records and the lines that are neither.

use super::error::LineProblem;
use super::header::Header;
use super::lines::Ending;
use super::record::Record;
use super::tree::Tree;

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
        }
    }

    /// The records at these positions.
    pub(super) fn at(&self, position: usize) -> Option<&Record> {
        self.records.get(position)
    }

    /// The record with this id.
    pub(super) fn record(&self, id: &str) -> Option<&Record> {
        self.at(self.tree.position(id)?)
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
        self.records.push(record);
    }

    /// The line that a record stands on, from 1.
    pub(super) fn line_of(&self, position: usize) -> Option<usize> {
        let is_it = |line: &Line| matches!(line.content, Content::Record(at) if at == position);
        self.lines.iter().position(is_it).map(|at| at + 1)
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
            }
            bytes.extend_from_slice(line.ending.bytes());
        }
        bytes
    }
}
