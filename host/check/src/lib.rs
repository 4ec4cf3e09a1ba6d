//! The conformance kit: every rule of the contract tried on one library, each test in a process of its own.
//!
//! ```text
//!  kit ─ spawns ─► child: loads the library, runs some cases of one group, writes what it found
//!   │ ◄─ verdicts ─ one line for each case; the trace says which call is under way
//!   ├─ died? ──► the case at which it died has failed, the others go on in another child
//!   └─ failed? ─► the smallest history that still fails is looked for, in children, too
//!  report: one line for each group, what failed with its history, conformance.json
//! ```
//!
//! What an engine answers is judged as it comes, before the law repairs it: the law keeps users safe from
//! a plan that cuts a call from its result, and an author wants to know that it had to.

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

/// What to check and how to start a child.
#[derive(Clone, Debug)]
pub struct ConformanceSuite {
    /// The library, as the person named it.
    pub file: PathBuf,
    /// The engine's own settings; `{}` for none.
    pub config: Value,
    /// The groups to run; all of them where it is empty.
    pub groups: Vec<CheckGroup>,
    /// The one case to run, by its number in each group.
    pub case: Option<u64>,
    /// How long one call of the engine may take.
    pub call_limit: Duration,
    /// The program that a child is: this one, which hands the folder after `arguments` to [`serve`].
    pub program: PathBuf,
    /// What the program is told before the folder.
    pub arguments: Vec<String>,
    /// The command that runs all of this once more, as a shell takes it. A failure shows it with its own
    /// group and case behind it.
    pub rerun_command: String,
}

/// Why a library could not be checked. It says nothing about whether it conforms.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// The file is no engine that this host can load.
    #[error(transparent)]
    NotLoadable(#[from] LoadError),
    /// The file was read, and the system or the engine refused when it was loaded.
    #[error("{reason}")]
    NotLoaded {
        /// What the loading child said.
        reason: String,
    },
    /// No group has a case of that number.
    #[error("no group that was asked for has a case {case}; the largest is {largest}")]
    NoSuchCase {
        /// The number.
        case: u64,
        /// The largest there is.
        largest: u64,
    },
    /// The system refused.
    #[error("cannot {action}: {source}")]
    Io {
        /// What was tried, as a verb.
        action: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// A child was told what it does not understand.
    #[error("a child of the kit was told nonsense: {reason}")]
    BadJob {
        /// What is wrong.
        reason: String,
    },
}

/// What was tried when the system refused.
fn cannot(action: impl Into<String>) -> impl FnOnce(std::io::Error) -> CheckError {
    let action = action.into();
    move |source| CheckError::Io { action, source }
}

impl ConformanceSuite {
    /// Runs the kit; `done` is told of each group as it ends.
    ///
    /// # Errors
    ///
    /// [`CheckError`], where the library cannot be loaded or the system does not play along. An engine
    /// that breaks a rule is no error: the report says so.
    pub fn run(&self, done: &mut dyn FnMut(&GroupReport)) -> Result<CheckReport, CheckError> {
        runner::run(self, done)
    }
}
