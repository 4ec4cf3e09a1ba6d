//! What a child found out about one case, on its way to the kit.

use serde::{Deserialize, Serialize};

/// A rule that the engine broke.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct CheckFault {
    /// The rule in a word or two: `pairs`, `larger`, `hang`. While a history is made smaller the same
    /// rule must stay broken.
    pub(super) rule: String,
    /// What happened, as one sentence.
    pub(super) message: String,
}

impl CheckFault {
    pub(super) fn new(rule: &str, message: impl Into<String>) -> CheckFault {
        CheckFault { rule: rule.to_owned(), message: message.into() }
    }

    /// The call that never came back.
    pub(super) const HANG: &str = "hang";
    /// The process is gone.
    pub(super) const DEATH: &str = "death";
    /// The library could not even be loaded.
    pub(super) const LOAD: &str = "load";

    /// Whether looking for more of the kind only costs time.
    pub(super) fn is_costly(&self) -> bool {
        self.rule == CheckFault::HANG
    }
}

/// What a case that went well has to tell.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct CaseStats {
    /// Checks that were made.
    pub(super) checks: u64,
    /// What is told of it in the group's line; empty for nothing.
    pub(super) note: String,
    /// A digest of everything the engine answered, where that must be the same in another process.
    pub(super) digest: String,
    /// Steps in which the prefix of a request could have moved, and those in which it did.
    pub(super) prefix: (u64, u64),
    /// Compactions that had enough to keep, and those that left less than the floor in use.
    pub(super) floor_use: (u64, u64),
    /// How long single calls took.
    pub(super) times: Vec<super::report::MethodTime>,
    /// The largest memory of the process, in bytes; 0 where it was not measured.
    pub(super) peak_bytes: u64,
}

impl CaseStats {
    pub(super) fn with_checks(checks: u64) -> CaseStats {
        CaseStats { checks, ..CaseStats::default() }
    }
}

/// How one case went.
pub(super) type CaseOutcome = Result<CaseStats, CheckFault>;

/// One line of a child's answer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct CaseVerdict {
    /// The case.
    pub(super) case: u64,
    /// How it went.
    pub(super) outcome: CaseOutcome,
}
