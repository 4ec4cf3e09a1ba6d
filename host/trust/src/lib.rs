//! Which files may become engines: pins, signatures, and where an installed file goes.
//!
//! Loading an engine is running its code with the rights of the host, so what counts is *whose word*
//! it is that these bytes are good. A pin in `ctxhost.lock` is the word of whoever ran
//! `ctxhost install`; a signature is the word of an author whose key the config names. Nothing is
//! loaded here, and nothing is trusted because of its name or its place.

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

use serde::{Deserialize, Serialize};

pub use conformance::Conformance;
pub use folder::{FolderError, InstallFolder};
pub use lock::{EngineLock, LOCK_NAME, LockError, LockFile, Pin};
pub use package::{EnginePackage, PackageError};
pub use policy::{PinState, TrustPolicy, TrustSettings, TrustVerdict, unreadable_reason};
pub use signature::{Signature, SignatureError, TrustedKeys};

/// What an engine's file needs to be loaded by its id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum TrustLevel {
    /// Its bytes stand in `ctxhost.lock` or in its entry.
    Pinned,
    /// Nothing more than to be named.
    Any,
}
