//! What a config demands of engine files, and how each of them stands to that.

use std::path::Path;

use super::lock::{EngineLock, LOCK_NAME, LockError, LockFile};
use super::signature::{Signature, TrustedKeys};
use super::{Conformance, TrustLevel};
use ctxhost_engine::{EngineFile, LoadError, PinSource, inspect_pinned};

/// The demands, as a config has them.
#[derive(Clone, Debug, Default)]
pub struct TrustSettings {
    /// `plugins.trust`; `None` for pinned where there is a lock, any where there is none.
    pub trust: Option<TrustLevel>,
    /// `plugins.trusted_keys`.
    pub trusted_keys: Vec<String>,
    /// `plugins.require_signature`.
    pub require_signature: bool,
}

/// The demands with what they are held against.
#[derive(Debug)]
pub struct TrustPolicy {
    trust: TrustLevel,
    /// Why the pins are not known, as a sentence.
    lock: Result<EngineLock, String>,
    keys: Result<TrustedKeys, String>,
    require_signature: bool,
}

/// How a file stands to the bytes that were found good.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PinState {
    /// It is no file: the engine is linked in.
    Bundled,
    /// It has the bytes in `ctxhost.lock`.
    Pinned,
    /// It has the bytes in its entry of the config.
    PinnedInConfig,
    /// Nobody said which bytes are good.
    Unpinned,
    /// It has other bytes.
    Changed {
        /// What is pinned, in hex.
        expected: String,
        /// What it has.
        found: String,
    },
    /// It is not there.
    Missing,
}

impl PinState {
    /// One word, or two.
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

/// What is known of an engine's file, and whether it may be loaded.
#[derive(Clone, Debug)]
pub struct TrustVerdict {
    /// How it stands to the pinned bytes.
    pub state: PinState,
    /// The SHA-256 it must have when it is loaded, in hex; `None` where any will do.
    pub sha256: Option<String>,
    /// Whose word that is.
    pub pin_source: PinSource,
    /// The id of the trusted key that signed it.
    pub signer: Option<String>,
    /// What `ctxhost check` found.
    pub conformance: Option<String>,
    /// Why it must not be loaded, though its bytes are not other ones.
    pub refusal: Option<String>,
}

impl TrustVerdict {
    /// Of an engine that is linked in.
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
    /// The demands of a config file with the lock beside it. A config without a name has none.
    pub fn load(config: &Path, demands: &TrustSettings) -> TrustPolicy {
        let lock = if config.as_os_str().is_empty() { Ok(None) } else { LockFile::read(config) };
        let implied = match &lock {
            Ok(None) => TrustLevel::Any,
            // A lock says that this config is one of pinned engines, readable or not.
            Ok(Some(_)) | Err(_) => TrustLevel::Pinned,
        };
        TrustPolicy {
            trust: demands.trust.unwrap_or(implied),
            lock: lock.map(Option::unwrap_or_default).map_err(|error: LockError| error.to_string()),
            keys: TrustedKeys::parse(&demands.trusted_keys).map_err(|error| error.to_string()),
            require_signature: demands.require_signature,
        }
    }

    /// What a file needs to be loaded by its id.
    pub fn trust(&self) -> TrustLevel {
        self.trust
    }

    /// The pins; none where they cannot be read.
    pub fn lock(&self) -> Option<&EngineLock> {
        self.lock.as_ref().ok()
    }

    /// Reads a file that serves under an id, and judges it. `written` is the SHA-256 of its entry.
    ///
    /// What cannot be read has a standing all the same: the caller shows both.
    pub fn evaluate(
        &self,
        id: &str,
        path: &Path,
        written: Option<&str>,
    ) -> (TrustVerdict, Result<EngineFile, LoadError>) {
        let locked = self.lock().and_then(|lock| lock.pin(id)).map(|pin| pin.sha256.as_str());
        let expected = written.or(locked);
        let found = inspect_pinned(path, expected);
        let state = match (&found, written, locked) {
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
        let mut standing = TrustVerdict::new(state);
        standing.sha256 = expected.map(str::to_owned);
        standing.pin_source = match (written, locked) {
            (Some(_), _) => PinSource::Entry,
            (None, Some(_)) => PinSource::Lock,
            (None, None) => PinSource::Caller,
        };
        standing.refusal = self.refuse_pins(id, path, written, locked);
        match &found {
            Ok(file) => {
                let locked = self.lock().and_then(|lock| lock.pin(id));
                let noted = locked.filter(|pin| pin.sha256 == file.sha256);
                let noted = noted.and_then(|pin| pin.conformance.clone());
                let beside =
                    || Conformance::find(&file.path, &file.sha256, &[]).map(|it| it.verdict);
                standing.conformance = noted.or_else(beside);
                self.judge_signature(file, &mut standing);
            }
            Err(error) => {
                standing.refusal = standing.refusal.or_else(|| Some(unreadable_reason(error)))
            }
        }
        (standing, found)
    }

    /// Judges a file that a person named by its path: their word stands for a pin, not for a
    /// signature where one is required.
    pub fn evaluate_named(&self, file: &EngineFile, written: Option<&str>) -> TrustVerdict {
        let mut standing = TrustVerdict::new(PinState::Unpinned);
        standing.sha256 = written.map(str::to_owned);
        standing.pin_source = written.map_or(PinSource::Caller, |_| PinSource::Entry);
        self.judge_signature(file, &mut standing);
        standing
    }

    fn refuse_pins(
        &self,
        id: &str,
        path: &Path,
        written: Option<&str>,
        locked: Option<&str>,
    ) -> Option<String> {
        let path = path.display();
        if let (Some(written), Some(locked)) = (written, locked)
            && !written.eq_ignore_ascii_case(locked)
        {
            return Some(format!(
                "plugins.entries.{id}.sha256 and {LOCK_NAME} name different bytes; \
                 `ctxhost install {path}` settles it"
            ));
        }
        if written.is_some() || locked.is_some() {
            return None;
        }
        match &self.lock {
            // It may hold a pin for this very engine, and a pin holds whatever else is trusted.
            Err(error) => Some(error.clone()),
            Ok(_) if self.trust == TrustLevel::Any => None,
            Ok(_) => Some(format!(
                "nobody said that the bytes of {path} are good; `ctxhost install {path}` pins them"
            )),
        }
    }

    /// A signature is of the bytes that were read, so they are the ones that must be loaded.
    fn judge_signature(&self, file: &EngineFile, standing: &mut TrustVerdict) {
        let demand = "plugins.require_signature asks for one of plugins.trusted_keys";
        let judged = match &self.keys {
            Ok(keys) => keys.check(&file.path, file.image()).map_err(|error| error.to_string()),
            Err(error) => Err(error.clone()),
        };
        let refusal = match judged {
            Ok(Signature::Trusted(key)) => {
                standing.signer = Some(key);
                if standing.sha256.is_none() {
                    standing.pin_source = PinSource::Signature;
                }
                standing.sha256 = Some(file.sha256.clone());
                None
            }
            Ok(_) if !self.require_signature => None,
            Ok(Signature::Missing) => Some(format!("it is not signed, and {demand}")),
            Ok(Signature::UnknownKey(key)) => {
                Some(format!("it is signed by key {key}, and {demand}"))
            }
            Err(error) => Some(error),
        };
        standing.refusal = standing.refusal.take().or(refusal);
    }
}

/// Why a file that could not be read must not be loaded, even if it can be a moment later: nothing was
/// held against its bytes.
pub fn unreadable_reason(error: &LoadError) -> String {
    format!("it could not be judged, so open it again ({error})")
}
