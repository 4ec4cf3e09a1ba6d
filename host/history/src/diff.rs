//! What a compaction did to a session: what it dropped, where that is, what stands for it now.
//!
//! Worked out from the session alone, also for compactions of Pi: the live transcript before the
//! compaction against the one after it.

use std::collections::{HashMap, HashSet};

use ctxhost_engine_api::{Entry, PlanItem, Transcript};
use serde::Serialize;

use super::{HistoryError, compactions, find_compaction};
use ctxhost_retention::{self as retention, Category, Shares};
use ctxhost_session::{Record, Session};

/// Characters of an entry's text that are shown.
const EXCERPT_CHARS: usize = 80;

/// What one compaction did. Sizes are tokens without margin.
#[derive(Clone, Debug, Serialize)]
pub struct CompactionDiff {
    /// Which compaction of the branch it is, from 1.
    pub number: usize,
    /// How many the branch has.
    pub compactions: usize,
    /// Its record.
    pub at: RecordLocation,
    /// When it was made, in milliseconds since 1970.
    pub timestamp_ms: i64,
    /// Who made it; empty for one of Pi.
    pub engine: String,
    /// Its version.
    pub engine_version: String,
    /// Why; empty where nobody says.
    pub trigger: String,
    /// Size of the live transcript before.
    pub before_tokens: u64,
    /// Size after.
    pub after_tokens: u64,
    /// How much of what was said is still said.
    pub survival: Shares,
    /// What is said no more.
    pub lost: Vec<LostText>,
    /// Entries that are no longer in the live transcript.
    pub dropped: Vec<AlteredEntry>,
    /// Entries that are there with other words.
    pub shortened: Vec<AlteredEntry>,
    /// What was put in.
    pub inserted: Vec<InsertedMessage>,
}

/// Where something stands in the session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RecordLocation {
    /// The record.
    pub record: String,
    /// Its line in the file, from 1.
    pub line: Option<usize>,
}

/// Something that is said no more.
#[derive(Clone, Debug, Serialize)]
pub struct LostText {
    /// What sort of thing.
    pub category: Category,
    /// What was said.
    pub text: String,
    /// Where it was said last.
    pub at: RecordLocation,
}

/// An entry that is gone or shorter.
#[derive(Clone, Debug, Serialize)]
pub struct AlteredEntry {
    /// Where it is.
    pub at: RecordLocation,
    /// Who spoke.
    pub role: String,
    /// Its size before.
    pub before_tokens: u64,
    /// Its size after; 0 where it is gone.
    pub after_tokens: u64,
    /// The beginning of its text, or of its calls.
    pub excerpt: String,
}

/// A message that stands for others.
#[derive(Clone, Debug, Serialize)]
pub struct InsertedMessage {
    /// Who seems to speak.
    pub role: String,
    /// Its size.
    pub tokens: u64,
    /// Its text.
    pub text: String,
}

/// What the compaction of this number did; -1 is the last one, which is meant where none is named.
///
/// # Errors
///
/// [`HistoryError`] where there is none, or not so many.
pub fn diff_compaction(
    session: &Session,
    number: Option<i64>,
) -> Result<CompactionDiff, HistoryError> {
    let which = find_compaction(session, number)?;
    let record = session.record(&which.id);
    let made = record.and_then(Record::compaction).unwrap_or_default();
    let before = session.live_before(&which.id)?.snapshot();
    let after = session.live_at(&which.id)?.snapshot();
    let survival = retention::measure_retention(
        &before,
        &after.iter().map(PlanItem::Kept).collect::<Vec<_>>(),
    );
    let (dropped, shortened, inserted) = changes(session, &before, &after);
    let lost = survival.lost.into_iter();
    let lost_at = |lost: retention::LostFact| LostText {
        category: lost.category,
        text: lost.text,
        at: place(session, &lost.entry),
    };
    Ok(CompactionDiff {
        number: which.number,
        compactions: compactions(session).len(),
        at: place(session, &which.id),
        timestamp_ms: record.map_or(0, Record::timestamp_ms),
        engine: made.engine,
        engine_version: made.engine_version,
        trigger: made.trigger,
        before_tokens: before.total_tokens(),
        after_tokens: after.total_tokens(),
        survival: survival.shares,
        lost: lost.map(lost_at).collect(),
        dropped,
        shortened,
        inserted,
    })
}

/// What is gone, what is shorter, and what was put in.
fn changes(
    session: &Session,
    before: &Transcript,
    after: &Transcript,
) -> (Vec<AlteredEntry>, Vec<AlteredEntry>, Vec<InsertedMessage>) {
    let now: HashMap<&str, Entry<'_>> = after.iter().map(|entry| (entry.id(), entry)).collect();
    let then: HashSet<&str> = before.iter().map(|entry| entry.id()).collect();
    let is_other =
        |entry: &Entry<'_>| now.get(entry.id()).is_none_or(|other| other.raw() != entry.raw());
    let touched = before.iter().filter(is_other).map(|entry| AlteredEntry {
        at: place(session, entry.id()),
        role: entry.role().name().into(),
        before_tokens: entry.tokens(),
        after_tokens: now.get(entry.id()).map_or(0, Entry::tokens),
        excerpt: excerpt(&entry),
    });
    let (shortened, dropped) = touched.partition(|touched| now.contains_key(&*touched.at.record));
    let inserted = after.iter().filter(|entry| !then.contains(entry.id()));
    let inserted = inserted.map(|entry| InsertedMessage {
        role: entry.role().name().into(),
        tokens: entry.tokens(),
        text: entry.text().into(),
    });
    (dropped, shortened, inserted.collect())
}

/// Where an entry stands. A message that a compaction put in stands in the record of that compaction.
fn place(session: &Session, entry: &str) -> RecordLocation {
    let record = entry.split_once('#').map_or(entry, |(record, _)| record);
    RecordLocation { record: record.to_owned(), line: session.line_of(record) }
}

/// The first line of an entry, or what it calls.
fn excerpt(entry: &Entry<'_>) -> String {
    let text = retention::redact(entry.text());
    let line = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
    if !line.is_empty() {
        return line.trim().chars().take(EXCERPT_CHARS).collect();
    }
    let calls = entry.tool_calls();
    let calls = calls.iter().map(|call| format!("{} {}", call.name, call.arguments));
    let calls = calls.collect::<Vec<_>>().join(", ");
    retention::redact(&calls).chars().take(EXCERPT_CHARS).collect()
}
