//! The groups of the suite, in the order they run.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A group of cases about one part of the contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CheckGroup {
    /// The file is an engine with consistent metadata that can be loaded and disposed.
    Load,
    /// The contract suite of the engine API.
    Contract,
    /// Calls and results stay together in every plan.
    Transcript,
    /// Compactions shrink the transcript, and a no-op is reported as one.
    Progress,
    /// The same input gives the same bytes, and the prefix is stable.
    Determinism,
    /// Entries are ingested again, with and without stored state.
    Restart,
    /// Extreme sizes and budgets.
    Limits,
    /// A call that is cancelled at any await leaves a working engine.
    Cancellation,
    /// Services that fail, time out or return garbage.
    Services,
    /// No call ends its process.
    Isolation,
    /// Time and memory.
    Resources,
    /// Secrets, injection markers and path-like session ids.
    Security,
}

impl CheckGroup {
    /// All groups, in order.
    pub const ALL: [CheckGroup; 12] = [
        CheckGroup::Load,
        CheckGroup::Contract,
        CheckGroup::Transcript,
        CheckGroup::Progress,
        CheckGroup::Determinism,
        CheckGroup::Restart,
        CheckGroup::Limits,
        CheckGroup::Cancellation,
        CheckGroup::Services,
        CheckGroup::Isolation,
        CheckGroup::Resources,
        CheckGroup::Security,
    ];

    /// The name on the command line and in reports.
    pub const fn name(self) -> &'static str {
        match self {
            CheckGroup::Load => "load",
            CheckGroup::Contract => "contract",
            CheckGroup::Transcript => "transcript",
            CheckGroup::Progress => "progress",
            CheckGroup::Determinism => "determinism",
            CheckGroup::Restart => "restart",
            CheckGroup::Limits => "limits",
            CheckGroup::Cancellation => "cancellation",
            CheckGroup::Services => "services",
            CheckGroup::Isolation => "isolation",
            CheckGroup::Resources => "resources",
            CheckGroup::Security => "security",
        }
    }
}

impl std::fmt::Display for CheckGroup {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// An unknown group name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown group {name:?}; the groups are {}", CheckGroup::ALL.map(CheckGroup::name).join(", "))]
pub struct GroupError {
    /// The name.
    pub name: String,
}

impl FromStr for CheckGroup {
    type Err = GroupError;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let found = CheckGroup::ALL.into_iter().find(|group| group.name() == name);
        found.ok_or_else(|| GroupError { name: name.to_owned() })
    }
}
