//! Which compaction lost a text, and where it was said.

use ctxhost_engine_api::Transcript;
use serde::Serialize;

use super::compactions::{BranchCompaction, compactions};
use super::entry_text::{EntryText, normalize};
use super::error::HistoryError;
use super::turns::turn_of;
use ctxhost_session::{Record, RecordKind, Session};

/// What became of a text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BisectResult {
    /// Where it was said first; on this branch, where it was said there.
    pub first: Option<TextLocation>,
    /// Where it is now.
    #[serde(flatten)]
    pub fate: TextFate,
}

/// An entry that says it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TextLocation {
    /// The id of the entry.
    pub entry: String,
    /// The line of the session file; `None` for a message that a compaction put in.
    pub line: Option<usize>,
    /// The turn of the branch; `None` where it is not on the branch.
    pub turn: Option<usize>,
    /// Who says it, in words.
    pub speaker: String,
}

/// Where a text is now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "fate", rename_all = "snake_case")]
pub enum TextFate {
    /// Nothing in the session says it.
    #[serde(rename = "never_said")]
    NeverAppeared,
    /// The model sees it.
    InContext {
        /// The newest entry of the live transcript that says it.
        at: TextLocation,
    },
    /// A compaction folded it away.
    Lost {
        /// Which one.
        by: BranchCompaction,
        /// The newest entry that said it before.
        last_seen: TextLocation,
    },
    /// It was said on a branch that was left.
    OnAnotherBranch,
    /// No compaction lost it: an edit took it out, or it was never in context.
    LeftOut,
}

/// Finds a text in what was said and done. Upper case and white space do not count.
///
/// Thinking and pictures are not searched, and a text has to stand in one entry.
///
/// # Errors
///
/// [`HistoryError::EmptyText`].
pub fn bisect(session: &Session, text: &str) -> Result<BisectResult, HistoryError> {
    let needle = normalize(text);
    if needle.is_empty() {
        return Err(HistoryError::EmptyText);
    }
    let first = first_said(session, &needle);
    let fate = match newest(session, &session.live(0).snapshot(), &needle) {
        Some(at) => TextFate::InContext { at },
        None => lost(session, &needle).unwrap_or(match &first {
            None => TextFate::NeverAppeared,
            Some(place) if place.turn.is_none() => TextFate::OnAnotherBranch,
            Some(_) => TextFate::LeftOut,
        }),
    };
    Ok(BisectResult { first, fate })
}

/// The newest compaction before which it was live and after which it was not.
fn lost(session: &Session, needle: &str) -> Option<TextFate> {
    compactions(session).into_iter().rev().find_map(|compaction| {
        let before = session.live_before(&compaction.id).ok()?.snapshot();
        let last_seen = newest(session, &before, needle)?;
        let after = session.live_at(&compaction.id).ok()?.snapshot();
        let is_lost = newest(session, &after, needle).is_none();
        is_lost.then_some(TextFate::Lost { by: compaction, last_seen })
    })
}

/// The newest entry of a live transcript that says it.
fn newest(session: &Session, live: &Transcript, needle: &str) -> Option<TextLocation> {
    live.iter().rev().find_map(|entry| {
        let spoken = EntryText::from(entry);
        spoken.contains(needle).then(|| place(session, entry.id(), spoken.speaker))
    })
}

/// The oldest record that says it, of this branch if there is one.
fn first_said(session: &Session, needle: &str) -> Option<TextLocation> {
    let says = |record: &&Record| {
        let said = *record.kind() != RecordKind::Compaction;
        said && record.to_entry().is_some_and(|entry| EntryText::from(&entry).contains(needle))
    };
    let of_branch = session.branch().into_iter().find(says);
    let record = of_branch.or_else(|| session.records().iter().find(says))?;
    let speaker = EntryText::from(&record.to_entry()?).speaker;
    Some(place(session, record.id(), speaker))
}

fn place(session: &Session, id: &str, speaker: String) -> TextLocation {
    let (line, turn) = (session.line_of(id), turn_of(session, id));
    TextLocation { entry: id.to_owned(), line, turn, speaker }
}
