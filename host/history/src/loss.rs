//! Measures what the compactions of a whole session lost, and what they cost.

use std::collections::{HashMap, HashSet};

use ctxhost_engine_api::transcript::log::TranscriptLog;
use ctxhost_engine_api::{PlanItem, Transcript};
use serde::Serialize;
use serde_json::Value;

use super::compactions::{PRUNE, compactions, is_rollback};
use super::diff::{LineNumbers, Locator, LostText, diff_compaction};
use super::error::HistoryError;
use ctxhost_retention::{Shares, measure_retention};
use ctxhost_session::{Record, RecordKind, Session};

/// Compactions that are measured one by one. The cost of one grows with those before it.
const MAX_MEASURED: usize = 50;

/// What the compactions of a branch lost together.
#[derive(Clone, Debug, Serialize)]
pub struct SessionLoss {
    /// Number of compactions.
    pub count: usize,
    /// The newest 50 of them, oldest first.
    pub compactions: Vec<CompactionLoss>,
    /// How much of the whole history is still in context after the newest one.
    pub retention: Shares,
    /// What is not.
    pub lost: Vec<LostText>,
    /// The record of the newest compaction.
    pub newest: String,
}

/// What one compaction lost and cost.
#[derive(Clone, Debug, Serialize)]
pub struct CompactionLoss {
    /// Its number on the branch, from 1.
    pub number: usize,
    /// Its trigger; empty if unknown.
    pub trigger: String,
    /// Its time, as ISO 8601; empty if unknown.
    pub time: String,
    /// Size of the live transcript before, in estimated tokens.
    pub before_tokens: u64,
    /// Size after.
    pub after_tokens: u64,
    /// How much of the live transcript before it is still stated after it.
    pub retention: Shares,
    /// Provider tokens of the next request that were not read from the cache, because its prefix is new;
    /// `None` if the recording does not count them.
    pub rebilled_tokens: Option<u64>,
}

impl CompactionLoss {
    /// Whether it cleared results of tools only.
    pub fn is_prune(&self) -> bool {
        self.trigger == PRUNE
    }
}

/// The largest window that a config accepts, in provider tokens: no request has more.
const MOST_TOKENS: u64 = 1_000_000_000;

/// Measures all compactions of the branch; `None` if there is none.
///
/// # Errors
///
/// [`HistoryError`] if a record is missing.
pub fn measure_loss(
    session: &Session,
    lines: LineNumbers,
) -> Result<Option<SessionLoss>, HistoryError> {
    let is_counted = |id: &str| session.record(id).is_some_and(|record| !records_rollback(record));
    let all: Vec<_> =
        compactions(session).into_iter().filter(|found| is_counted(&found.id)).collect();
    let Some(newest) = all.last().map(|compaction| compaction.id.clone()) else { return Ok(None) };
    let mut rebilled = rebilled_tokens(session);
    let mut measured = Vec::new();
    let count = all.len();
    for compaction in all.into_iter().skip(count.saturating_sub(MAX_MEASURED)) {
        let number = i64::try_from(compaction.number).ok();
        let difference = diff_compaction(session, number, lines)?;
        measured.push(CompactionLoss {
            number: compaction.number,
            trigger: compaction.trigger,
            time: compaction.time,
            before_tokens: difference.before_tokens,
            after_tokens: difference.after_tokens,
            retention: difference.retention,
            rebilled_tokens: rebilled.remove(&compaction.id),
        });
    }
    let before = history_before(session, &newest)?;
    let after = session.live_at(&newest)?.snapshot();
    let items: Vec<PlanItem<'_>> = after.iter().map(PlanItem::Kept).collect();
    let retained = measure_retention(&before, &items);
    let locator = Locator { session, lines };
    Ok(Some(SessionLoss {
        count,
        compactions: measured,
        retention: retained.shares,
        lost: retained.lost.into_iter().map(|lost| locator.lost_at(lost)).collect(),
        newest,
    }))
}

/// Every entry of the branch before a record, as if nothing had been compacted. Requests that the user took back
/// are left out.
///
/// # Errors
///
/// [`HistoryError`] if there is no such record.
pub fn history_before(session: &Session, id: &str) -> Result<Transcript, HistoryError> {
    let branch = session.branch_to(id)?;
    let mut taken_back: HashSet<String> = HashSet::new();
    for rollback in branch.iter().filter(|record| records_rollback(record)) {
        let after = session.live_at(rollback.id())?.snapshot();
        let kept: HashSet<&str> = after.iter().map(|entry| entry.id()).collect();
        let before = session.live_before(rollback.id())?.snapshot();
        let gone = before.iter().filter(|entry| !kept.contains(entry.id()));
        taken_back.extend(gone.map(|entry| entry.id().to_owned()));
    }
    let mut log = TranscriptLog::new(0);
    for record in branch {
        let is_original =
            *record.kind() != RecordKind::Compaction && !taken_back.contains(record.id());
        if let Some(entry) = is_original.then(|| session.entry(record.id())).flatten() {
            log.append(entry);
        }
    }
    Ok(log.snapshot())
}

fn records_rollback(record: &Record) -> bool {
    record.compaction().is_some_and(|compaction| is_rollback(&compaction))
}

/// For each compaction, the tokens of the first answered request after it that its provider did not read from the
/// cache. A request after several compactions counts for the last of them, so that it counts once.
fn rebilled_tokens(session: &Session) -> HashMap<String, u64> {
    let mut rebilled = HashMap::new();
    let mut newest = None;
    for record in session.branch() {
        if *record.kind() == RecordKind::Compaction {
            // The next request after a rollback still is the first one with the prefix of the compaction.
            if !records_rollback(record) {
                newest = Some(record.id());
            }
        } else if let Some(tokens) = newest.and_then(|_| uncached_tokens(record)) {
            rebilled.extend(newest.take().map(|id| (id.to_owned(), tokens)));
        }
    }
    rebilled
}

fn uncached_tokens(record: &Record) -> Option<u64> {
    let message: Value = serde_json::from_str(record.message_raw()?).ok()?;
    let usage = message.get("usage")?;
    let tokens = |name: &str| usage.get(name).and_then(Value::as_u64).unwrap_or_default();
    let uncached = tokens("input").saturating_add(tokens("cacheWrite"));
    // A request that was cancelled has a usage of zeros, and one above any window is a mistake of the recording.
    let all = uncached.saturating_add(tokens("cacheRead"));
    (1..=MOST_TOKENS).contains(&all).then_some(uncached)
}
