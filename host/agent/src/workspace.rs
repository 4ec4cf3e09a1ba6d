//! Reads the rules of a workspace from its AGENTS.md, for engines that repeat them in summaries.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use ctxhost_engine::{EngineSpec, LEGACY};

/// The rules file that coding agents share.
const FILE_NAME: &str = "AGENTS.md";

/// Marks the root of a repository: a folder, or a file in a worktree.
const ROOT_MARKER: &str = ".git";

/// The maximum size that is read. `legacy` repeats a few thousand characters, by default 2,000.
const MAX_BYTES: u64 = 64 * 1024;

/// The rules of a workspace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkspaceRules {
    pub path: PathBuf,
    text: String,
}

impl WorkspaceRules {
    /// Finds the nearest rules file of a working folder, up to the root of its repository. Outside a repository only the
    /// folder itself is searched.
    pub fn find(folder: &str) -> Option<WorkspaceRules> {
        let folder = Path::new(folder);
        // A recording may name a folder of another machine.
        if !folder.is_absolute() {
            return None;
        }
        let root = folder.ancestors().find(|above| above.join(ROOT_MARKER).exists());
        let last = root.unwrap_or(folder);
        let within = folder.ancestors().take_while(|above| above.starts_with(last));
        within.map(|above| above.join(FILE_NAME)).find_map(read)
    }

    /// Adds the rules to the settings of `legacy`, unless the config sets other rules; returns whether it did.
    pub fn apply_to(&self, engine: &mut EngineSpec) -> bool {
        // The other engines do not have this setting.
        if engine.id != LEGACY {
            return false;
        }
        if engine.config.is_null() {
            engine.config = json!({});
        }
        let Some(settings) = engine.config.as_object_mut() else { return false };
        let compaction = settings.entry("compaction").or_insert_with(|| json!({}));
        let Some(compaction) = compaction.as_object_mut() else { return false };
        // Also if it is empty: that disables the rules.
        if compaction.contains_key("workspace_rules") {
            return false;
        }
        compaction.insert("workspace_rules".into(), Value::String(self.text.clone()));
        true
    }
}

fn read(path: PathBuf) -> Option<WorkspaceRules> {
    let mut bytes = Vec::new();
    ctxhost_files::open(&path).ok()?.take(MAX_BYTES).read_to_end(&mut bytes).ok()?;
    // Lossy: the size limit may cut a character.
    let text = String::from_utf8_lossy(&bytes).trim().to_owned();
    (!text.is_empty()).then_some(WorkspaceRules { path, text })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn near(folder: &Path) -> Option<PathBuf> {
        WorkspaceRules::find(folder.to_str().unwrap()).map(|rules| rules.path)
    }

    #[test]
    fn the_nearest_rules_within_the_repository_are_found() {
        let outside = tempfile::tempdir().unwrap();
        let root = outside.path().join("repo");
        let deep = root.join("host/src");
        fs::create_dir_all(&deep).unwrap();
        fs::write(outside.path().join(FILE_NAME), "outside").unwrap();
        assert_eq!(near(&deep), None, "no repository, and no rules in the folder");
        fs::create_dir(root.join(ROOT_MARKER)).unwrap();
        assert_eq!(near(&deep), None, "files outside the repository are not read");
        fs::write(root.join(FILE_NAME), "of the root").unwrap();
        assert_eq!(near(&deep), Some(root.join(FILE_NAME)));
        fs::write(deep.join(FILE_NAME), " \n").unwrap();
        assert_eq!(near(&deep), Some(root.join(FILE_NAME)), "a blank file is ignored");
        fs::write(deep.join(FILE_NAME), "of the folder").unwrap();
        assert_eq!(near(&deep), Some(deep.join(FILE_NAME)));
        for nowhere in ["", "host/src", "/nowhere/at/all"] {
            assert_eq!(WorkspaceRules::find(nowhere), None, "{nowhere:?}");
        }
    }

    #[test]
    fn rules_of_the_config_have_priority() {
        let rules = WorkspaceRules { path: PathBuf::new(), text: "no force push".into() };
        let mut bare = EngineSpec::bundled(LEGACY, Value::Null);
        assert!(rules.apply_to(&mut bare));
        assert_eq!(bare.config["compaction"]["workspace_rules"], "no force push");
        for set in ["", "its own"] {
            let config = json!({"compaction": {"workspace_rules": set}});
            let mut spec = EngineSpec::bundled(LEGACY, config.clone());
            assert!(!rules.apply_to(&mut spec));
            assert_eq!(spec.config, config, "an empty text disables them");
        }
        assert!(!rules.apply_to(&mut EngineSpec::bundled("mask", json!({}))));
    }
}
