//! `ctxhost.lock`: the pinned bytes of engines, beside the config that uses them.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use ctxhost_engine_api::border::is_engine_id;
use ctxhost_files::{FileAccess, replace_file};
use serde::{Deserialize, Serialize};

/// The file name.
pub const LOCK_NAME: &str = "ctxhost.lock";

/// The newest version of the format that is understood.
const VERSION: u32 = 1;

/// The comment at the start of the file.
const HEAD: &str = "# Which bytes of which engine may be loaded. Written by `ctxhost install` and \
                    `ctxhost uninstall`;\n# keep it with ctxhost.toml: `ctxhost sync` installs in \
                    another checkout what it names.\n\n";

/// The digits of a SHA-256 in hex.
const SHA256_DIGITS: usize = 64;

/// Why the lock file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// It cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The system's error.
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
    /// It was written by a newer ctxhost.
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
        /// The system's error.
        source: io::Error,
    },
}

/// The pin of one engine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pin {
    /// The engine.
    pub id: String,
    /// Its version.
    pub version: String,
    /// The path of its installed file, relative to the lock file, with `/`. Only informs: the entry
    /// in the config names the file to load, and `sync` computes its own path.
    pub file: String,
    /// Where `sync` finds its bytes: a path relative to the lock file, or a `file://` URL. `None` if
    /// it was installed from elsewhere.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// SHA-256 of the file, in hex.
    pub sha256: String,
    /// The size of the file, in bytes.
    pub size: u64,
    /// The id of the key that signed it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signer: Option<String>,
    /// The time of the installation, in ISO 8601.
    pub installed_at: String,
    /// The verdict of `ctxhost check`.
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

    /// Sets the path of the installed file of every pin: earlier versions wrote absolute paths.
    pub fn set_files(&mut self, path_of: impl Fn(&Pin) -> String) {
        for pin in &mut self.pins {
            pin.file = path_of(pin);
        }
    }

    /// All pins, by id.
    pub fn pins(&self) -> impl Iterator<Item = &Pin> {
        self.pins.iter()
    }

    /// Pins an engine and returns its previous pin.
    pub fn put(&mut self, pin: Pin) -> Option<Pin> {
        let old = self.remove(&pin.id);
        self.pins.push(pin);
        self.pins.sort_by(|a, b| a.id.cmp(&b.id));
        old
    }

    /// Ids and digests become parts of paths, and a lock file may come from a stranger.
    fn defect(&self) -> Option<String> {
        let is_digest = |text: &str| {
            text.len() == SHA256_DIGITS && text.bytes().all(|byte| byte.is_ascii_hexdigit())
        };
        self.pins.iter().enumerate().find_map(|(at, pin)| {
            let Pin { id, sha256, .. } = pin;
            if !is_engine_id(id) {
                return Some(format!("{id:?} is not an engine id"));
            }
            if !is_digest(sha256) {
                return Some(format!("sha256 of {id} is not {SHA256_DIGITS} hexadecimal digits"));
            }
            let is_repeated = self.pins.iter().skip(at + 1).any(|later| later.id == *id);
            is_repeated.then(|| format!("it pins {id} twice"))
        })
    }

    /// Removes the pin of an engine.
    pub fn remove(&mut self, id: &str) -> Option<Pin> {
        let at = self.pins.iter().position(|pin| pin.id == id)?;
        Some(self.pins.remove(at))
    }
}

/// The lock file beside a config, locked against concurrent changes.
#[derive(Debug)]
pub struct LockFile {
    path: PathBuf,
    /// Its folder, which carries the lock, since the file itself is replaced.
    _folder: File,
}

impl LockFile {
    /// The path of the lock file of a config.
    pub fn path_for(config: &Path) -> PathBuf {
        config.with_file_name(LOCK_NAME)
    }

    /// Reads the lock file of a config; `None` where it does not exist.
    ///
    /// # Errors
    ///
    /// [`LockError`]: an unreadable lock file is different from none.
    pub fn read(config: &Path) -> Result<Option<EngineLock>, LockError> {
        read(&LockFile::path_for(config))
    }

    /// Locks the file of a config until the value is dropped. Waits for other holders.
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

    /// The contents; `None` where the file does not exist.
    ///
    /// # Errors
    ///
    /// [`LockError`].
    pub fn load(&self) -> Result<Option<EngineLock>, LockError> {
        read(&self.path)
    }

    /// Replaces the contents.
    ///
    /// # Errors
    ///
    /// [`LockError::Unwritable`]; the file is unchanged.
    pub fn write(&self, lock: &EngineLock) -> Result<(), LockError> {
        let unwritable = |source| LockError::Unwritable { path: self.path.clone(), source };
        let lock = EngineLock { version: VERSION, ..lock.clone() };
        let text = toml::to_string_pretty(&lock).map_err(io::Error::other).map_err(unwritable)?;
        // Readable for all: it contains no secrets, and a reader of the config should see its
        // pins.
        replace_file(&self.path, (HEAD.to_owned() + &text).as_bytes(), FileAccess::Mode(0o644))
            .map_err(|error| unwritable(error.source))
    }

    /// Restores earlier contents. `None` removes the file: an empty lock file is different from
    /// none.
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

    /// The path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

fn read(path: &Path) -> Result<Option<EngineLock>, LockError> {
    let damaged = |reason: String| LockError::Damaged { path: path.into(), reason };
    let text = match ctxhost_files::read(path, ctxhost_files::SMALL_FILE_BYTES) {
        Ok(text) => String::from_utf8(text).map_err(|_| damaged("it is not text".into()))?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(LockError::Unreadable { path: path.into(), source }),
    };
    let lock: EngineLock =
        toml::from_str(&text).map_err(|error| damaged(error.message().into()))?;
    if lock.version > VERSION {
        return Err(LockError::Newer { path: path.into(), version: lock.version });
    }
    match lock.defect() {
        Some(reason) => Err(damaged(reason)),
        None => Ok(Some(lock)),
    }
}

fn folder_of(path: &Path) -> &Path {
    path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests;
