//! The groups of the kit, in the order they run and are shown.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A group of cases about one promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Group {
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

impl Group {
    /// All of them, in order.
    pub const ALL: [Group; 12] = [
        Group::Load,
        Group::Contract,
        Group::Transcript,
        Group::Progress,
        Group::Determinism,
        Group::Restart,
        Group::Limits,
        Group::Cancellation,
        Group::Services,
        Group::Isolation,
        Group::Resources,
        Group::Security,
    ];

    /// Its name on the command line and in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Group::Load => "load",
            Group::Contract => "contract",
            Group::Transcript => "transcript",
            Group::Progress => "progress",
            Group::Determinism => "determinism",
            Group::Restart => "restart",
            Group::Limits => "limits",
            Group::Cancellation => "cancellation",
            Group::Services => "services",
            Group::Isolation => "isolation",
            Group::Resources => "resources",
            Group::Security => "security",
        }
    }
}

impl std::fmt::Display for Group {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

/// A name that is no group's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no group {name:?}; the groups are {}", Group::ALL.map(Group::name).join(", "))]
pub struct UnknownGroup {
    /// The name.
    pub name: String,
}

impl FromStr for Group {
    type Err = UnknownGroup;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        let found = Group::ALL.into_iter().find(|group| group.name() == name);
        found.ok_or_else(|| UnknownGroup { name: name.to_owned() })
    }
}
