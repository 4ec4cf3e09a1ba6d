//! A build without the databases of opencode and OpenClaw.

use std::io;
use std::path::Path;

use super::database_path::DatabaseSession;

/// The sessions of a database, the newest first.
///
/// # Errors
///
/// Always: this build cannot read it.
pub fn list_database(_path: &Path) -> io::Result<Vec<DatabaseSession>> {
    Err(unsupported())
}

pub(crate) fn read_session(_database: &Path, _id: &str) -> io::Result<Vec<u8>> {
    Err(unsupported())
}

fn unsupported() -> io::Error {
    let reason = "this ctxhost was built without the feature `opencode`, which reads databases; a default build has it";
    io::Error::new(io::ErrorKind::Unsupported, reason)
}
