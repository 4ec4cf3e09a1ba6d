//! The trust policy of a config, and its verdict on engine files.

use std::path::Path;

use super::lock::{EngineLock, LOCK_NAME, LockError, LockFile};
use super::signature::{Signature, TrustedKeys};
use super::{Conformance, TrustLevel};
use ctxhost_engine::{EngineFile, LoadError, PinSource, inspect_pinned, short_digest};

/// The trust settings of a config.
#[derive(Clone, Debug, Default)]
pub struct TrustSettings {
    /// `plugins.trust`; `None` for pinned where a lock file exists, any where it does not.
    pub trust: Option<TrustLevel>,
    /// `plugins.trusted_keys`.
    pub trusted_keys: Vec<String>,
    /// `plugins.require_signature`.
    pub require_signature: bool,
}

/// The trust settings with the pins and keys.
#[derive(Debug)]
pub struct TrustPolicy {
    trust: TrustLevel,
    /// The pins, or why they cannot be read.
    lock: Result<EngineLock, String>,
    keys: Result<TrustedKeys, String>,
    require_signature: bool,
}

/// How the bytes of a file relate to the pinned ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PinState {
    /// A linked engine, without a file.
    Bundled,
    /// The bytes match `ctxhost.lock`.
    Pinned,
    /// The bytes match its entry in the config.
    PinnedInConfig,
    /// No pin exists.
    Unpinned,
    /// The bytes do not match the pin.
    Changed {
        /// The pinned digest, in hex.
        expected: String,
        /// The digest of the file, in hex.
        found: String,
    },
    /// The file does not exist.
    Missing,
}

impl PinState {
    /// The state as text.
    pub fn label(&self) -> &'static str {
        match self {
            PinState::Bundled => "bundled",
            PinState::Pinned => "pinned",
            PinState::PinnedInConfig => "pinned in config",
            PinState::Unpinned => "unpinned",
            PinState::Changed { .. } => "changed!",
            PinState::Missing => "missing",
        }
    }
}

/// The trust verdict on an engine's file.
#[derive(Clone, Debug)]
pub struct TrustVerdict {
    /// The relation to the pins.
    pub state: PinState,
    /// The SHA-256 that it must have when it is loaded, in hex; `None` for any.
    pub sha256: Option<String>,
    /// The source of that pin.
    pub pin_source: PinSource,
    /// The id of the trusted key that signed it.
    pub signer: Option<String>,
    /// The verdict of `ctxhost check`.
    pub conformance: Option<String>,
    /// Why it must not be loaded, apart from a hash mismatch.
    pub refusal: Option<String>,
}

impl TrustVerdict {
    /// The verdict on a linked engine.
    pub fn bundled() -> TrustVerdict {
        TrustVerdict::new(PinState::Bundled)
    }

    fn new(state: PinState) -> TrustVerdict {
        TrustVerdict {
            state,
            sha256: None,
            pin_source: PinSource::default(),
            signer: None,
            conformance: None,
            refusal: None,
        }
    }
}

impl TrustPolicy {
    /// The policy of a config file with the lock file beside it. A config without a path has no
    /// lock file.
    pub fn load(config: &Path, settings: &TrustSettings) -> TrustPolicy {
        let lock = if config.as_os_str().is_empty() { Ok(None) } else { LockFile::read(config) };
        let implied = match &lock {
            Ok(None) => TrustLevel::Any,
            // A lock file means that this config pins its engines, readable or not.
            Ok(Some(_)) | Err(_) => TrustLevel::Pinned,
        };
        TrustPolicy {
            trust: settings.trust.unwrap_or(implied),
            lock: lock.map(Option::unwrap_or_default).map_err(|error: LockError| error.to_string()),
            keys: TrustedKeys::parse(&settings.trusted_keys).map_err(|error| error.to_string()),
            require_signature: settings.require_signature,
        }
    }

    /// What a file needs to be loaded by its id.
    pub fn trust(&self) -> TrustLevel {
        self.trust
    }

    /// The pins; `None` where they cannot be read.
    pub fn lock(&self) -> Option<&EngineLock> {
        self.lock.as_ref().ok()
    }

    /// Reads the file of an engine and judges it. `written` is the SHA-256 of its entry.
    ///
    /// An unreadable file has a verdict as well, so that callers can show both.
    pub fn evaluate(
        &self,
        id: &str,
        path: &Path,
        written: Option<&str>,
    ) -> (TrustVerdict, Result<EngineFile, LoadError>) {
        let pin = self.lock().and_then(|lock| lock.pin(id));
        let locked = pin.map(|pin| pin.sha256.as_str());
        let expected = written.or(locked);
        let found = inspect_pinned(path, expected);
        // The config before the lock: it is what a person wrote.
        let state = match (&found, written, locked) {
            // First, since a changed file is reported as changed whatever pins it.
            (Err(LoadError::HashMismatch { expected, found, .. }), _, _) => {
                PinState::Changed { expected: expected.clone(), found: found.clone() }
            }
            (Err(LoadError::Unreadable { source, .. }), _, _)
                if source.kind() == std::io::ErrorKind::NotFound =>
            {
                PinState::Missing
            }
            (_, Some(_), _) => PinState::PinnedInConfig,
            (_, None, Some(_)) => PinState::Pinned,
            (_, None, None) => PinState::Unpinned,
        };
        let mut verdict = TrustVerdict::new(state);
        verdict.sha256 = expected.map(str::to_owned);
        verdict.pin_source = match (written, pin) {
            (Some(_), _) => PinSource::Entry,
            (None, Some(pin)) => PinSource::Lock { has_source: pin.source.is_some() },
            (None, None) => PinSource::Caller,
        };
        verdict.refusal = self.refuse_pins(id, path, written, locked);
        match &found {
            Ok(file) => {
                let recorded = pin.filter(|pin| pin.sha256 == file.sha256);
                let recorded = recorded.and_then(|pin| pin.conformance.clone());
                // A report beside the file counts only for the bytes that it names.
                let beside = || {
                    Conformance::find(&file.path, &file.sha256, &[]).map(|report| report.verdict)
                };
                verdict.conformance = recorded.or_else(beside);
                self.check_signature(file, &mut verdict);
            }
            Err(error) => {
                verdict.refusal = verdict.refusal.or_else(|| Some(unreadable_reason(error)))
            }
        }
        (verdict, found)
    }

    /// Judges a file that the user named by its path, which replaces a pin but not a required
    /// signature. With [`TrustLevel::Locked`] it needs the pin as well.
    pub fn evaluate_named(&self, file: &EngineFile, written: Option<&str>) -> TrustVerdict {
        let mut verdict = TrustVerdict::new(PinState::Unpinned);
        verdict.sha256 = written.map(str::to_owned);
        verdict.pin_source = written.map_or(PinSource::Caller, |_| PinSource::Entry);
        if self.trust == TrustLevel::Locked {
            let id = &file.meta.id;
            let pin = self.lock().and_then(|lock| lock.pin(id));
            match pin.filter(|pin| pin.sha256.eq_ignore_ascii_case(&file.sha256)) {
                Some(_) => verdict.state = PinState::Pinned,
                None => verdict.refusal = Some(self.not_locked(id, &file.path)),
            }
        }
        self.check_signature(file, &mut verdict);
        verdict
    }

    fn refuse_pins(
        &self,
        id: &str,
        path: &Path,
        written: Option<&str>,
        locked: Option<&str>,
    ) -> Option<String> {
        let shown = path.display();
        if let (Some(written), Some(locked)) = (written, locked)
            // Which of the two is right cannot be known, so neither is believed.
            && !written.eq_ignore_ascii_case(locked)
        {
            return Some(format!(
                "plugins.entries.{id}.sha256 and {LOCK_NAME} name different bytes; \
                 `ctxhost install {shown}` settles it"
            ));
        }
        if locked.is_some() || (written.is_some() && self.trust != TrustLevel::Locked) {
            return None;
        }
        match &self.lock {
            // The unreadable lock file may pin this engine, and a pin applies whatever `trust` is.
            Err(error) => Some(error.clone()),
            Ok(_) if self.trust == TrustLevel::Any => None,
            Ok(_) if self.trust == TrustLevel::Locked => Some(self.not_locked(id, path)),
            Ok(_) => Some(format!(
                "{shown} is not pinned (plugins.trust = \"pinned\"); `ctxhost install {shown}` pins it"
            )),
        }
    }

    /// The refusal of a file whose bytes the lock file does not pin.
    fn not_locked(&self, id: &str, path: &Path) -> String {
        let path = path.display();
        match &self.lock {
            Err(error) => error.clone(),
            Ok(_) => format!(
                "{LOCK_NAME} does not pin these bytes of {id} (plugins.trust = \"locked\"); \
                 `ctxhost install {path}` pins them"
            ),
        }
    }

    /// The signature is verified on the bytes that were read, so those are then pinned.
    fn check_signature(&self, file: &EngineFile, verdict: &mut TrustVerdict) {
        let requirement = "plugins.require_signature asks for one of plugins.trusted_keys";
        let judged = match &self.keys {
            Ok(keys) => keys.check(&file.path, file.image()).map_err(|error| error.to_string()),
            Err(error) => Err(error.clone()),
        };
        let refusal = match judged {
            Ok(Signature::Trusted(key)) => {
                verdict.signer = Some(key);
                if verdict.sha256.is_none() {
                    verdict.pin_source = PinSource::Signature;
                }
                verdict.sha256 = Some(file.sha256.clone());
                None
            }
            Ok(_) if !self.require_signature => None,
            Ok(Signature::Missing) => Some(format!("it is not signed, and {requirement}")),
            Ok(Signature::UnknownKey(key)) => {
                Some(format!("it is signed by key {key}, and {requirement}"))
            }
            Err(error) => Some(error),
        };
        verdict.refusal = verdict.refusal.take().or(refusal);
    }
}

/// The refusal of a file that was unreadable when it was checked, or had other bytes: it must not be loaded even if
/// that changes a moment later.
pub fn unreadable_reason(error: &LoadError) -> String {
    match error {
        LoadError::HashMismatch { path, expected, found } => {
            let (found, expected) = (short_digest(found), short_digest(expected));
            let path = path.display();
            format!(
                "{path} has sha256 {found}, and the pinned one is {expected}; put the pinned file there, or pin \
                 these bytes with `ctxhost install {path}`"
            )
        }
        _ => format!("it could not be checked, so open it again ({error})"),
    }
}
