//! Measures what the compactions of a whole session lost, and what they cost.

use ctxhost_engine_api::transcript::log::TranscriptLog;
use ctxhost_engine_api::{PlanItem, Transcript};
use serde::Serialize;
use serde_json::Value;

use super::compactions::compactions;
use super::diff::{LostText, diff_compaction, lost_at};
use super::error::HistoryError;
use ctxhost_retention::{self as retention, Shares};
use ctxhost_session::{Record, RecordKind, Session};

/// The trigger of an imported projection that is no compaction: a cancelled request was taken back.
const ROLLBACK: &str = "rollback";

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
    /// Its time, as ISO 8601.
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

/// Measures all compactions of the branch; `None` if there is none.
///
/// # Errors
///
/// [`HistoryError`] if a record is missing.
pub fn measure_loss(session: &Session) -> Result<Option<SessionLoss>, HistoryError> {
    let all = compactions(session).into_iter().filter(|compaction| compaction.trigger != ROLLBACK);
    let all: Vec<_> = all.collect();
    let Some(newest) = all.last().map(|compaction| compaction.id.clone()) else { return Ok(None) };
    let mut measured = Vec::new();
    let count = all.len();
    for compaction in all.into_iter().skip(count.saturating_sub(MAX_MEASURED)) {
        let number = i64::try_from(compaction.number).ok();
        let difference = diff_compaction(session, number)?;
        measured.push(CompactionLoss {
            number: compaction.number,
            trigger: compaction.trigger,
            time: compaction.time,
            before_tokens: difference.before_tokens,
            after_tokens: difference.after_tokens,
            retention: difference.retention,
            rebilled_tokens: rebilled_tokens(session, &compaction.id),
        });
    }
    let before = history_before(session, &newest)?;
    let after = session.live_at(&newest)?.snapshot();
    let items: Vec<PlanItem<'_>> = after.iter().map(PlanItem::Kept).collect();
    let retained = retention::measure_retention(&before, &items);
    Ok(Some(SessionLoss {
        count,
        compactions: measured,
        retention: retained.shares,
        lost: retained.lost.into_iter().map(|lost| lost_at(session, lost)).collect(),
        newest,
    }))
}

/// Every entry of the branch before a record, as if nothing had been compacted.
///
/// # Errors
///
/// [`HistoryError`] if there is no such record.
pub fn history_before(session: &Session, id: &str) -> Result<Transcript, HistoryError> {
    let mut log = TranscriptLog::new(0);
    for record in session.branch_to(id)? {
        let is_original = *record.kind() != RecordKind::Compaction;
        if let Some(entry) = is_original.then(|| session.entry(record.id())).flatten() {
            log.append(entry);
        }
    }
    Ok(log.snapshot())
}

/// The tokens of the first answered request after a record that its provider did not read from the cache.
fn rebilled_tokens(session: &Session, id: &str) -> Option<u64> {
    let branch = session.branch();
    let mut after = branch.into_iter().skip_while(|record| record.id() != id);
    after.find_map(uncached_tokens)
}

fn uncached_tokens(record: &Record) -> Option<u64> {
    let message: Value = serde_json::from_str(record.message_raw()?).ok()?;
    let usage = message.get("usage")?;
    let tokens = |name: &str| usage.get(name).and_then(Value::as_u64).unwrap_or_default();
    let uncached = tokens("input").saturating_add(tokens("cacheWrite"));
    // A request that was cancelled has a usage of zeros.
    (uncached.saturating_add(tokens("cacheRead")) > 0).then_some(uncached)
}
