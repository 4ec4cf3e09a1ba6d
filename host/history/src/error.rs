//! Errors of history commands.

use std::path::PathBuf;

use ctxhost_session::SessionError;

/// Why a history command failed.
#[derive(Debug, thiserror::Error)]
pub enum HistoryError {
    /// The branch has no compaction.
    #[error("this branch has no compaction")]
    NoCompaction,
    /// There is no compaction with this number.
    #[error("no compaction @{number} on this branch; there {}", listed(there))]
    UnknownCompaction {
        /// The requested number.
        number: i64,
        /// The existing compactions.
        there: Vec<String>,
    },
    /// The branch has fewer turns.
    #[error("no turn {asked} on this branch; it has turns 1 to {last}")]
    UnknownTurn {
        /// The requested turns.
        asked: String,
        /// The last turn.
        last: usize,
    },
    /// No entry has this id.
    #[error("no entry {id:?} in this session; list the entries with `ctxhost sessions show`")]
    UnknownEntry {
        /// The requested id.
        id: String,
    },
    /// All requested entries are in context.
    #[error("{asked} still in context, unchanged")]
    StillInContext {
        /// The requested entries, with a verb.
        asked: String,
    },
    /// The text to search is empty.
    #[error("the search text is empty")]
    EmptyText,
    /// The file exists.
    #[error("{} exists; use another file name, or move it away", path.display())]
    AlreadyExists {
        /// The file.
        path: PathBuf,
    },
    /// The file cannot be written.
    #[error("cannot write {}: {source}", path.display())]
    Unwritable {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// The session cannot be read or written.
    #[error(transparent)]
    Session(#[from] SessionError),
}

fn listed(there: &[String]) -> String {
    let verb = if there.len() == 1 { "is" } else { "are" };
    format!("{verb} {}", there.join(", "))
}
