//! `ctxhost.load`: which bytes of which engine were found good, beside the config that uses them.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use ctxhost_files::{FileAccess, replace_file};
use serde::{Deserialize, Serialize};

/// The name of the file.
pub const LOCK_NAME: &str = "ctxhost.lock";

/// The newest form of the file that is understood.
const VERSION: u32 = 1;

/// What the file opens with.
const HEAD: &str = "# Which bytes of which engine may be loaded. Written by `ctxhost install` and \
                    `ctxhost uninstall`;\n# keep it with ctxhost.toml.\n\n";

/// Why there are no pins to go by.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// It cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// It is damaged.
    #[error("{} is damaged: {reason}; put it back, or remove it and install the engines again", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// It is of a newer ctxhost.
    #[error("{} was written by a newer ctxhost (version {version} of the file)", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        version: u32,
    },
    /// It cannot be replaced.
    #[error("cannot write {}: {source}", path.display())]
    Unwritable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// One engine whose bytes were found good.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pin {
    /// The engine.
    pub id: String,
    /// Its version.
    pub version: String,
    /// Where its file was put.
    pub file: PathBuf,
    /// SHA-256 of the file, in hex.
    pub sha256: String,
    /// The size of the file, in bytes.
    pub size: u64,
    /// The id of the key that signed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signer: Option<String>,
    /// When, in ISO 8601.
    pub installed_at: String,
    /// What `ctxhost check` had found.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub conformance: Option<String>,
}

/// All pins of one config.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineLock {
    #[serde(default)]
    version: u32,
    #[serde(default, rename = "engine", skip_serializing_if = "Vec::is_empty")]
    pins: Vec<Pin>,
}

impl EngineLock {
    /// The pin of an engine.
    pub fn pin(&self, id: &str) -> Option<&Pin> {
        self.pins.iter().find(|pin| pin.id == id)
    }

    /// All of them, by id.
    pub fn pins(&self) -> impl Iterator<Item = &Pin> {
        self.pins.iter()
    }

    /// Pins an engine, and answers the pin it had.
    pub fn put(&mut self, pin: Pin) -> Option<Pin> {
        let old = self.remove(&pin.id);
        self.pins.push(pin);
        self.pins.sort_by(|a, b| a.id.cmp(&b.id));
        old
    }

    /// Takes the pin of an engine away.
    pub fn remove(&mut self, id: &str) -> Option<Pin> {
        let at = self.pins.iter().position(|pin| pin.id == id)?;
        Some(self.pins.remove(at))
    }
}

/// The lock beside a config, held against everybody else who wants to change it.
#[derive(Debug)]
pub struct LockFile {
    path: PathBuf,
    /// The folder, locked: the file itself is replaced.
    _folder: File,
}

impl LockFile {
    /// Where the lock of a config stands.
    pub fn path_for(config: &Path) -> PathBuf {
        config.with_file_name(LOCK_NAME)
    }

    /// Reads the lock of a config; `None` where there is none.
    ///
    /// # Errors
    ///
    /// [`LockError`]: a lock that cannot be read is not the same as none.
    pub fn read(config: &Path) -> Result<Option<EngineLock>, LockError> {
        read(&LockFile::path_for(config))
    }

    /// Holds the lock of a config until it is dropped. Waits for others.
    ///
    /// # Errors
    ///
    /// [`LockError::Unwritable`].
    pub fn acquire(config: &Path) -> Result<LockFile, LockError> {
        let path = LockFile::path_for(config);
        let held = File::open(folder_of(&path)).and_then(|folder| {
            folder.lock()?;
            Ok(folder)
        });
        match held {
            Ok(folder) => Ok(LockFile { path, _folder: folder }),
            Err(source) => Err(LockError::Unwritable { path, source }),
        }
    }

    /// What it holds; `None` where it is not there.
    ///
    /// # Errors
    ///
    /// [`LockError`].
    pub fn load(&self) -> Result<Option<EngineLock>, LockError> {
        read(&self.path)
    }

    /// Replaces what it holds, as a whole.
    ///
    /// # Errors
    ///
    /// [`LockError::Unwritable`]; the file is as it was.
    pub fn write(&self, lock: &EngineLock) -> Result<(), LockError> {
        let unwritable = |source| LockError::Unwritable { path: self.path.clone(), source };
        let lock = EngineLock { version: VERSION, ..lock.clone() };
        let text = toml::to_string_pretty(&lock).map_err(io::Error::other).map_err(unwritable)?;
        // It holds no secret, and those who may read the config should see what it pins.
        replace_file(&self.path, (HEAD.to_owned() + &text).as_bytes(), FileAccess::Mode(0o644))
            .map_err(|error| unwritable(error.source))
    }

    /// Takes what was written back. One that was not there goes: an empty lock is not the same as none.
    ///
    /// # Errors
    ///
    /// [`LockError::Unwritable`].
    pub fn restore(&self, before: Option<&EngineLock>) -> Result<(), LockError> {
        let Some(before) = before else {
            return match fs::remove_file(&self.path) {
                Err(source) if source.kind() != io::ErrorKind::NotFound => {
                    Err(LockError::Unwritable { path: self.path.clone(), source })
                }
                _ => Ok(()),
            };
        };
        self.write(before)
    }

    /// Where it stands.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

fn read(path: &Path) -> Result<Option<EngineLock>, LockError> {
    let damaged = |reason: String| LockError::Damaged { path: path.into(), reason };
    let text = match ctxhost_files::read(path, ctxhost_files::SMALL_FILE_BYTES) {
        Ok(text) => String::from_utf8(text).map_err(|_| damaged("it is no text".into()))?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(LockError::Unreadable { path: path.into(), source }),
    };
    let lock: EngineLock =
        toml::from_str(&text).map_err(|error| damaged(error.message().into()))?;
    if lock.version > VERSION {
        return Err(LockError::Newer { path: path.into(), version: lock.version });
    }
    Ok(Some(lock))
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests;
