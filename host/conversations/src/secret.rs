//! Secret files: created once, atomically, and readable by their owner only.

use std::fs::{hard_link, remove_file};
use std::io::{self, Write};
use std::path::Path;

use ctxhost_platform::files::{LinkPolicy, open_options};
use ctxhost_session::{SessionError, SessionFolder};

/// A secret file.
#[derive(Clone, Copy, Debug)]
pub struct SecretFile {
    /// The file name.
    pub name: &'static str,
    /// The action for error messages, before the path.
    pub action: &'static str,
}

impl SecretFile {
    /// Reads the secret of `N` bytes in a folder, or creates it.
    ///
    /// # Errors
    ///
    /// If the folder or file cannot be created or read, or the file is damaged.
    pub fn read_or_create<const N: usize>(&self, folder: &Path) -> Result<[u8; N], SessionError> {
        SessionFolder::from_path(folder).create()?;
        let path = folder.join(self.name);
        let failed = |source| SessionError::Io { action: self.action, path: path.clone(), source };
        if !path.exists() {
            self.create::<N>(folder, &path).map_err(failed)?;
        }
        let text =
            ctxhost_files::read_text(&path, ctxhost_files::SMALL_FILE_BYTES).map_err(failed)?;
        let secret = from_hex(text.trim()).and_then(|secret| secret.try_into().ok());
        let damaged = "the file is damaged; delete it to create a new one";
        secret.ok_or_else(|| failed(io::Error::new(io::ErrorKind::InvalidData, damaged)))
    }

    /// Creates the file atomically by a hard link: two gateways that start together must get the same secret,
    /// and a killed one must not leave half of it.
    fn create<const N: usize>(&self, folder: &Path, path: &Path) -> io::Result<()> {
        let (secret, staged) = (
            random_bytes::<N>(),
            folder.join(format!(".{}.{}", self.name, to_hex(&random_bytes::<8>()))),
        );
        let put = write(&staged, &secret).and_then(|()| hard_link(&staged, path));
        // If this fails, an unused file remains.
        let _ = remove_file(&staged);
        match put {
            Err(error) if !is_existing(&error) => {}
            _ => return Ok(()),
        }
        // A file system without hard links. Two gateways starting together on it is unlikely.
        match write(path, &secret) {
            Err(error) if !is_existing(&error) => Err(error),
            _ => Ok(()),
        }
    }
}

fn is_existing(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::AlreadyExists
}

fn write(path: &Path, secret: &[u8]) -> io::Result<()> {
    let mut file = open_options(LinkPolicy::Follow).write(true).create_new(true).open(path)?;
    writeln!(file, "{}", to_hex(secret))?;
    file.sync_all()
}

/// Random bytes.
pub fn random_bytes<const N: usize>() -> [u8; N] {
    let mut secret = [0; N];
    let random = rustls::crypto::ring::default_provider().secure_random;
    if random.fill(&mut secret).is_err() {
        // fastrand is predictable: anyone who guesses this secret can forge summaries.
        tracing::error!("the system has no random source: a secret of the gateway is predictable");
        fastrand::fill(&mut secret);
    }
    secret
}

/// Bytes as hex digits.
pub fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The bytes of hex digits; `None` for anything else.
pub fn from_hex(hex: &str) -> Option<Vec<u8>> {
    if !hex.len().is_multiple_of(2) || !hex.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let pairs = (0..hex.len()).step_by(2).map(|at| hex.get(at..at + 2));
    pairs.map(|pair| u8::from_str_radix(pair?, 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: SecretFile = SecretFile { name: "key", action: "keep the key in" };

    #[test]
    fn a_secret_is_created_once_for_its_owner_only() {
        let state = tempfile::tempdir().unwrap();
        let folder = state.path().join("gateway");
        let all: Vec<[u8; 32]> = std::thread::scope(|scope| {
            let read = || FILE.read_or_create(&folder).unwrap();
            let readers: Vec<_> = (0..8).map(|_| scope.spawn(read)).collect();
            readers.into_iter().map(|reader| reader.join().unwrap()).collect()
        });
        assert!(all.iter().all(|secret| *secret == all[0] && *secret != [0; 32]), "{all:?}");
        assert_eq!(folder.read_dir().unwrap().count(), 1);
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
            assert_eq!((mode(&folder), mode(&folder.join("key"))), (0o700, 0o600));
        }
    }

    #[test]
    fn a_leftover_temporary_file_is_ignored() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(".key.00ff"), "00").unwrap();
        let secret: [u8; 8] = FILE.read_or_create(folder.path()).unwrap();
        assert_eq!(FILE.read_or_create(folder.path()).unwrap(), secret);
    }

    #[test]
    fn a_damaged_secret_is_an_error_with_a_remedy() {
        let folder = tempfile::tempdir().unwrap();
        for wrong in ["", "00ff", "no hex at all"] {
            std::fs::write(folder.path().join("key"), wrong).unwrap();
            let error = FILE.read_or_create::<8>(folder.path()).unwrap_err().to_string();
            assert!(error.contains("delete it to create a new one"), "{error}");
            assert!(error.contains("keep the key in"), "{error}");
        }
    }
}
