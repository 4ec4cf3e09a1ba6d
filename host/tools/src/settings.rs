//! The table `[tools]`: which tools there are, how long they may take, where they may write.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::names::NamePattern;

ctxhost_engine_api::settings! {
    /// `[tools]`.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    pub struct ToolSettings {
        /// Names or patterns such as `git__*` of tools that the model is offered, those of servers
        /// and engines among them; empty offers all.
        pub allow: Vec<NamePattern> = Vec::new(), List;
        /// Names or patterns of tools that it is not; goes before `allow`. `shell` here is what
        /// keeps an agent to files.
        pub deny: Vec<NamePattern> = Vec::new(), List;
        /// The most that any call may take, whatever the tool or the model says; ten minutes let a
        /// long test run end.
        pub timeout_ms: u64 = 600_000, Whole(1), "ms";
        /// A command for which the model asks for no time of its own; two minutes are long for
        /// most, and show a hanging one soon.
        pub shell_timeout_ms: u64 = 120_000, Whole(1), "ms";
        /// Environment variables that commands do not get, by name or pattern; keys of models are
        /// nothing that a command should print.
        pub shell_hidden_env: Vec<NamePattern> = vec![NamePattern::fixed("*_API_KEY")], List;
        /// True keeps the file tools in the working folder and `roots`, links followed; false,
        /// because `shell` goes everywhere anyway. To confine an agent for good, deny `shell` too,
        /// or use a container.
        pub confine: bool = false, Flag;
        /// Folders beside the working folder that are open to confined file tools, relative to this
        /// file.
        pub roots: Vec<PathBuf> = Vec::new(), List;
    }
}

impl ToolSettings {
    /// The same, with relative folders taken from this one.
    #[must_use]
    pub fn with_paths_from(mut self, folder: &Path) -> ToolSettings {
        for root in &mut self.roots {
            *root = folder.join(&*root);
        }
        self
    }

    /// Whether a tool is offered.
    pub fn allows(&self, name: &str) -> bool {
        let named = |patterns: &[NamePattern]| patterns.iter().any(|pattern| pattern.matches(name));
        !named(&self.deny) && (self.allow.is_empty() || named(&self.allow))
    }
}
