//! The key of the seal: a file for its owner alone, made once.

use std::fs::{OpenOptions, read_to_string};
use std::io::{self, Write};
use std::path::Path;

use super::{bytes, hex};
use crate::session::{SessionError, SessionFolder};

/// How long a key is.
pub(super) const BYTES: usize = 32;

/// The name of the file.
const NAME: &str = "compaction.key";

/// The key of a folder; made where there is none.
///
/// # Errors
///
/// Where the folder or the file cannot be made or read, or the file holds no key.
pub(super) fn of(folder: &Path) -> Result<[u8; BYTES], SessionError> {
    SessionFolder::at(folder).make()?;
    let path = folder.join(NAME);
    let action = "keep the key of compactions in";
    let failed = |source| SessionError::Io { action, path: path.clone(), source };
    let key = fresh();
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    // Two gateways that begin at the same time must not come to have two keys, so the file is whole
    // before it has its name.
    let staged = folder.join(format!(".{NAME}.{}", hex(key.get(..8).unwrap_or_default())));
    let write = |path: &Path| -> io::Result<()> {
        let mut file = options.open(path)?;
        writeln!(file, "{}", hex(&key))?;
        file.sync_all()
    };
    if !path.exists() {
        let put = write(&staged).and_then(|()| std::fs::hard_link(&staged, &path));
        let _ = std::fs::remove_file(&staged);
        match put {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                return Err(failed(error));
            }
            _ => {}
        }
    }
    let text = read_to_string(&path).map_err(failed)?;
    let no_key = || failed(io::Error::new(io::ErrorKind::InvalidData, "it holds no key"));
    bytes(text.trim()).and_then(|key| key.try_into().ok()).ok_or_else(no_key)
}

/// A key that nobody has.
pub(super) fn fresh() -> [u8; BYTES] {
    let mut key = [0; BYTES];
    let random = rustls::crypto::aws_lc_rs::default_provider().secure_random;
    if random.fill(&mut key).is_err() {
        // A system without randomness: whoever could guess this could do anything here.
        tracing::error!("the system has no random numbers; the key of compactions is a guess");
        fastrand::fill(&mut key);
    }
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_made_once_for_its_owner_alone() {
        let state = tempfile::tempdir().unwrap();
        let folder = state.path().join("gateway");
        let keys: Vec<[u8; BYTES]> = std::thread::scope(|scope| {
            let readers: Vec<_> = (0..4).map(|_| scope.spawn(|| of(&folder).unwrap())).collect();
            readers.into_iter().map(|reader| reader.join().unwrap()).collect()
        });
        assert!(keys.iter().all(|key| *key == keys[0] && *key != [0; BYTES]), "{keys:?}");
        assert_eq!(folder.read_dir().unwrap().count(), 1);
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
            assert_eq!((mode(&folder), mode(&folder.join(NAME))), (0o700, 0o600));
        }
    }

    #[test]
    fn half_a_key_is_none() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(NAME), "00ff").unwrap();
        let error = of(folder.path()).unwrap_err().to_string();
        assert!(error.contains("it holds no key"), "{error}");
    }
}
