//! Forks a session: copies records up to a point into a new session.

use super::compactions::find_compaction;
use super::error::HistoryError;
use super::turns::{TurnRange, turns};
use ctxhost_session::{Record, Session, SessionHeader};

/// The last record of a fork.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ForkPoint {
    /// The leaf.
    Leaf,
    /// This record, of any branch.
    Record(String),
    /// The last record of this turn.
    Turn(usize),
    /// The record before the compaction with this number.
    BeforeCompaction(i64),
}

/// Creates a fork in memory. Its header names `parent`, its records keep their ids.
///
/// # Errors
///
/// [`HistoryError`] if there is no such point.
pub fn fork_session(
    session: &Session,
    until: &ForkPoint,
    parent: &str,
    now_ms: i64,
) -> Result<Session, HistoryError> {
    let header =
        SessionHeader::new(None, session.header().cwd(), now_ms).with_parent_session(parent);
    // In memory, so that a fork that fails half-way leaves no file.
    let mut fork = Session::in_memory(header);
    for record in records(session, until)? {
        fork.append_copy(record)?;
    }
    Ok(fork)
}

fn records<'a>(session: &'a Session, until: &ForkPoint) -> Result<Vec<&'a Record>, HistoryError> {
    match until {
        ForkPoint::Leaf => Ok(session.branch()),
        ForkPoint::Record(id) => Ok(session.branch_to(id)?),
        ForkPoint::Turn(number) => {
            let mut turns = turns(session);
            TurnRange { first: *number, last: *number }.select(&turns)?;
            turns.truncate(*number);
            Ok(turns.into_iter().flat_map(|turn| turn.records).collect())
        }
        ForkPoint::BeforeCompaction(number) => {
            let compaction = find_compaction(session, Some(*number))?;
            let branch = session.branch().into_iter();
            Ok(branch.take_while(|record| record.id() != compaction.id).collect())
        }
    }
}
