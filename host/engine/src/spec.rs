//! What engine to open: where it comes from, what is demanded of it, how far it is kept from the host.

use std::path::{Path, PathBuf};

use ctxhost_engine_api::ContextEngine;
use ctxhost_engine_api::border::EngineFactory;
use serde_json::Value;

use super::library::{EngineFile, LoadError, inspect_pinned, short_digest};
use super::load::EngineOpenError;
use super::quotas::Quotas;
use super::sandbox::SandboxSettings;
use super::threads::Isolation;

/// Where an engine comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EngineSource {
    /// Linked into the host.
    Bundled,
    /// Linked into the program that embeds the host.
    Linked(LinkedEngine),
    /// Loaded from a file.
    File(PathBuf),
}

impl std::fmt::Display for EngineSource {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            EngineSource::Bundled => f.write_str("bundled"),
            EngineSource::Linked(_) => f.write_str("linked"),
            EngineSource::File(path) => write!(f, "{}", path.display()),
        }
    }
}

/// An engine that a program brings along. Two are the same where their ids are.
#[derive(Clone, Copy)]
pub struct LinkedEngine {
    id: &'static str,
    pub(super) door: EngineFactory,
}

impl PartialEq for LinkedEngine {
    fn eq(&self, other: &Self) -> bool {
        self.id == other.id
    }
}

impl Eq for LinkedEngine {}

impl std::fmt::Debug for LinkedEngine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LinkedEngine").field("id", &self.id).finish_non_exhaustive()
    }
}

/// Whose word it is that an engine's file has these bytes, and no others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PinSource {
    /// Whoever opens it.
    #[default]
    Caller,
    /// `ctxhost.lock`.
    Lock,
    /// `sha256` in its entry of the config.
    Entry,
    /// A signature that was found good.
    Signature,
}

impl PinSource {
    /// What is told of a file that has other bytes, and the way out. Digests in hex.
    pub fn mismatch_message(self, id: &str, expected: &str, found: &str) -> String {
        let (by, way_out) = match self {
            PinSource::Caller => ("the pinned", "put the pinned file back".to_owned()),
            PinSource::Lock => (
                "ctxhost.lock",
                format!(
                    "`ctxhost install FILE` with the file it came from puts it right, \
                     `ctxhost uninstall {id}` takes it away"
                ),
            ),
            PinSource::Entry => (
                "the sha256 of its entry",
                "put the file back, or mend that sha256 if these bytes are good".to_owned(),
            ),
            PinSource::Signature => ("the signed", "put the signed file back".to_owned()),
        };
        let (found, expected) = (short_digest(found), short_digest(expected));
        format!("file hash {found} does not match {by} {expected}; not loaded; {way_out}")
    }
}

/// What to open.
#[derive(Clone, Debug, PartialEq)]
pub struct EngineSpec {
    /// The id it must have; empty to take whatever the file says.
    pub id: String,
    /// Where it comes from.
    pub source: EngineSource,
    /// SHA-256 the file must have, in hex.
    pub sha256: Option<String>,
    /// Whose word that is; for messages.
    pub pin_source: PinSource,
    /// Why the file must not be loaded, whatever it holds; `None` where nothing speaks against it.
    pub untrusted_reason: Option<String>,
    /// How far it is kept from the host.
    pub isolation: Isolation,
    /// The limits of its process, where it has one.
    pub sandbox: SandboxSettings,
    /// What it may make grow on the host.
    pub quotas: Quotas,
    /// Its own settings.
    pub config: Value,
}

/// One engine is a stack of one.
impl AsRef<[EngineSpec]> for EngineSpec {
    fn as_ref(&self) -> &[EngineSpec] {
        std::slice::from_ref(self)
    }
}

impl EngineSpec {
    /// A bundled engine with its own settings.
    pub fn bundled(id: &str, config: Value) -> Self {
        EngineSpec {
            id: id.into(),
            source: EngineSource::Bundled,
            sha256: None,
            pin_source: PinSource::Caller,
            untrusted_reason: None,
            isolation: Isolation::Inline,
            sandbox: SandboxSettings::default(),
            quotas: Quotas::default(),
            config,
        }
    }

    /// An engine that the embedding program brings along, on a lane of its own.
    pub fn linked<E: ContextEngine>(config: Value) -> Self {
        let linked = LinkedEngine { id: E::INFO.id, door: EngineFactory::linked::<E>() };
        EngineSpec::on_threads(E::INFO.id, EngineSource::Linked(linked), config)
    }

    /// An engine in a file, on a lane of its own.
    pub fn file(id: &str, path: &Path, config: Value) -> Self {
        EngineSpec::on_threads(id, EngineSource::File(path.into()), config)
    }

    /// One that its caller vouches for.
    fn on_threads(id: &str, source: EngineSource, config: Value) -> Self {
        EngineSpec {
            id: id.into(),
            source,
            sha256: None,
            pin_source: PinSource::Caller,
            untrusted_reason: None,
            isolation: Isolation::Thread,
            sandbox: SandboxSettings::default(),
            quotas: Quotas::default(),
            config,
        }
    }

    /// Reads the file that would be loaded and holds it against what is demanded of it; nothing of it
    /// is run. `None` for an engine that is linked in.
    ///
    /// # Errors
    ///
    /// [`EngineOpenError`], as opening it would answer.
    pub fn read_file(&self) -> Result<Option<EngineFile>, EngineOpenError> {
        match &self.source {
            EngineSource::Bundled | EngineSource::Linked(_) => Ok(None),
            EngineSource::File(path) => self.check_file(path).map(Some),
        }
    }

    /// Its id, or the file of one that was named by its path.
    fn name(&self, path: &Path) -> String {
        if self.id.is_empty() { path.display().to_string() } else { self.id.clone() }
    }

    /// The file of an engine that may be loaded, and that is the one it should be.
    pub(super) fn check_file(&self, path: &Path) -> Result<EngineFile, EngineOpenError> {
        // What cannot be read says so itself; whatever can be is held against what is known of it.
        let inspected =
            inspect_pinned(path, self.sha256.as_deref()).map_err(|error| match error {
                LoadError::HashMismatch { expected, found, .. } => {
                    let what = self.pin_source.mismatch_message(&self.id, &expected, &found);
                    EngineOpenError::HashMismatch { name: self.name(path), what }
                }
                other => other.into(),
            })?;
        if let Some(reason) = &self.untrusted_reason {
            let reason = reason.clone();
            return Err(EngineOpenError::Untrusted { name: self.name(path), reason });
        }
        if self.id.is_empty() || self.id == inspected.meta.id {
            return Ok(inspected);
        }
        Err(EngineOpenError::OtherId {
            path: inspected.path,
            configured: self.id.clone(),
            found: inspected.meta.id,
        })
    }
}
