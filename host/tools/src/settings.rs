//! The settings `[tools]`.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::names::NamePattern;

ctxhost_engine_api::settings! {
    /// `[tools]`.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    pub struct ToolSettings {
        /// Names or patterns (`git__*`) of the tools that the model is offered, those of servers
        /// and engines included; empty offers all.
        pub allow: Vec<NamePattern> = Vec::new(), List;
        /// Names or patterns of tools that it is not offered; overrides `allow`. Deny `shell` to
        /// leave only the file tools.
        pub deny: Vec<NamePattern> = Vec::new(), List;
        /// Timeout of any call, whatever the tool or the model asks for; ten minutes let a long test run
        /// finish.
        pub timeout_ms: u64 = 600_000, Whole(1), "ms";
        /// Timeout of a command if the model sets none; long for most commands, and soon for a
        /// hanging one.
        pub shell_timeout_ms: u64 = 120_000, Whole(1), "ms";
        /// Environment variables hidden from commands, names or patterns; a command has no reason to print
        /// the keys of models. Those that this file names for keys, such as `api_key_env`, are always hidden.
        pub shell_hidden_env: Vec<NamePattern> = vec![NamePattern::fixed("*_API_KEY")], List;
        /// Whether the file tools are confined to the working folder and `roots`, with links
        /// resolved; off, because `shell` can access everything. To confine an agent, deny `shell`
        /// too, or use a container.
        pub confine: bool = false, Flag;
        /// More folders for confined file tools, relative to this file.
        pub roots: Vec<PathBuf> = Vec::new(), List;
    }
}

impl ToolSettings {
    /// Resolves relative folders against this one.
    #[must_use]
    pub fn with_paths_from(mut self, folder: &Path) -> ToolSettings {
        for root in &mut self.roots {
            *root = folder.join(&*root);
        }
        self
    }

    /// Hides more variables from commands.
    #[must_use]
    pub fn hiding_variables<'a>(mut self, names: impl IntoIterator<Item = &'a str>) -> Self {
        self.shell_hidden_env.extend(names.into_iter().map(NamePattern::literal));
        self
    }

    /// Whether a tool is offered.
    pub fn allows(&self, name: &str) -> bool {
        let named = |patterns: &[NamePattern]| patterns.iter().any(|pattern| pattern.matches(name));
        !named(&self.deny) && (self.allow.is_empty() || named(&self.allow))
    }
}
