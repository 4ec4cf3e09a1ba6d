//! Why something of a history could not be found, brought back or written.

use std::path::PathBuf;

use ctxhost_session::SessionError;

/// What can go wrong with a history.
#[derive(Debug, thiserror::Error)]
pub enum HistoryError {
    /// There is no compaction at all.
    #[error("nothing was compacted on this branch")]
    NoCompaction,
    /// There are others.
    #[error("no compaction @{number} on this branch; there {}", listed(there))]
    UnknownCompaction {
        /// The number that was asked for.
        number: i64,
        /// Those there are.
        there: Vec<String>,
    },
    /// The branch is shorter.
    #[error("no turn {asked} on this branch; it has turns 1 to {last}")]
    UnknownTurn {
        /// The turns that were asked for.
        asked: String,
        /// The last turn.
        last: usize,
    },
    /// The record is none that a model ever saw.
    #[error("no entry {id:?} in this session; `ctxhost sessions show` lists them")]
    UnknownEntry {
        /// The id that was asked for.
        id: String,
    },
    /// There is nothing to bring back.
    #[error("{asked} still in context, word for word")]
    StillInContext {
        /// What was asked for, with its verb.
        asked: String,
    },
    /// There is nothing to look for.
    #[error("the text to look for is empty")]
    EmptyText,
    /// A file of that name is there.
    #[error("{} is there already; name another file, or move that one away", path.display())]
    AlreadyExists {
        /// The file.
        path: PathBuf,
    },
    /// The file system refused.
    #[error("cannot write {}: {source}", path.display())]
    Unwritable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The session refused.
    #[error(transparent)]
    Session(#[from] SessionError),
}

fn listed(there: &[String]) -> String {
    let verb = if there.len() == 1 { "is" } else { "are" };
    format!("{verb} {}", there.join(", "))
}
