//! Compares the live transcript before and after a compaction.
//!
//! Uses the session only, so it works for compactions by Pi and for imported ones too.

use std::collections::{HashMap, HashSet};

use ctxhost_engine_api::{Entry, PlanItem, Transcript};
use serde::Serialize;

use super::{HistoryError, compactions, find_compaction};
use ctxhost_retention::{self as retention, Category, KnownSecrets, Shares, measure_retention};
use ctxhost_session::{Record, Session};

/// Length of an excerpt in characters.
const EXCERPT_CHARS: usize = 80;

/// The changes of one compaction. Sizes are tokens without margin.
#[derive(Clone, Debug, Serialize)]
pub struct CompactionDiff {
    /// Its number on the branch, from 1.
    pub number: usize,
    /// Number of compactions on the branch.
    pub compactions: usize,
    /// Its record.
    pub at: RecordLocation,
    /// Its time, in milliseconds since 1970.
    pub timestamp_ms: i64,
    /// The engine; empty for a compaction by Pi.
    pub engine: String,
    /// Its version.
    pub engine_version: String,
    /// The trigger; empty if unknown.
    pub trigger: String,
    /// Size of the live transcript before.
    pub before_tokens: u64,
    /// Size after.
    pub after_tokens: u64,
    /// How much of the earlier content is retained.
    pub retention: Shares,
    /// Content that is not retained.
    pub lost: Vec<LostText>,
    /// Entries that are not in the live transcript any more.
    pub dropped: Vec<AlteredEntry>,
    /// Entries with changed content.
    pub shortened: Vec<AlteredEntry>,
    /// Inserted messages.
    pub inserted: Vec<InsertedMessage>,
}

/// A position in the session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RecordLocation {
    /// The id of the entry.
    pub entry: String,
    /// Its line in the file, from 1; `None` if the file of the session has other lines.
    pub line: Option<usize>,
    /// Its place among the records of the session.
    #[serde(skip)]
    pub place: usize,
}

/// Whether the records of a session are the lines of the file that the user named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineNumbers {
    /// They are.
    OfFile,
    /// It was imported: the file has other lines, or is a database.
    None,
}

/// Content that is not retained.
#[derive(Clone, Debug, Serialize)]
pub struct LostText {
    /// Its category.
    pub category: Category,
    /// Its text.
    pub text: String,
    /// Its last occurrence.
    pub at: RecordLocation,
}

/// A dropped or changed entry.
#[derive(Clone, Debug, Serialize)]
pub struct AlteredEntry {
    /// Its record.
    pub at: RecordLocation,
    /// Its role.
    pub role: String,
    /// Its size before.
    pub before_tokens: u64,
    /// Its size after; 0 if it was dropped.
    pub after_tokens: u64,
    /// The start of its text, or of its calls.
    pub excerpt: String,
}

/// A message inserted by the compaction.
#[derive(Clone, Debug, Serialize)]
pub struct InsertedMessage {
    /// Its role.
    pub role: String,
    /// Its size.
    pub tokens: u64,
    /// Its text.
    pub text: String,
}

/// Computes the changes of the compaction with this number, by default the last one.
///
/// # Errors
///
/// [`HistoryError`] if there is no such compaction.
pub fn diff_compaction(
    session: &Session,
    number: Option<i64>,
    lines: LineNumbers,
) -> Result<CompactionDiff, HistoryError> {
    let compaction = find_compaction(session, number)?;
    let record = session.record(&compaction.id);
    let recorded = record.and_then(Record::compaction).unwrap_or_default();
    let before = session.live_before(&compaction.id)?.snapshot();
    let after = session.live_at(&compaction.id)?.snapshot();
    let retained =
        measure_retention(&before, &after.iter().map(PlanItem::Kept).collect::<Vec<_>>());
    let locator = Locator { session, lines };
    let (dropped, shortened, inserted) = changes(&locator, &before, &after, &retained.secrets);
    let lost = retained.lost.into_iter();
    Ok(CompactionDiff {
        number: compaction.number,
        compactions: compactions(session).len(),
        at: locator.locate(&compaction.id),
        timestamp_ms: record.map_or(0, Record::timestamp_ms),
        engine: recorded.engine,
        engine_version: recorded.engine_version,
        trigger: recorded.trigger,
        before_tokens: before.total_tokens(),
        after_tokens: after.total_tokens(),
        retention: retained.shares,
        lost: lost.map(|lost| locator.lost_at(lost)).collect(),
        dropped,
        shortened,
        inserted,
    })
}

/// The dropped, changed and inserted entries.
fn changes(
    locator: &Locator<'_>,
    before: &Transcript,
    after: &Transcript,
    secrets: &KnownSecrets,
) -> (Vec<AlteredEntry>, Vec<AlteredEntry>, Vec<InsertedMessage>) {
    let current: HashMap<&str, Entry<'_>> = after.iter().map(|entry| (entry.id(), entry)).collect();
    let earlier: HashSet<&str> = before.iter().map(|entry| entry.id()).collect();
    // The recorded bytes and not the token count: a pruned text may cost as much as its replacement.
    let is_changed =
        |entry: &Entry<'_>| current.get(entry.id()).is_none_or(|other| other.raw() != entry.raw());
    let altered = before.iter().filter(is_changed).map(|entry| AlteredEntry {
        at: locator.locate(entry.id()),
        role: entry.role().name().into(),
        before_tokens: entry.tokens(),
        after_tokens: current.get(entry.id()).map_or(0, Entry::tokens),
        excerpt: excerpt(&entry, secrets),
    });
    let (shortened, dropped) =
        altered.partition(|altered| current.contains_key(&*altered.at.entry));
    let inserted = after.iter().filter(|entry| !earlier.contains(entry.id()));
    let inserted = inserted.map(|entry| InsertedMessage {
        role: entry.role().name().into(),
        tokens: entry.tokens(),
        // A diff is printed and pasted into reports.
        text: secrets.redact(entry.text()),
    });
    (dropped, shortened, inserted.collect())
}

/// Finds the records of entries.
pub(super) struct Locator<'a> {
    pub(super) session: &'a Session,
    pub(super) lines: LineNumbers,
}

impl Locator<'_> {
    /// The record of an entry. An inserted message is in the record of its compaction.
    fn locate(&self, entry: &str) -> RecordLocation {
        // Ids of inserted messages are `<compaction id>#<n>`.
        let record = entry.split_once('#').map_or(entry, |(record, _)| record);
        let line = self.session.line_of(record);
        let place = line.unwrap_or_default();
        RecordLocation { entry: record.to_owned(), line: self.lines.known(line), place }
    }

    /// A lost fact with its location.
    pub(super) fn lost_at(&self, lost: retention::LostFact) -> LostText {
        let at = self.locate(&lost.entry);
        LostText { category: lost.category, text: lost.text, at }
    }
}

impl LineNumbers {
    /// The line, if the file has it.
    pub(super) fn known(self, line: Option<usize>) -> Option<usize> {
        line.filter(|_| self == LineNumbers::OfFile)
    }
}

/// The first line of an entry, or its calls.
fn excerpt(entry: &Entry<'_>, secrets: &KnownSecrets) -> String {
    let text = secrets.redact(entry.text());
    let line = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
    if !line.is_empty() {
        return shorten(line.trim());
    }
    let calls = entry.tool_calls();
    let calls = calls.iter().map(|call| format!("{} {}", call.name, call.arguments));
    let calls = calls.collect::<Vec<_>>().join(", ");
    shorten(&secrets.redact(&calls))
}

fn shorten(text: &str) -> String {
    let mut short: String = text.chars().take(EXCERPT_CHARS).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}
