//! The config file and canary state that a running host watches.

use std::path::{Path, PathBuf};

use parking_lot::Mutex;

use crate::canary::CanaryFolder;
use crate::file_stamp::FileStamp;

/// A watched config file and the canary of its slot.
#[derive(Debug)]
pub(crate) struct ConfigWatch {
    path: PathBuf,
    pub(super) canary_folder: CanaryFolder,
    applied: Mutex<WatchedStamps>,
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
        ConfigWatch { path, canary_folder, applied: Mutex::default() }
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
