//! Decides which engine files may be loaded: pins, signatures, and the folder of installed files.
//!
//! Loading an engine runs its code with the rights of the host. What counts is who vouches for the
//! bytes: a pin in `ctxhost.lock` comes from the user who ran `ctxhost install`, a signature from
//! an author whose key the config lists. No file is loaded here, and no file is trusted for its
//! name or place.

#![cfg_attr(
    test,
    allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

mod conformance;
mod folder;
mod lock;
mod package;
mod policy;
mod signature;
mod source;

use serde::{Deserialize, Serialize};

pub use conformance::Conformance;
pub use folder::{FolderError, InstallFolder};
pub use lock::{EngineLock, LOCK_NAME, LockError, LockFile, Pin};
pub use package::{EnginePackage, PackageError};
pub use policy::{PinState, TrustPolicy, TrustSettings, TrustVerdict, unreadable_reason};
pub use signature::{Signature, SignatureError, TrustedKeys};
pub use source::{SourceError, named_path, recorded_source, relative_path, resolve_source};

/// What an engine's file needs to be loaded by its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum TrustLevel {
    /// A pin in `ctxhost.lock`, also for a file that is named by its path.
    Locked,
    /// A pin in `ctxhost.lock` or in its entry.
    Pinned,
    /// Only the path in its entry.
    Any,
}
