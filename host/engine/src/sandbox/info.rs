//! A sandbox: its restrictions, and what is known of a running one.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The state of an engine's sandbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SandboxInfo {
    /// The process id; `None` after the process died and before the next call.
    pub pid: Option<u32>,
    /// The number of restarts.
    pub respawns: u64,
    /// The restrictions in force.
    pub confinement: Confinement,
}

/// The restrictions of a sandbox, and those that this machine's kernel lacks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confinement {
    /// In force.
    pub applied: Vec<String>,
    /// Not in force, each with the reason.
    pub missing: Vec<String>,
}

/// The resources of a confined process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ConfinementLimits {
    /// The address space.
    pub memory_bytes: u64,
    /// The number of open descriptors.
    pub open_files: u64,
    /// Readable paths beside the system's libraries.
    pub readable: Vec<PathBuf>,
    /// Where it may write; nowhere in the sandbox of an installed engine.
    pub writable: Option<WritableFolder>,
}

/// A folder below which a confined process may create, change and remove files.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WritableFolder {
    /// The folder.
    pub folder: PathBuf,
    /// The largest size of a file that the process writes, there or through a descriptor.
    pub file_bytes: u64,
}
