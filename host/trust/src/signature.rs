//! Verifies signatures of engine files in the format of `minisign`: `FILE.so.minisig` beside the
//! file.

use std::io;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use minisign_verify::PublicKey;

/// The suffix of signature files.
const SUFFIX: &str = ".minisig";

/// The largest signature file; real ones have a few lines.
const MAX_SIGNATURE_BYTES: usize = 16 * 1024;

/// The trusted keys.
#[derive(Clone, Default)]
pub struct TrustedKeys {
    keys: Vec<(String, PublicKey)>,
}

/// The signature beside a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Signature {
    /// The signature file does not exist.
    Missing,
    /// By an unknown key (its id in hex), and therefore not verified.
    UnknownKey(String),
    /// A valid signature by a trusted key (its id in hex).
    Trusted(String),
}

/// Why a signature or a key is invalid.
#[derive(Debug, thiserror::Error)]
pub enum SignatureError {
    /// An invalid key.
    #[error("{key:?} is not a minisign public key; it is the second line of a minisign.pub file")]
    BadKey {
        /// The text.
        key: String,
    },
    /// The signature file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Unreadable {
        /// The signature.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// The file is not a signature.
    #[error("{} is not a minisign signature; sign the engine again, or remove it", path.display())]
    NoSignature {
        /// The signature.
        path: PathBuf,
    },
    /// The signature is for other bytes.
    #[error("{} is not a signature of these bytes by key {key}; get both files again from their author", path.display())]
    OtherBytes {
        /// The signature.
        path: PathBuf,
        /// The key's id.
        key: String,
    },
}

impl TrustedKeys {
    /// Parses keys: the base64 line of a `minisign.pub` file each.
    ///
    /// # Errors
    ///
    /// [`SignatureError::BadKey`] for the first invalid key.
    pub fn parse<'a>(
        keys: impl IntoIterator<Item = &'a String>,
    ) -> Result<TrustedKeys, SignatureError> {
        let read = |text: &'a String| {
            let bad = || SignatureError::BadKey { key: text.clone() };
            let key = PublicKey::from_base64(text.trim()).map_err(|_| bad())?;
            Ok((key_id(text).ok_or_else(bad)?, key))
        };
        let keys: Result<Vec<_>, SignatureError> = keys.into_iter().map(read).collect();
        Ok(TrustedKeys { keys: keys? })
    }

    /// Reads the signature beside a file and verifies it on the file's bytes.
    ///
    /// # Errors
    ///
    /// [`SignatureError`]: an invalid signature is worse than none.
    pub fn check(&self, file: &Path, image: &[u8]) -> Result<Signature, SignatureError> {
        let path = TrustedKeys::signature_path(file);
        let text = match ctxhost_files::read(&path, ctxhost_files::SMALL_FILE_BYTES) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Ok(Signature::Missing);
            }
            Err(source) => return Err(SignatureError::Unreadable { path, source }),
        };
        let none = || SignatureError::NoSignature { path: path.clone() };
        let text = String::from_utf8(text).map_err(|_| none())?;
        // Before decoding: the file comes from the author of the engine.
        if text.len() > MAX_SIGNATURE_BYTES {
            return Err(none());
        }
        let signature = minisign_verify::Signature::decode(&text).map_err(|_| none())?;
        let id = text.lines().nth(1).and_then(key_id).ok_or_else(none)?;
        // By the id in the file, which distinguishes an unknown key from wrong bytes.
        let Some((_, key)) = self.keys.iter().find(|(known, _)| *known == id) else {
            return Ok(Signature::UnknownKey(id));
        };
        // Also of the kind "Ed" (`minisign -l`), which signs the file itself and not its hash: the bytes are in memory.
        match key.verify(image, &signature, true) {
            Ok(()) => Ok(Signature::Trusted(id)),
            Err(_) => Err(SignatureError::OtherBytes { path, key: id }),
        }
    }

    /// The path of the signature of a file.
    pub fn signature_path(file: &Path) -> PathBuf {
        let mut name = file.file_name().unwrap_or_default().to_owned();
        name.push(SUFFIX);
        file.with_file_name(name)
    }
}

impl std::fmt::Debug for TrustedKeys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.keys.iter().map(|(id, _)| id)).finish()
    }
}

/// The id of the key in a line of base64: eight bytes after two for the algorithm, in reverse
/// order, as minisign prints it.
fn key_id(base64: &str) -> Option<String> {
    let bytes = STANDARD.decode(base64.trim()).ok()?;
    let id = bytes.get(2..10)?;
    Some(id.iter().rev().map(|byte| format!("{byte:02X}")).collect())
}

#[cfg(test)]
mod tests;
