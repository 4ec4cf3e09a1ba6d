//! The groups of the kit, in the order they run and are shown.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A group of cases about one promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum CheckGroup {
    /// The file is an engine, says what it is, and can be let go of.
    Load,
    /// The contract suite of the engine API.
    Contract,
    /// Calls and results stay together in every plan.
    Transcript,
    /// Nothing becomes larger, and nothing is called something.
    Progress,
    /// The same input makes the same bytes, and the prefix stands still.
    Determinism,
    /// What was told before is told again.
    Restart,
    /// Sizes and budgets at both ends.
    Limits,
    /// A call that is given up at any wait does no harm.
    Cancellation,
    /// Services that fail, lie or come too late.
    Services,
    /// No call takes its process with it.
    Isolation,
    /// What it costs.
    Resources,
    /// Secrets, markers and names that look like paths.
    Security,
}

impl CheckGroup {
    /// All of them, in order.
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

    /// Its name on the command line and in reports.
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

/// A name that is no group's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no group {name:?}; the groups are {}", CheckGroup::ALL.map(CheckGroup::name).join(", "))]
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
