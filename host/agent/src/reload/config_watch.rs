//! The config file and canary state that a running host watches.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use serde_json::Value;

use crate::canary::CanaryFolder;
use crate::file_stamp::FileStamp;
use ctxhost_config::Config;

/// The tables of which a reload applies what concerns the engine of the slot.
const APPLIED: [&str; 2] = ["plugins", "timeouts"];

/// A watched config file and the canary of its slot.
#[derive(Debug)]
pub(crate) struct ConfigWatch {
    path: PathBuf,
    pub(super) canary_folder: CanaryFolder,
    applied: Mutex<WatchedStamps>,
    /// The config with which the host started, as JSON.
    started_with: Value,
    /// The tables that were reported to need a restart.
    waiting: Mutex<Vec<String>>,
    /// Whether the last config was rejected.
    is_rejected: AtomicBool,
}

fn tables(config: &Config) -> Value {
    serde_json::to_value(config).unwrap_or_default()
}

/// The stamps of the watched files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct WatchedStamps {
    config: FileStamp,
    canary: FileStamp,
}

/// Which watched files have changed.
pub(super) struct WatchedChanges {
    pub(super) config: bool,
    pub(super) canary: bool,
}

impl ConfigWatch {
    /// Watches a config file and the canary state below the host's state folder.
    pub(crate) fn new(config: &Path, state: &Path) -> ConfigWatch {
        // Absolute, because the process may change its working directory.
        let path = std::path::absolute(config).unwrap_or_else(|_| config.to_owned());
        let canary_folder = CanaryFolder::for_config(state, &path);
        // A host without a file has the defaults.
        let started_with = tables(&Config::load(&path).unwrap_or_default());
        ConfigWatch {
            path,
            canary_folder,
            applied: Mutex::default(),
            started_with,
            waiting: Mutex::default(),
            is_rejected: AtomicBool::new(false),
        }
    }

    /// Notes whether the config was rejected; returns whether the one before it was.
    pub(super) fn note_rejection(&self, is_rejected: bool) -> bool {
        self.is_rejected.swap(is_rejected, Ordering::Relaxed)
    }

    /// The tables of a new config that differ from those of the start and that a reload does not apply. `None` if they
    /// are those of the last call.
    pub(super) fn take_restart_tables(&self, config: &Config) -> Option<Vec<String>> {
        let new = tables(config);
        let changed = new.as_object().into_iter().flatten().filter(|(name, value)| {
            !APPLIED.contains(&name.as_str()) && self.started_with.get(name.as_str()) != Some(value)
        });
        let changed: Vec<String> = changed.map(|(name, _)| format!("[{name}]")).collect();
        let mut waiting = self.waiting.lock();
        let before = std::mem::replace(&mut *waiting, changed.clone());
        (before != changed).then_some(changed)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn current_stamps(&self) -> WatchedStamps {
        WatchedStamps { config: FileStamp::read(&self.path), canary: self.canary_folder.stamp() }
    }

    /// Whether these stamps differ from those applied last.
    pub(super) fn has_changed(&self, stamps: WatchedStamps) -> bool {
        stamps != *self.applied.lock()
    }

    /// Marks the current files as applied; returns which of them have changed.
    pub(super) fn take_changes(&self) -> WatchedChanges {
        // Marked before the files are read: a change during the reload is found at the next look.
        let current = self.current_stamps();
        let applied = std::mem::replace(&mut *self.applied.lock(), current);
        WatchedChanges {
            config: current.config != applied.config,
            canary: current.canary != applied.canary,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_that_a_reload_does_not_apply_are_named_once() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ctxhost.toml");
        let began = "[gateway]\ndrain_ms = 1000\n";
        std::fs::write(&path, began).unwrap();
        let watch = ConfigWatch::new(&path, folder.path());
        let named = |text: &str| {
            let config = Config::parse(&path.display().to_string(), text).unwrap();
            watch.take_restart_tables(&config)
        };
        assert_eq!(named(began), None);
        assert_eq!(named(&format!("{began}[plugins.slots]\ncontext_engine = \"mask\"\n")), None);
        let changed = "[gateway]\ndrain_ms = 2000\n[budget]\nsafety_margin = 2\n";
        assert_eq!(named(changed).unwrap(), ["[budget]", "[gateway]"]);
        assert_eq!(named(changed), None);
        assert_eq!(named(began).unwrap(), Vec::<String>::new());
    }
}
