//! The log of shadow engines: one line per request.
//!
//! Each line is one write, so several processes may append to the file. At its size limit the file is rotated; one older
//! file is kept.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::private_files;
use ctxhost_config::Config;
use ctxhost_retention::Shares;

/// The name of the file in the state folder.
pub const FILE_NAME: &str = "shadow.jsonl";

/// One request, and the outcome of each engine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ShadowRecord {
    /// When, in milliseconds since 1970.
    pub at_ms: i64,
    /// The absolute path of the host's config; empty without a file.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub config: String,
    pub session: String,
    /// The outcome of the active engine.
    pub active: EngineOutcome,
    /// The outcomes of the shadow engines.
    pub shadows: Vec<EngineOutcome>,
    /// Requests of the session that were skipped while this one waited.
    pub skipped: u64,
}

/// What an engine made of a request, or would have made as a shadow.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct EngineOutcome {
    /// The engine; a chain as `mask+legacy`.
    pub engine: String,
    /// The size of the conversation, in estimated tokens.
    pub tokens: u64,
    pub budget_tokens: u64,
    /// Whether it compacted or would have, at the first of consecutive such requests.
    pub compacts: bool,
    /// What it retained of the live transcript.
    // The keys of earlier versions; the log outlives an update.
    #[serde(alias = "survival")]
    pub retention: Shares,
    /// Rejected plans, and violations of the finished request.
    #[serde(alias = "illegal")]
    pub violations: u64,
    /// Repairs of the plan.
    pub repairs: u64,
    /// The time inside the engine, in microseconds.
    pub took_us: u64,
    /// Why the engine made no plan.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl EngineOutcome {
    pub(super) fn new(engine: String) -> EngineOutcome {
        EngineOutcome { engine, ..EngineOutcome::default() }
    }

    pub(super) fn failed(engine: String, error: String) -> EngineOutcome {
        EngineOutcome { error: Some(error), ..EngineOutcome::new(engine) }
    }

    /// The outcome of a rejected plan.
    pub(super) fn refused(engine: String, error: String) -> EngineOutcome {
        EngineOutcome { violations: 1, ..EngineOutcome::failed(engine, error) }
    }
}

/// The log file.
#[derive(Debug)]
pub struct ShadowLog {
    path: PathBuf,
    limit_bytes: u64,
    config: String,
}

impl ShadowLog {
    /// A log in a file, which is created by the first append.
    pub fn new(path: PathBuf, limit_bytes: u64) -> ShadowLog {
        ShadowLog { path, limit_bytes, config: String::new() }
    }

    /// Sets the config that lines name.
    pub fn for_config(self, config: &Config) -> ShadowLog {
        ShadowLog { config: config_name(config), ..self }
    }

    /// The config that lines name.
    pub(super) fn config(&self) -> &str {
        &self.config
    }

    /// Appends a line.
    ///
    /// # Errors
    ///
    /// [`io::Error`]; a part of the line may be at the end of the file.
    pub fn append(&self, record: &ShadowRecord) -> io::Result<()> {
        if let Some(folder) = self.path.parent() {
            private_files::create_folder(folder)?;
        }
        self.rotate()?;
        let mut bytes = serde_json::to_vec(record)?;
        bytes.push(b'\n');
        private_files::open_append(&self.path)?.write_all(&bytes)
    }

    /// Rotates a full file.
    fn rotate(&self) -> io::Result<()> {
        if size_bytes(&self.path) < self.limit_bytes {
            return Ok(());
        }
        let lock = private_files::open_append(&self.path.with_extension("lock"))?;
        lock.lock()?;
        // Checked again under the lock: another process may have rotated the file.
        if size_bytes(&self.path) >= self.limit_bytes {
            fs::rename(&self.path, rotated_path(&self.path))?;
        }
        lock.unlock()
    }
}

/// How lines name a config: by its absolute path.
pub fn config_name(config: &Config) -> String {
    let name = config.name();
    if name.is_empty() {
        return String::new();
    }
    // A program may have parsed a config from a string; its name is not that of a file.
    let whole = fs::canonicalize(name).or_else(|_| std::path::absolute(name));
    whole.unwrap_or_else(|_| name.into()).display().to_string()
}

/// Reads the lines since a time, oldest first, and counts unreadable lines.
///
/// # Errors
///
/// [`io::Error`], except for missing files.
pub fn read(path: &Path, since_ms: i64) -> io::Result<(Vec<ShadowRecord>, u64)> {
    let mut lines = Vec::new();
    let mut unreadable = 0;
    // The rotated file has the older lines.
    for path in [rotated_path(path), path.to_owned()] {
        let bytes = match ctxhost_files::read(&path, ctxhost_files::SESSION_FILE_BYTES) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        for line in bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            match serde_json::from_slice::<ShadowRecord>(line) {
                Ok(line) if line.at_ms >= since_ms => lines.push(line),
                Ok(_) => {}
                Err(_) => unreadable += 1,
            }
        }
    }
    Ok((lines, unreadable))
}

fn rotated_path(path: &Path) -> PathBuf {
    path.with_extension("older.jsonl")
}

fn size_bytes(path: &Path) -> u64 {
    fs::metadata(path).map_or(0, |found| found.len())
}
