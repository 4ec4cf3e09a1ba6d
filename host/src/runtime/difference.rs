//! What a compaction did to a session: what it dropped, where that is, what stands for it now.
//!
//! Worked out from the session alone, also for compactions of Pi: the live transcript before the
//! compaction against the one after it.

use std::collections::HashMap;

use ctxhost_engine_api::{Entry, Item, Transcript};
use serde::Serialize;

use crate::history::{self, HistoryError};
use crate::session::{Record, Session, SessionError};
use crate::survival::{self, Category, Shares};

/// Characters of an entry's text that are shown.
const EXCERPT_CHARS: usize = 80;

/// What one compaction did. Sizes are tokens without margin.
#[derive(Clone, Debug, Serialize)]
pub struct Difference {
    /// Which compaction of the branch it is, from 1.
    pub number: u64,
    /// How many the branch has.
    pub compactions: u64,
    /// Its record.
    pub at: Place,
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
    pub lost: Vec<LostAt>,
    /// Entries that are no longer in the live transcript.
    pub dropped: Vec<Touched>,
    /// Entries that are there with other words.
    pub shortened: Vec<Touched>,
    /// What was put in.
    pub inserted: Vec<Inserted>,
}

/// Where something stands in the session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Place {
    /// The record.
    pub record: String,
    /// Its line in the file, from 1.
    pub line: Option<usize>,
}

/// Something that is said no more.
#[derive(Clone, Debug, Serialize)]
pub struct LostAt {
    /// What sort of thing.
    pub category: Category,
    /// What was said.
    pub text: String,
    /// Where it was said last.
    pub at: Place,
}

/// An entry that is gone or shorter.
#[derive(Clone, Debug, Serialize)]
pub struct Touched {
    /// Where it is.
    pub at: Place,
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
pub struct Inserted {
    /// Who seems to speak.
    pub role: String,
    /// Its size.
    pub tokens: u64,
    /// Its text.
    pub text: String,
}

/// What the compaction of this number did, or the newest; below 0 counts from the newest. The session
/// stands at that compaction afterwards.
///
/// # Errors
///
/// [`HistoryError`] where there is none of this number.
pub fn difference(session: &mut Session, number: Option<i64>) -> Result<Difference, HistoryError> {
    let compactions = history::compactions(session).len() as u64;
    let found = history::compacted(session, number)?;
    let unknown = || SessionError::UnknownRecord { id: found.id.clone() };
    let record = session.record(&found.id).ok_or_else(unknown)?.clone();
    let before = match record.parent_id() {
        Some(parent) => live_at(session, parent)?,
        None => Session::in_memory(session.header().clone()).live(0).snapshot(),
    };
    let after = live_at(session, record.id())?;
    Ok(tell(session, (found.number as u64, compactions), &record, &before, &after))
}

fn live_at(session: &mut Session, id: &str) -> Result<Transcript, SessionError> {
    session.set_leaf(id)?;
    Ok(session.live(0).snapshot())
}

fn tell(
    session: &Session,
    (number, compactions): (u64, u64),
    record: &Record,
    before: &Transcript,
    after: &Transcript,
) -> Difference {
    let facts = record.compacted().unwrap_or_default();
    let place = |id: &str| place(session, id);
    let items: Vec<Item<'_>> = after.iter().map(Item::Kept).collect();
    let survival = survival::survey(before, &items);
    let now: HashMap<&str, Entry<'_>> = after.iter().map(|entry| (entry.id(), entry)).collect();
    let then: HashMap<&str, Entry<'_>> = before.iter().map(|entry| (entry.id(), entry)).collect();
    let is_other =
        |entry: &Entry<'_>| now.get(entry.id()).is_none_or(|other| other.raw() != entry.raw());
    let touched = before.iter().filter(is_other).map(|entry| Touched {
        at: place(entry.id()),
        role: entry.role().name().into(),
        before_tokens: entry.tokens(),
        after_tokens: now.get(entry.id()).map_or(0, Entry::tokens),
        excerpt: excerpt(&entry),
    });
    let (shortened, dropped) = touched.partition(|touched| now.contains_key(&*touched.at.record));
    let inserted = after.iter().filter(|entry| !then.contains_key(entry.id()));
    Difference {
        number,
        compactions,
        at: place(record.id()),
        timestamp_ms: record.timestamp_ms(),
        engine: facts.engine,
        engine_version: facts.engine_version,
        trigger: facts.trigger,
        before_tokens: before.total_tokens(),
        after_tokens: after.total_tokens(),
        survival: survival.shares,
        lost: survival
            .lost
            .into_iter()
            .map(|lost| LostAt { category: lost.category, text: lost.text, at: place(&lost.entry) })
            .collect(),
        dropped,
        shortened,
        inserted: inserted
            .map(|entry| Inserted {
                role: entry.role().name().into(),
                tokens: entry.tokens(),
                text: entry.text().into(),
            })
            .collect(),
    }
}

/// Where an entry stands. A message that a compaction put in stands in the record of that compaction.
fn place(session: &Session, entry: &str) -> Place {
    let record = entry.split_once('#').map_or(entry, |(record, _)| record);
    Place { record: record.to_owned(), line: session.line_of(record) }
}

/// The first line of an entry, or what it calls.
fn excerpt(entry: &Entry<'_>) -> String {
    let text = survival::redact(entry.text());
    let line = text.lines().find(|line| !line.trim().is_empty()).unwrap_or_default();
    if !line.is_empty() {
        return line.trim().chars().take(EXCERPT_CHARS).collect();
    }
    let calls = entry.tool_calls();
    let calls = calls.iter().map(|call| format!("{} {}", call.name, call.arguments));
    let calls = calls.collect::<Vec<_>>().join(", ");
    survival::redact(&calls).chars().take(EXCERPT_CHARS).collect()
}
