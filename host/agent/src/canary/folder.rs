//! Where the state of a slot and what was measured of its engines are kept: a folder for each config file.
//!
//! ```text
//!  <state>/slots/<digest of the config's path>/
//!    state.json        the canary that is on, how the last one ended
//!    mask.jsonl        a line for each turn that mask served while a canary was on
//!    mask.1.jsonl      the lines before those
//!    lock              held while any of these is changed
//! ```

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use sha2::{Digest as _, Sha256};

use super::metrics::{MetricTotals, TurnMetrics};
use super::{CanaryError, SlotState};
use crate::reload::FileStamp;
use ctxhost_files::{FileAccess, replace_file};

/// The version of the state that this code writes.
const VERSION: u32 = 1;

/// Lines of an engine are begun anew at this size; as many older ones are kept. Some 5,000 turns in all.
const MAX_METRICS_BYTES: u64 = 512 * 1024;

/// The folder of one slot.
#[derive(Clone, Debug)]
pub struct CanaryFolder {
    folder: PathBuf,
}

impl CanaryFolder {
    /// That of the slot of a config file, below the state folder of the host.
    pub fn for_config(state: &Path, config: &Path) -> CanaryFolder {
        let path = fs::canonicalize(config).or_else(|_| std::path::absolute(config));
        let path = path.unwrap_or_else(|_| config.to_owned());
        let digest = Sha256::digest(path.as_os_str().as_encoded_bytes());
        let name: String = digest.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        CanaryFolder { folder: state.join("slots").join(name) }
    }

    /// What is known of the slot; nothing where nobody has written anything.
    ///
    /// # Errors
    ///
    /// [`CanaryError`].
    pub fn read(&self) -> Result<SlotState, CanaryError> {
        let path = self.state_path();
        let text = match ctxhost_files::read_text(&path, ctxhost_files::SMALL_FILE_BYTES) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(SlotState { version: VERSION, ..SlotState::default() });
            }
            Err(source) => return Err(CanaryError::Disk { action: "read", path, source }),
        };
        let broken = |reason: String| CanaryError::Broken { path: path.clone(), reason };
        let state: SlotState =
            serde_json::from_str(&text).map_err(|error| broken(error.to_string()))?;
        if state.version > VERSION {
            return Err(broken(format!(
                "version {} was written by a newer ctxhost",
                state.version
            )));
        }
        Ok(state)
    }

    /// Changes what is known of the slot, alone among all processes; durable when it returns.
    ///
    /// # Errors
    ///
    /// [`CanaryError`], or that of `update`; the state is as it was.
    pub fn update<T>(
        &self,
        change: impl FnOnce(&mut SlotState) -> Result<T, CanaryError>,
    ) -> Result<T, CanaryError> {
        let _alone = self.lock()?;
        let mut state = self.read()?;
        let before = state.clone();
        let answer = change(&mut state)?;
        if state != before {
            state.version = VERSION;
            let path = self.state_path();
            let json = serde_json::to_vec_pretty(&state).map_err(io::Error::from);
            let written =
                json.and_then(|json| Ok(replace_file(&path, &json, FileAccess::Private)?));
            written.map_err(|source| CanaryError::Disk { action: "write", path, source })?;
        }
        Ok(answer)
    }

    /// Changes when the state does.
    pub(crate) fn stamp(&self) -> Option<FileStamp> {
        FileStamp::read(&self.state_path())
    }

    /// Adds what a turn measured of an engine.
    ///
    /// # Errors
    ///
    /// [`CanaryError::Disk`].
    pub fn append_metrics(&self, engine: &str, turn: &TurnMetrics) -> Result<(), CanaryError> {
        let _alone = self.lock()?;
        let path = self.metrics_path(engine, "");
        let failed = |source| CanaryError::Disk { action: "write", path: path.clone(), source };
        if fs::metadata(&path).is_ok_and(|file| file.len() > MAX_METRICS_BYTES) {
            fs::rename(&path, self.metrics_path(engine, ".1")).map_err(failed)?;
        }
        let mut line = serde_json::to_vec(turn).unwrap_or_default();
        line.push(b'\n');
        let file = File::options().append(true).create(true).mode(0o600).open(&path);
        file.and_then(|mut file| file.write_all(&line)).map_err(failed)
    }

    /// What was measured of an engine while a canary was on. A line that a crash cut short counts as not
    /// measured.
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
        MetricTotals::from_turns(turns.filter(|turn| turn.run == run))
    }

    fn state_path(&self) -> PathBuf {
        self.folder.join("state.json")
    }

    fn metrics_path(&self, engine: &str, age: &str) -> PathBuf {
        // What a config calls an engine may be anything.
        let is_plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
        let name = engine.replace(|c| !is_plain(c), "-");
        self.folder.join(format!("{name}{age}.jsonl"))
    }

    /// Waits until no other process changes anything here.
    fn lock(&self) -> Result<File, CanaryError> {
        let path = self.folder.join("lock");
        let locked = || {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
            let mut options = File::options();
            let file = options.create(true).truncate(false).write(true).mode(0o600).open(&path)?;
            file.lock()?;
            Ok(file)
        };
        locked().map_err(|source| CanaryError::Disk { action: "lock", path: path.clone(), source })
    }
}

#[cfg(test)]
mod tests {
    use super::super::Canary;
    use super::*;

    fn home(folder: &tempfile::TempDir) -> CanaryFolder {
        CanaryFolder::for_config(folder.path(), &folder.path().join("ctxhost.toml"))
    }

    #[test]
    fn a_state_is_changed_whole_or_not_at_all() {
        let folder = tempfile::tempdir().unwrap();
        let home = home(&folder);
        assert_eq!(home.read().unwrap().canary, None);
        let canary = Canary::start("mask", "10%".parse().unwrap(), vec![], 60_000, 1);
        let begun = home.update(|state| {
            state.canary = Some(canary.clone());
            Ok(())
        });
        begun.unwrap();
        let refused = home.update(|state| -> Result<(), CanaryError> {
            state.canary = None;
            Err(CanaryError::NotRunning)
        });
        assert!(refused.is_err());
        assert_eq!(home.read().unwrap().canary, Some(canary));
    }

    #[test]
    fn another_config_has_another_slot() {
        let folder = tempfile::tempdir().unwrap();
        let other = CanaryFolder::for_config(folder.path(), &folder.path().join("other.toml"));
        assert_ne!(home(&folder).state_path(), other.state_path());
    }

    #[test]
    fn a_broken_state_is_told_and_stays() {
        let folder = tempfile::tempdir().unwrap();
        let home = home(&folder);
        let written = home.update(|state| {
            state.previous = Some("legacy".into());
            Ok(())
        });
        written.unwrap();
        for text in ["{", "{\"version\": 99}"] {
            fs::write(home.state_path(), text).unwrap();
            assert!(matches!(home.read(), Err(CanaryError::Broken { .. })), "{text}");
            assert!(home.update(|_| Ok(())).is_err());
            assert_eq!(fs::read_to_string(home.state_path()).unwrap(), text);
        }
    }

    #[test]
    fn what_was_measured_is_summed_up_and_never_grows_without_end() {
        let folder = tempfile::tempdir().unwrap();
        let home = home(&folder);
        let turn = |run: &str| TurnMetrics {
            run: run.into(),
            turns: 1,
            engine_us: vec![1_000_000; 500],
            illegal: 1,
            ..TurnMetrics::default()
        };
        home.append_metrics("mask", &turn("old")).unwrap();
        home.append_metrics("mask", &turn("new")).unwrap();
        let path = home.metrics_path("mask", "");
        fs::write(&path, fs::read_to_string(&path).unwrap() + "{\"run\": \"new\", \"ill").unwrap();
        assert_eq!(home.read_metrics("mask", "new").illegal, 1, "of another run, and a torn line");
        assert_eq!(home.read_metrics("nobody", "new").turns, 0);
        for _ in 0..400 {
            home.append_metrics("mask", &turn("new")).unwrap();
        }
        let size =
            |age: &str| fs::metadata(home.metrics_path("mask", age)).map_or(0, |it| it.len());
        assert!(size("") + size(".1") < 2 * MAX_METRICS_BYTES + 10_000);
        assert!(home.read_metrics("mask", "new").turns > 100, "the newest ones are kept");
    }
}
