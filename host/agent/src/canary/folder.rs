//! The folder with the canary state and the metrics of a slot, one per config file.
//!
//! ```text
//!  <state>/slots/<digest of the config's path>/
//!    state.json        the active canary, how the last one ended
//!    mask.jsonl        one line per turn that mask served while a canary was active
//!    mask.1.jsonl      older lines
//!    lock              locked during changes
//! ```

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use super::metrics::{MetricTotals, TurnMetrics};
use super::{CanaryError, SlotState};
use crate::file_stamp::FileStamp;
use crate::private_files;
use ctxhost_files::{FileAccess, replace_file};

/// The version of the state format.
const VERSION: u32 = 1;

/// A metrics file is rotated at this size; one older file is kept. Both hold about 5,000 turns.
const MAX_METRICS_BYTES: u64 = 512 * 1024;

/// The folder of one slot.
#[derive(Clone, Debug)]
pub struct CanaryFolder {
    folder: PathBuf,
}

impl CanaryFolder {
    /// The folder for a config file, below the host's state folder.
    pub fn for_config(state: &Path, config: &Path) -> CanaryFolder {
        let path = fs::canonicalize(config).or_else(|_| std::path::absolute(config));
        let path = path.unwrap_or_else(|_| config.to_owned());
        // Of the canonical path: every spelling of a config's path has the same folder.
        let digest = Sha256::digest(path.as_os_str().as_encoded_bytes());
        let name: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        CanaryFolder { folder: state.join("slots").join(name) }
    }

    /// Reads the state; the default if the file does not exist.
    pub fn read(&self) -> Result<SlotState, CanaryError> {
        let path = self.state_path();
        let text = match ctxhost_files::read_text(&path, ctxhost_files::SMALL_FILE_BYTES) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(SlotState { version: VERSION, ..SlotState::default() });
            }
            Err(source) => return Err(read_error(path, source)),
        };
        let broken = |reason: String| CanaryError::Broken { path: path.clone(), reason };
        let state: SlotState =
            serde_json::from_str(&text).map_err(|error| broken(error.to_string()))?;
        // An older host must not overwrite what it does not understand.
        if state.version > VERSION {
            return Err(broken(format!("version {} is from a newer ctxhost", state.version)));
        }
        Ok(state)
    }

    /// Changes the state under a lock across processes. The change is durable when this returns.
    ///
    /// # Errors
    ///
    /// [`CanaryError`], or the error of `change`; the state is unchanged.
    pub fn update<T>(
        &self,
        change: impl FnOnce(&mut SlotState) -> Result<T, CanaryError>,
    ) -> Result<T, CanaryError> {
        let _lock = self.lock()?;
        let mut state = self.read()?;
        let before = state.clone();
        let output = change(&mut state)?;
        // A rewritten file would have all watching hosts reload.
        if state != before {
            state.version = VERSION;
            let path = self.state_path();
            let json = serde_json::to_vec_pretty(&state).map_err(io::Error::from);
            let written =
                json.and_then(|json| Ok(replace_file(&path, &json, FileAccess::Private)?));
            written.map_err(|source| CanaryError::Disk { action: "write", path, source })?;
        }
        Ok(output)
    }

    /// The stamp of the state file.
    pub(crate) fn stamp(&self) -> FileStamp {
        FileStamp::read(&self.state_path())
    }

    /// Appends the metrics of a turn.
    ///
    /// # Errors
    ///
    /// [`CanaryError::Disk`].
    pub fn append_metrics(&self, engine: &str, turn: &TurnMetrics) -> Result<(), CanaryError> {
        let _lock = self.lock()?;
        let path = self.metrics_path(engine, "");
        let failed = |source| CanaryError::Disk { action: "write", path: path.clone(), source };
        // Under the lock: only one process rotates.
        if fs::metadata(&path).is_ok_and(|file| file.len() > MAX_METRICS_BYTES) {
            fs::rename(&path, self.metrics_path(engine, ".1")).map_err(failed)?;
        }
        let mut line = serde_json::to_vec(turn).unwrap_or_default();
        line.push(b'\n');
        private_files::open_append(&path).and_then(|mut file| file.write_all(&line)).map_err(failed)
    }

    /// The totals of an engine during a canary run. Torn lines are ignored.
    pub fn read_metrics(&self, engine: &str, run: &str) -> MetricTotals {
        let texts = [".1", ""].map(|age| {
            ctxhost_files::read_text(
                &self.metrics_path(engine, age),
                ctxhost_files::SESSION_FILE_BYTES,
            )
        });
        let texts: Vec<String> = texts.into_iter().flatten().collect();
        let lines = texts.iter().flat_map(|text| text.lines());
        let turns = lines.filter_map(|line| serde_json::from_str::<TurnMetrics>(line).ok());
        // Lines of earlier runs stay in the files until they are rotated out.
        MetricTotals::from_turns(turns.filter(|turn| turn.run == run))
    }

    fn state_path(&self) -> PathBuf {
        self.folder.join("state.json")
    }

    fn metrics_path(&self, engine: &str, age: &str) -> PathBuf {
        // An engine name in a config may be a path.
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        let name = engine.replace(|c| !is_plain(c), "-");
        self.folder.join(format!("{name}{age}.jsonl"))
    }

    /// Waits for the lock of the folder.
    fn lock(&self) -> Result<File, CanaryError> {
        let path = self.folder.join("lock");
        let locked = || {
            private_files::create_folder(&self.folder)?;
            let file = private_files::open_append(&path)?;
            file.lock()?;
            Ok(file)
        };
        locked().map_err(|source| CanaryError::Disk { action: "lock", path: path.clone(), source })
    }
}

/// The error of a state file that cannot be read, with the owner that it needs.
fn read_error(path: PathBuf, source: io::Error) -> CanaryError {
    match source.kind() {
        io::ErrorKind::PermissionDenied => CanaryError::Forbidden { path },
        _ => CanaryError::Disk { action: "read", path, source },
    }
}

#[cfg(test)]
mod tests {
    use super::super::Canary;
    use super::*;

    fn canary_folder(temp: &tempfile::TempDir) -> CanaryFolder {
        CanaryFolder::for_config(temp.path(), &temp.path().join("ctxhost.toml"))
    }

    #[test]
    fn changes_are_atomic() {
        let temp = tempfile::tempdir().unwrap();
        let folder = canary_folder(&temp);
        assert_eq!(folder.read().unwrap().canary, None);
        let canary = Canary::start("mask", "10%".parse().unwrap(), vec![], 60_000, 1);
        let started = folder.update(|state| {
            state.canary = Some(canary.clone());
            Ok(())
        });
        started.unwrap();
        let refused = folder.update(|state| -> Result<(), CanaryError> {
            state.canary = None;
            Err(CanaryError::NotRunning)
        });
        assert!(refused.is_err());
        assert_eq!(folder.read().unwrap().canary, Some(canary));
    }

    #[test]
    fn each_config_has_its_own_folder() {
        let temp = tempfile::tempdir().unwrap();
        let other = CanaryFolder::for_config(temp.path(), &temp.path().join("other.toml"));
        assert_ne!(canary_folder(&temp).state_path(), other.state_path());
    }

    #[test]
    fn an_invalid_state_is_reported_and_kept() {
        let temp = tempfile::tempdir().unwrap();
        let folder = canary_folder(&temp);
        let written = folder.update(|state| {
            state.previous = Some("legacy".into());
            Ok(())
        });
        written.unwrap();
        for text in ["{", "{\"version\": 99}"] {
            fs::write(folder.state_path(), text).unwrap();
            assert!(matches!(folder.read(), Err(CanaryError::Broken { .. })), "{text}");
            assert!(folder.update(|_| Ok(())).is_err());
            assert_eq!(fs::read_to_string(folder.state_path()).unwrap(), text);
        }
    }

    #[test]
    fn metrics_are_added_up_and_rotated() {
        let temp = tempfile::tempdir().unwrap();
        let folder = canary_folder(&temp);
        let turn = |run: &str| TurnMetrics {
            run: run.into(),
            turns: 1,
            engine_us: vec![1_000_000; 500],
            violations: 1,
            ..TurnMetrics::default()
        };
        folder.append_metrics("mask", &turn("old")).unwrap();
        folder.append_metrics("mask", &turn("new")).unwrap();
        let path = folder.metrics_path("mask", "");
        fs::write(&path, fs::read_to_string(&path).unwrap() + "{\"run\": \"new\", \"ill").unwrap();
        assert_eq!(
            folder.read_metrics("mask", "new").sum.violations,
            1,
            "not those of another run, nor a torn line"
        );
        assert_eq!(folder.read_metrics("unknown", "new").sum.turns, 0);
        for _ in 0..400 {
            folder.append_metrics("mask", &turn("new")).unwrap();
        }
        let size =
            |age: &str| fs::metadata(folder.metrics_path("mask", age)).map_or(0, |file| file.len());
        assert!(size("") + size(".1") < 2 * MAX_METRICS_BYTES + 10_000);
        assert!(folder.read_metrics("mask", "new").sum.turns > 100, "the newest lines are kept");
    }
}
