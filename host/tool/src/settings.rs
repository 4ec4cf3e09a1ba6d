//! The table `[tools]`: which tools there are, how long they may take, where they may write.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::name::NamePattern;

/// `[tools]`. Why each default is what it is stands in the catalogue of settings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ToolSettings {
    /// Tools that are offered; empty for all.
    pub allow: Vec<NamePattern>,
    /// Tools that are not. Goes before `allow`.
    pub deny: Vec<NamePattern>,
    /// The most that any call may take, for the runtime to put into the context of a call.
    pub timeout_ms: u64,
    /// A command for which the model asks for no time of its own.
    pub shell_timeout_ms: u64,
    /// Environment variables that commands do not get.
    pub shell_hidden_env: Vec<NamePattern>,
    /// Whether the file tools stay in the working folder and `roots`.
    pub confine: bool,
    /// Folders beside the working folder in which confined file tools may work.
    pub roots: Vec<PathBuf>,
}

impl Default for ToolSettings {
    fn default() -> Self {
        ToolSettings {
            allow: Vec::new(),
            deny: Vec::new(),
            timeout_ms: 600_000,
            shell_timeout_ms: 120_000,
            shell_hidden_env: vec![NamePattern::fixed("*_API_KEY")],
            confine: false,
            roots: Vec::new(),
        }
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
    pub fn admits(&self, name: &str) -> bool {
        let named = |patterns: &[NamePattern]| patterns.iter().any(|pattern| pattern.fits(name));
        !named(&self.deny) && (self.allow.is_empty() || named(&self.allow))
    }
}
