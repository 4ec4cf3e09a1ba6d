//! The verdict of a case, which a child sends to its parent.

use serde::{Deserialize, Serialize};

/// A rule that the engine broke.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct CheckFault {
    /// The name of the rule: `pairs`, `larger`, `hang`. A shrunk history must break the same rule.
    pub(super) rule: String,
    /// What happened, as one sentence.
    pub(super) message: String,
}

impl CheckFault {
    pub(super) fn new(rule: &str, message: impl Into<String>) -> CheckFault {
        CheckFault { rule: rule.to_owned(), message: message.into() }
    }

    /// A call did not return.
    pub(super) const HANG: &str = "hang";
    /// `create` did not return, although the host had answered all it was asked: no other case can run.
    pub(super) const CREATE_HANG: &str = "create-hang";
    /// The process died.
    pub(super) const DEATH: &str = "death";
    /// The library could not be loaded.
    pub(super) const LOAD: &str = "load";

    /// Whether the child ended itself after it wrote this verdict, without the remaining cases.
    pub(super) fn ends_child(&self) -> bool {
        self.is_costly() || self.rule == CheckFault::LOAD
    }

    /// Whether another occurrence would take the whole time limit of a call.
    pub(super) fn is_costly(&self) -> bool {
        // A hang takes the time limit of a call on every attempt.
        [CheckFault::HANG, CheckFault::CREATE_HANG].contains(&&*self.rule)
    }
}

/// The figures of a passed case.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct CaseStats {
    pub(super) checks: u64,
    /// A note for the group's line in the report; may be empty.
    pub(super) note: String,
    /// A digest of all replies of the engine, in groups that compare processes.
    pub(super) digest: String,
    /// Steps in which the prefix of a request could change, and steps in which it did.
    pub(super) prefix: (u64, u64),
    /// Compactions that could reach the floor of used tokens, and those that did not.
    pub(super) floor_use: (u64, u64),
    /// The duration of calls.
    pub(super) times: Vec<super::report::MethodTime>,
    /// The peak memory of the process, in bytes; 0 if not measured.
    pub(super) peak_bytes: u64,
}

impl CaseStats {
    pub(super) fn with_checks(checks: u64) -> CaseStats {
        CaseStats { checks, ..CaseStats::default() }
    }
}

/// The outcome of a case.
pub(super) type CaseOutcome = Result<CaseStats, CheckFault>;

/// One line of a child's verdicts.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct CaseVerdict {
    pub(super) case: u64,
    pub(super) outcome: CaseOutcome,
}
