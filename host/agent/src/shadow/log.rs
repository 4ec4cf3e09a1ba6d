//! The ledger: a line for every request that was shown to engines in the shadow.
//!
//! A line is appended by one write, so that several processes may write to one file. When it has grown
//! to its limit it becomes the older one and a new file begins; the one that was older goes.

use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use ctxhost_config::Config;
use ctxhost_retention::Shares;

/// The name of the file in the state folder.
pub const FILE_NAME: &str = "shadow.jsonl";

/// One request, and what each engine made of it or would have made.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ShadowRecord {
    /// When, in milliseconds since 1970.
    pub at_ms: i64,
    /// The config of the host that shaped it, by its whole path; empty for one without a file.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub config: String,
    /// The session.
    pub session: String,
    /// What the engine of the slot made of it.
    pub active: EngineOutcome,
    /// What the others would have made of it.
    pub shadows: Vec<EngineOutcome>,
    /// Requests of the session that nobody in the shadow looked at, because this one waited.
    pub skipped: u64,
}

/// What an engine made of a request, or would have made.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct EngineOutcome {
    /// The engine; several in a row as one word.
    pub engine: String,
    /// What the conversation in it costs, in tokens without margin.
    pub tokens: u64,
    /// What it may cost.
    pub budget_tokens: u64,
    /// Whether it compacted, or would have: at the first of several such requests in a row.
    pub compacts: bool,
    /// How much of what the live transcript says is still said.
    pub survival: Shares,
    /// Plans that the law refused, and laws that the finished request breaks.
    pub illegal: u64,
    /// Plans that the law mended.
    pub repairs: u64,
    /// Time inside the engine, in microseconds.
    pub took_us: u64,
    /// Why it made nothing of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl EngineOutcome {
    /// Nothing yet.
    pub(super) fn new(engine: String) -> EngineOutcome {
        EngineOutcome { engine, ..EngineOutcome::default() }
    }

    pub(super) fn failed(engine: String, error: String) -> EngineOutcome {
        EngineOutcome { error: Some(error), ..EngineOutcome::new(engine) }
    }

    /// The law refused its plan.
    pub(super) fn refused(engine: String, error: String) -> EngineOutcome {
        EngineOutcome { illegal: 1, ..EngineOutcome::failed(engine, error) }
    }
}

/// The file that lines are appended to.
#[derive(Debug)]
pub struct ShadowLog {
    path: PathBuf,
    limit_bytes: u64,
    config: String,
}

impl ShadowLog {
    /// The ledger in a file, which need not be there yet.
    pub fn new(path: PathBuf, limit_bytes: u64) -> ShadowLog {
        ShadowLog { path, limit_bytes, config: String::new() }
    }

    /// The same ledger, for hosts with this config.
    pub fn for_config(self, config: &Config) -> ShadowLog {
        ShadowLog { config: config_name(config), ..self }
    }

    /// The config whose hosts write here, as lines name it.
    pub(super) fn config(&self) -> &str {
        &self.config
    }

    /// Appends a line.
    ///
    /// # Errors
    ///
    /// Whatever the disk answers; the file holds whole lines as before then, or a part of this one at
    /// its end.
    pub fn append(&self, line: &ShadowRecord) -> io::Result<()> {
        if let Some(folder) = self.path.parent() {
            DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        }
        self.rotate()?;
        let mut bytes = serde_json::to_vec(line)?;
        bytes.push(b'\n');
        let file = OpenOptions::new().append(true).create(true).mode(0o600).open(&self.path);
        file?.write_all(&bytes)
    }

    /// Puts a full file aside. Two processes that find it full do so once.
    fn rotate(&self) -> io::Result<()> {
        if size_bytes(&self.path) < self.limit_bytes {
            return Ok(());
        }
        let lock = self.path.with_extension("lock");
        let lock = OpenOptions::new().append(true).create(true).mode(0o600).open(lock)?;
        lock.lock()?;
        if size_bytes(&self.path) >= self.limit_bytes {
            fs::rename(&self.path, rotated_path(&self.path))?;
        }
        lock.unlock()
    }
}

/// How lines name a config: by its whole path, since others of its name stand elsewhere.
pub fn config_name(config: &Config) -> String {
    let name = config.name();
    if name.is_empty() {
        return String::new();
    }
    // A program may have parsed a text under a name that no file has.
    let whole = fs::canonicalize(name).or_else(|_| std::path::absolute(name));
    whole.unwrap_or_else(|_| name.into()).display().to_string()
}

/// The lines from a time on, oldest first, and how many lines could not be read.
///
/// # Errors
///
/// Whatever the disk answers, but for files that are not there: those hold nothing.
pub fn read(path: &Path, since_ms: i64) -> io::Result<(Vec<ShadowRecord>, u64)> {
    let mut lines = Vec::new();
    let mut unreadable = 0;
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
