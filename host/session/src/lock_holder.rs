//! The process that holds the lock of a session file.

use std::fmt;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::clock;

/// The process that holds the lock of a session, as it described itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockHolder {
    /// Process id.
    pub pid: u32,
    /// Host name.
    pub host: String,
    /// File name of the program.
    pub program: String,
    /// When it opened the session, in ISO 8601.
    pub since: String,
}

impl LockHolder {
    pub(super) fn this_process() -> LockHolder {
        let program = std::env::current_exe().ok();
        let program = program.as_deref().and_then(Path::file_name);
        LockHolder {
            pid: std::process::id(),
            host: ctxhost_platform::processes::host_name(),
            program: program.unwrap_or_default().to_string_lossy().into_owned(),
            since: clock::format_iso(clock::now_ms()),
        }
    }
}

impl fmt::Display for LockHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let LockHolder { pid, host, program, since } = self;
        write!(f, "{program}, process {pid} on {host}, since {since}")
    }
}
