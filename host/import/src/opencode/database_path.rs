//! How a session in a database is named: by the database and, as if it were a folder, the id.

use std::path::{Path, PathBuf};

/// A session in a database of opencode or OpenClaw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatabaseSession {
    /// Its path for [`open_file`](crate::open_file): that of the database and, as if it were a folder, the id.
    pub path: PathBuf,
    /// When it was last modified, in milliseconds since 1970.
    pub changed_ms: i64,
    /// The size of its messages.
    pub bytes: u64,
}

/// The database of a path that [`list_database`](super::list_database) made, and the session's id; `None` for any other path.
pub(crate) fn database_of(path: &Path) -> Option<(&Path, &str)> {
    let id = path.file_name()?.to_str()?;
    let database = path.parent().filter(|database| is_database(database))?;
    Some((database, id))
}

/// Whether a path has the ending of a database of opencode or OpenClaw, and is a file.
pub(crate) fn is_database(path: &Path) -> bool {
    path.extension().is_some_and(|ending| ending == "db" || ending == "sqlite") && path.is_file()
}
