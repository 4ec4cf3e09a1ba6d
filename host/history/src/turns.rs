//! The turns of a branch, which start with user messages.

use std::fmt;
use std::str::FromStr;

use ctxhost_engine_api::{EntryKind, Role};

use super::HistoryError;
use ctxhost_session::{Record, Session};

/// One turn.
#[derive(Clone, Debug)]
pub struct BranchTurn<'a> {
    /// Its number on the branch, from 1.
    pub number: usize,
    /// Its records, oldest first. Records before the first user message belong to turn 1.
    pub records: Vec<&'a Record>,
}

/// The turns of the branch, including compacted ones.
pub fn turns(session: &Session) -> Vec<BranchTurn<'_>> {
    let mut turns: Vec<BranchTurn<'_>> = Vec::new();
    let mut has_begun = false;
    for record in session.branch() {
        let begins = is_user_message(record);
        // The first user message joins what precedes it, so that no turn is without one.
        match turns.last_mut().filter(|_| !(begins && has_begun)) {
            Some(turn) => turn.records.push(record),
            None => turns.push(BranchTurn { number: turns.len() + 1, records: vec![record] }),
        }
        has_begun |= begins;
    }
    turns
}

/// The number of the turn of a record.
pub fn turn_of(session: &Session, id: &str) -> Option<usize> {
    let turns = turns(session);
    let holds = |turn: &&BranchTurn<'_>| turn.records.iter().any(|record| record.id() == id);
    turns.iter().find(holds).map(|turn| turn.number)
}

fn is_user_message(record: &Record) -> bool {
    record
        .to_entry()
        .is_some_and(|entry| entry.role == Role::User && entry.kind == EntryKind::Message)
}

/// A range of turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TurnRange {
    /// The first.
    pub first: usize,
    /// The last.
    pub last: usize,
}

impl TurnRange {
    /// Selects the turns in the range.
    ///
    /// # Errors
    ///
    /// [`HistoryError::UnknownTurn`] if the branch has fewer turns.
    pub fn select<'a>(
        self,
        turns: &'a [BranchTurn<'a>],
    ) -> Result<&'a [BranchTurn<'a>], HistoryError> {
        let found = self.first.checked_sub(1).and_then(|from| turns.get(from..self.last));
        found
            .ok_or_else(|| HistoryError::UnknownTurn { asked: self.to_string(), last: turns.len() })
    }
}

impl fmt::Display for TurnRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.first == self.last {
            write!(f, "{}", self.first)
        } else {
            write!(f, "{}..{}", self.first, self.last)
        }
    }
}

impl FromStr for TurnRange {
    type Err = String;

    fn from_str(text: &str) -> Result<TurnRange, String> {
        let (first, last) = text.split_once("..").unwrap_or((text, text));
        let number = |text: &str| text.trim().parse::<usize>().ok().filter(|number| *number > 0);
        match (number(first), number(last)) {
            (Some(first), Some(last)) if first <= last => Ok(TurnRange { first, last }),
            _ => Err(format!("invalid turns {text:?}; use 3 or 3..5, counted from 1")),
        }
    }
}
