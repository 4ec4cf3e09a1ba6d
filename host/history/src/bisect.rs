//! Finds the compaction that removed a text from the context.

use ctxhost_engine_api::Transcript;
use ctxhost_engine_api::transcript::log::NewEntry;
use serde::Serialize;

use super::compactions::{BranchCompaction, compactions};
use super::diff::LineNumbers;
use super::entry_text::EntryText;
use super::error::HistoryError;
use super::turns::turn_of;
use ctxhost_retention::normalize;
use ctxhost_session::{Record, RecordKind, Session};

/// The result of a search.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BisectResult {
    /// Its first occurrence, on this branch if there is one.
    pub first: Option<TextLocation>,
    /// Its current state.
    #[serde(flatten)]
    pub fate: TextFate,
}

/// An entry that contains the text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TextLocation {
    /// The id of the entry.
    pub entry: String,
    /// The line of the session file; `None` for a message inserted by a compaction and for an imported session.
    pub line: Option<usize>,
    /// The turn, if it is on the branch.
    pub turn: Option<usize>,
    /// The author.
    pub speaker: String,
}

/// The current state of a text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "fate", rename_all = "snake_case")]
pub enum TextFate {
    /// It is not in the session.
    NeverAppeared,
    /// It is in context.
    InContext {
        /// The newest entry of the live transcript that contains it.
        at: TextLocation,
    },
    /// A compaction removed it.
    Lost {
        /// The compaction.
        by: BranchCompaction,
        /// The newest entry that contained it before.
        last_seen: TextLocation,
    },
    /// It is on an abandoned branch only.
    OnAnotherBranch,
    /// A context edit removed it, or it was never in context.
    LeftOut,
}

/// Searches a text in messages and tool calls, ignoring case, runs of white space and whether accents are
/// characters of their own.
///
/// Thinking and images are not searched, and the text has to be in one entry.
///
/// # Errors
///
/// [`HistoryError::EmptyText`].
pub fn bisect(
    session: &Session,
    text: &str,
    lines: LineNumbers,
) -> Result<BisectResult, HistoryError> {
    let needle = normalize(text);
    if needle.is_empty() {
        return Err(HistoryError::EmptyText);
    }
    // Two searches: a text that is gone may never have been said, or have been said on another branch only.
    let search = Search { session, needle, lines };
    let first = search.find_first();
    let fate = match search.find_newest(&session.live(0).snapshot()) {
        Some(at) => TextFate::InContext { at },
        None => search.find_loss().unwrap_or(match &first {
            None => TextFate::NeverAppeared,
            Some(place) if place.turn.is_none() => TextFate::OnAnotherBranch,
            Some(_) => TextFate::LeftOut,
        }),
    };
    Ok(BisectResult { first, fate })
}

/// A search of a text in a session.
struct Search<'a> {
    session: &'a Session,
    /// The [normalized](normalize) text.
    needle: String,
    lines: LineNumbers,
}

impl Search<'_> {
    /// The newest compaction that had the text before it but not after it.
    fn find_loss(&self) -> Option<TextFate> {
        // A text can be lost, restored and lost again; only the newest loss explains its absence.
        let contains = |entry: &NewEntry| EntryText::from(entry).contains(&self.needle);
        let loss = self.session.find_newest_loss(contains)?;
        let all = compactions(self.session);
        let by = all.into_iter().find(|compaction| compaction.id == loss.id())?;
        let before = self.session.live_before(loss.id()).ok()?.snapshot();
        let last_seen = self.find_newest(&before)?;
        Some(TextFate::Lost { by, last_seen })
    }

    /// The newest entry of a live transcript that contains the text.
    fn find_newest(&self, live: &Transcript) -> Option<TextLocation> {
        live.iter().rev().find_map(|entry| {
            let text = EntryText::from(entry);
            text.contains(&self.needle).then(|| self.locate(entry.id(), text.speaker))
        })
    }

    /// The oldest record that contains the text, of this branch if there is one.
    fn find_first(&self) -> Option<TextLocation> {
        let contains = |record: &&Record| {
            // A summary repeats earlier text.
            let is_original = *record.kind() != RecordKind::Compaction;
            is_original
                && record
                    .to_entry()
                    .is_some_and(|entry| EntryText::from(&entry).contains(&self.needle))
        };
        let of_branch = self.session.branch().into_iter().find(contains);
        let record = of_branch.or_else(|| self.session.records().iter().find(contains))?;
        let speaker = EntryText::from(&record.to_entry()?).speaker;
        Some(self.locate(record.id(), speaker))
    }

    fn locate(&self, id: &str, speaker: String) -> TextLocation {
        let line = self.lines.known(self.session.line_of(id));
        TextLocation { entry: id.to_owned(), line, turn: turn_of(self.session, id), speaker }
    }
}
