//! The conformance suite: tests an engine library against the contract, each case in a child process.
//!
//! ```text
//!  suite ─ spawns ─► child: confines itself, loads the library, runs cases of one group, writes verdicts
//!   │ ◄─ verdicts ── one line for each case; the trace has the current call
//!   ├─ child died? ─► its current case failed; the remaining cases run in another child
//!   └─ case failed? ─► its history is shrunk, each attempt in a child
//!  report: one line for each group, failures with their history, conformance.json
//! ```

#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

mod settings;

mod group;
mod groups;

mod history;
mod plan_check;
mod provider;
mod workload;

mod harness;
mod host;
mod session;
mod trace;

mod child;
mod fault;
mod process;
mod shrink;

mod report;
mod runner;

use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;

pub use child::serve;
pub use group::{CheckGroup, GroupError};
pub use report::{
    CheckFailure, CheckReport, GroupReport, MethodTime, REPORT_FILE, ReportEngine, ReportError,
    ReportHost, ReportLibrary,
};
pub use runner::groups;
pub use settings::CALL_LIMIT;

use ctxhost_engine::LoadError;

/// The library to check, the selected cases, and the program of a child.
#[derive(Clone, Debug)]
pub struct ConformanceSuite {
    /// The library.
    pub file: PathBuf,
    /// The engine's own settings; `{}` for none.
    pub config: Value,
    /// Files and folders that the engine may read beside the system's libraries.
    pub readable: Vec<PathBuf>,
    /// The groups to run; all if empty.
    pub groups: Vec<CheckGroup>,
    /// The number of the case to run in each group; all if unset.
    pub case: Option<u64>,
    /// The time limit of one call.
    pub call_limit: Duration,
    /// The program of a child, which passes the folder after `arguments` to [`serve`].
    pub program: PathBuf,
    /// The arguments before the folder.
    pub arguments: Vec<String>,
    /// The shell command that repeats this run. Failures show it with their group and case appended.
    pub rerun_command: String,
}

/// Why a library could not be checked. Unrelated to its conformance.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// The file is not an engine that this host can load.
    #[error(transparent)]
    NotLoadable(#[from] LoadError),
    /// Loading the library failed in the child.
    #[error("{reason}")]
    NotLoaded {
        /// The message of the child.
        reason: String,
    },
    /// No selected group has a case of that number.
    #[error("none of the selected groups has a case {case}; the largest is {largest}")]
    NoSuchCase {
        /// The number.
        case: u64,
        /// The largest case number.
        largest: u64,
    },
    /// A system call failed.
    #[error("cannot {action}: {source}")]
    Io {
        /// The action, as a verb.
        action: String,
        /// The system error.
        source: std::io::Error,
    },
    /// The library ended its process, or blocked it, while it was loaded.
    #[error("{reason}")]
    LoadDied {
        /// What happened.
        reason: String,
    },
    /// A child died before it loaded the library.
    #[error("the child process of the check died before it loaded the library: {reason}")]
    ChildDied {
        /// How, with the first line of its standard error.
        reason: String,
    },
    /// The communication with a child failed.
    #[error("the child process of the suite failed: {reason}")]
    BadJob {
        /// The reason.
        reason: String,
    },
}

/// Maps a system error to [`CheckError::Io`].
fn cannot(action: impl Into<String>) -> impl FnOnce(std::io::Error) -> CheckError {
    let action = action.into();
    move |source| CheckError::Io { action, source }
}
