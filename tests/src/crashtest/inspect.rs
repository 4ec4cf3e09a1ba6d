//! Checks a session after a kill against what was acknowledged.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::path::Path;

use ctxhost_engine_api::{Flags, Plan, Transcript};
use serde_json::Value;

use super::promise::{Promise, hash};
use super::speech::{mark, number_of, text_of};
use ctxhost_invariants::{self as invariants, InvariantSettings};
use ctxhost_session::{Record, RecordKind, Session};

/// What is wrong with a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Violation {
    /// What was promised is not there.
    Lost(String),
    /// Something is there twice.
    Doubled(String),
    /// A part of something shows.
    HalfWritten(String),
    /// It cannot be opened.
    Closed(String),
    /// Bytes that were there have changed.
    Changed(String),
    /// The live transcript breaks the law.
    Lawless(String),
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Violation::Lost(what) => write!(f, "lost: {what}"),
            Violation::Doubled(what) => write!(f, "there twice: {what}"),
            Violation::HalfWritten(what) => write!(f, "half-written: {what}"),
            Violation::Closed(what) => write!(f, "does not open: {what}"),
            Violation::Changed(what) => write!(f, "changed: {what}"),
            Violation::Lawless(what) => write!(f, "against the law: {what}"),
        }
    }
}

/// What is known of a session, over all its children.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// The whole lines of its file, as last seen.
    bytes: Vec<u8>,
    records: HashMap<String, String>,
    received: HashSet<u64>,
    letters: HashSet<u64>,
}

impl Known {
    /// A child promised something.
    pub(super) fn promised(&mut self, promise: Promise) {
        match promise {
            Promise::Ready => {}
            Promise::Record { id, hash } => drop(self.records.insert(id, hash)),
            Promise::ReceivedRequest(number) => drop(self.received.insert(number)),
            Promise::Letter(number) => drop(self.letters.insert(number)),
        }
    }

    /// What was promised, in records, messages and letters.
    pub(super) fn promises(&self) -> usize {
        self.records.len() + self.received.len() + self.letters.len()
    }

    /// Holds the bytes of a session file and what is beside it against all that is known.
    pub(super) fn inspect(&mut self, path: &Path, bytes: &[u8]) -> Result<(), Violation> {
        let session = Session::read(path).map_err(|error| Violation::Closed(error.to_string()))?;
        self.check_bytes(bytes)?;
        check_problems(&session, bytes)?;
        self.check_records(&session)?;
        self.check_messages(&session, path)?;
        check_compaction(&session)?;
        check_law(&session.live(0).snapshot())?;
        self.bytes = whole_lines(bytes).to_vec();
        Ok(())
    }

    /// A session file only grows.
    fn check_bytes(&self, bytes: &[u8]) -> Result<(), Violation> {
        if bytes.starts_with(&self.bytes) {
            Ok(())
        } else {
            Err(Violation::Changed(format!("the first {} bytes", self.bytes.len())))
        }
    }

    fn check_records(&self, session: &Session) -> Result<(), Violation> {
        for (id, promised) in &self.records {
            let record =
                session.record(id).ok_or_else(|| Violation::Lost(format!("record {id}")))?;
            if hash(record.line()) != *promised {
                return Err(Violation::Changed(format!("record {id}")));
            }
        }
        Ok(())
    }

    /// All that was heard is on the branch once, and whole; a letter may wait instead.
    fn check_messages(&self, session: &Session, path: &Path) -> Result<(), Violation> {
        let mut said = HashSet::new();
        for text in session.branch().into_iter().filter_map(text) {
            let Some(number) = number_of(&text) else { continue };
            if text != text_of(number) {
                return Err(Violation::HalfWritten(format!("message {}", mark(number))));
            }
            if !said.insert(number) {
                return Err(Violation::Doubled(format!("message {}", mark(number))));
            }
        }
        if let Some(number) = self.received.difference(&said).next() {
            return Err(Violation::Lost(format!("message {}", mark(*number))));
        }
        let waiting = std::fs::read_to_string(inbox_file(path)).unwrap_or_default();
        let is_gone = |number: &&u64| !waiting.contains(&mark(**number));
        match self.letters.difference(&said).find(is_gone) {
            Some(number) => Err(Violation::Lost(format!("letter {}", mark(*number)))),
            None => Ok(()),
        }
    }
}

/// The bytes up to the last line break.
pub(super) fn whole_lines(bytes: &[u8]) -> &[u8] {
    let end = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    bytes.get(..end).unwrap_or_default()
}

fn inbox_file(session: &Path) -> std::path::PathBuf {
    let mut name = session.as_os_str().to_owned();
    name.push(".inbox");
    name.into()
}

/// The text of a message.
fn text(record: &Record) -> Option<String> {
    (*record.kind() == RecordKind::Message).then(|| record.to_entry())?.map(|entry| entry.text)
}

/// Nothing is wrong with any line but the last one, where that was cut short.
fn check_problems(session: &Session, bytes: &[u8]) -> Result<(), Violation> {
    let lines = bytes.iter().filter(|byte| **byte == b'\n').count();
    let is_torn = !bytes.ends_with(b"\n");
    let wrong = session.problems().iter().find(|problem| !is_torn || problem.line != lines + 1);
    match wrong {
        Some(problem) => {
            Err(Violation::HalfWritten(format!("line {}: {}", problem.line, problem.message)))
        }
        None => Ok(()),
    }
}

/// The newest compaction is followed to the letter: all that it keeps is there.
fn check_compaction(session: &Session) -> Result<(), Violation> {
    let branch = session.branch();
    let newest = branch.iter().rfind(|record| *record.kind() == RecordKind::Compaction);
    let Some(record) = newest else { return Ok(()) };
    let half = || Violation::HalfWritten(format!("compaction {}", record.id()));
    let line: Value = serde_json::from_str(record.line()).map_err(|_| half())?;
    let items =
        line.pointer("/details/ctxhost/items").and_then(Value::as_array).ok_or_else(half)?;
    let live = session.live(0).snapshot();
    let there: HashSet<&str> = live.iter().map(|entry| entry.id()).collect();
    let is_there = |item: &Value| named(item).iter().all(|id| there.contains(id.as_str()));
    if items.iter().all(is_there) { Ok(()) } else { Err(half()) }
}

/// The ids that an item of a compaction names.
fn named(item: &Value) -> Vec<String> {
    let fields = ["keep", "retell", "rewrite", "keepRange"];
    let values = fields.iter().filter_map(|field| item.get(field)).flat_map(|value| match value {
        Value::Array(ids) => ids.clone(),
        id => vec![id.clone()],
    });
    values.filter_map(|id| id.as_str().map(str::to_owned)).collect()
}

/// What a model would be shown obeys the law, and no result has lost its call.
fn check_law(view: &Transcript) -> Result<(), Violation> {
    let lawless = |why: String| Violation::Lawless(why);
    if let Some(orphan) = view.iter().find(|entry| entry.has(Flags::ORPHAN)) {
        return Err(lawless(format!("result {} has no call", orphan.id())));
    }
    let plan = Plan::keep_all(view.len());
    let lawful = invariants::enforce(view, plan, u64::MAX, &InvariantSettings::default());
    let lawful = lawful.map_err(|violation| lawless(violation.to_string()))?;
    let breaches = invariants::verify(view, &lawful.items(view), u64::MAX);
    breaches.first().map_or(Ok(()), |breach| Err(lawless(breach.to_string())))
}
