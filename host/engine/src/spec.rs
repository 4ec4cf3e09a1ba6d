//! The specification of an engine: its source, the pins it must match, its isolation and limits.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use ctxhost_engine_api::ContextEngine;
use ctxhost_engine_api::border::EngineFactory;
use serde_json::Value;

use super::error::EngineOpenError;
use super::library::{EngineFile, LoadError, inspect_pinned, short_digest};
use super::quotas::Quotas;
use super::sandbox::settings::SandboxSettings;
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

/// An engine linked into the embedding program. Two are equal if their ids are.
#[derive(Clone, Copy)]
pub struct LinkedEngine {
    id: &'static str,
    pub(super) factory: EngineFactory,
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

/// What pins an engine's file to its bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PinSource {
    /// The caller that opens it.
    #[default]
    Caller,
    /// `ctxhost.lock`.
    Lock {
        /// Whether it names where the bytes come from, so that `ctxhost sync` can install them.
        has_source: bool,
    },
    /// `sha256` in its entry of the config.
    Entry,
    /// A valid signature by a trusted key.
    Signature,
}

impl PinSource {
    /// The error of a pinned file: a missing one that `ctxhost.lock` names can be installed.
    pub fn explain(self, error: LoadError) -> LoadError {
        match (error, self) {
            (LoadError::Unreadable { path, source }, PinSource::Lock { has_source })
                if source.kind() == ErrorKind::NotFound =>
            {
                LoadError::NotInstalled { path, has_source }
            }
            (other, _) => other,
        }
    }

    /// The message for a file with other bytes, with what to do. Digests in hex.
    pub fn mismatch_message(self, id: &str, expected: &str, found: &str) -> String {
        let (pin, remedy) = match self {
            PinSource::Caller => ("the pinned", "restore the pinned file".to_owned()),
            PinSource::Lock { .. } => (
                "ctxhost.lock",
                format!(
                    "`ctxhost sync` restores it if ctxhost.lock names its source, `ctxhost install FILE` from the \
                     file it came from; `ctxhost uninstall {id}` removes it"
                ),
            ),
            PinSource::Entry => (
                "the sha256 of its entry",
                "restore the file, or update that sha256 if you trust these bytes".to_owned(),
            ),
            PinSource::Signature => ("the signed", "restore the signed file".to_owned()),
        };
        let (found, expected) = (short_digest(found), short_digest(expected));
        format!("file hash {found} does not match {pin} {expected}; not loaded; {remedy}")
    }
}

/// What to do about a file that `ctxhost.lock` pins and that is missing.
pub(super) fn missing_remedy(has_source: bool) -> &'static str {
    if has_source {
        "`ctxhost sync` installs what ctxhost.lock names"
    } else {
        "ctxhost.lock names no source for `ctxhost sync`; `ctxhost install FILE` installs it from the file it came from"
    }
}

/// An engine to open.
#[derive(Clone, Debug, PartialEq)]
pub struct EngineSpec {
    /// The id the engine must have; empty to accept the id in the file.
    pub id: String,
    /// The source of the engine.
    pub source: EngineSource,
    /// SHA-256 the file must have, in hex.
    pub sha256: Option<String>,
    /// What pins it; for messages.
    pub pin_source: PinSource,
    /// Why the trust policy refuses the file; `None` where it does not.
    pub untrusted_reason: Option<String>,
    /// The isolation from the host.
    pub isolation: Isolation,
    /// The limits of its sandbox, where it has one.
    pub sandbox: SandboxSettings,
    /// Its quotas on the host.
    pub quotas: Quotas,
    /// The engine's own settings.
    pub config: Value,
}

/// One engine is a chain of one.
impl AsRef<[EngineSpec]> for EngineSpec {
    fn as_ref(&self) -> &[EngineSpec] {
        std::slice::from_ref(self)
    }
}

impl EngineSpec {
    /// A bundled engine with its own settings.
    pub fn bundled(id: &str, config: Value) -> Self {
        let spec = EngineSpec::on_threads(id, EngineSource::Bundled, config);
        EngineSpec { isolation: Isolation::Inline, ..spec }
    }

    /// An engine linked into the embedding program, on threads of its own.
    pub fn linked<E: ContextEngine>(config: Value) -> Self {
        let linked = LinkedEngine { id: E::INFO.id, factory: EngineFactory::linked::<E>() };
        EngineSpec::on_threads(E::INFO.id, EngineSource::Linked(linked), config)
    }

    /// An engine in a file, on threads of its own.
    pub fn file(id: &str, path: &Path, config: Value) -> Self {
        EngineSpec::on_threads(id, EngineSource::File(path.into()), config)
    }

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

    /// Reads the file that would be loaded and checks it against the spec, without running its
    /// code. `None` for a linked engine.
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

    /// The id, or the path where the id is empty.
    fn name(&self, path: &Path) -> String {
        if self.id.is_empty() { path.display().to_string() } else { self.id.clone() }
    }

    /// Reads the file and checks pins, trust and id.
    pub(super) fn check_file(&self, path: &Path) -> Result<EngineFile, EngineOpenError> {
        // Pins are compared before the trust decision: a changed file is reported as changed.
        // Read once: what is checked here is what is loaded later.
        let inspected =
            inspect_pinned(path, self.sha256.as_deref()).map_err(|error| match error {
                LoadError::HashMismatch { expected, found, .. } => {
                    let reason = self.pin_source.mismatch_message(&self.id, &expected, &found);
                    EngineOpenError::HashMismatch { name: self.name(path), reason }
                }
                other => self.pin_source.explain(other).into(),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_file_is_installed_by_sync_only_with_a_source() {
        let missing = |source: PinSource| {
            let error =
                LoadError::Unreadable { path: "/e.so".into(), source: ErrorKind::NotFound.into() };
            source.explain(error).to_string()
        };
        let with_source = missing(PinSource::Lock { has_source: true });
        assert_eq!(
            with_source,
            "/e.so is missing; `ctxhost sync` installs what ctxhost.lock names"
        );
        let without = missing(PinSource::Lock { has_source: false });
        assert!(
            without.contains("names no source") && without.contains("install FILE"),
            "{without}"
        );
        assert!(missing(PinSource::Entry).starts_with("cannot read /e.so: "));
    }
}
