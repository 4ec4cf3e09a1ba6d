//! What engines keep: values by key and bytes by hash, each engine in a namespace of its own.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use sha2::{Digest as _, Sha256};

/// Why a store failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A key no store takes.
    #[error("key {key:?} is empty or longer than {MAX_KEY_BYTES} bytes")]
    BadKey {
        /// The key.
        key: String,
    },
    /// A file holds other bytes than those it is named after.
    #[error("{} was changed: its bytes are not those of its name", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
    },
    /// The database did not answer, or said no.
    #[error("the store cannot {action}: {reason}")]
    Database {
        /// What was tried.
        action: &'static str,
        /// What it said.
        reason: String,
    },
    /// The disk failed.
    #[error("cannot {action} {}: {source}", path.display())]
    Disk {
        /// What was tried.
        action: &'static str,
        /// Where.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
}

/// The longest key: a file name takes 255 bytes, and each byte may need three.
const MAX_KEY_BYTES: usize = 80;

/// Storage of one engine.
pub trait EngineStore: Send + Sync + std::fmt::Debug {
    /// The value of a key.
    fn get(&self, key: &str) -> Result<Option<String>, StoreError>;
    /// Sets a value; durable when it returns.
    fn put(&self, key: &str, value: &str) -> Result<(), StoreError>;
    /// Removes a value; one that is not there is no error.
    fn delete(&self, key: &str) -> Result<(), StoreError>;
    /// The keys that begin with `prefix`, sorted.
    fn list(&self, prefix: &str) -> Result<Vec<String>, StoreError>;
    /// Stores bytes and answers their SHA-256 in hex.
    fn put_blob(&self, bytes: &[u8]) -> Result<String, StoreError>;
    /// The bytes of a hash.
    fn get_blob(&self, handle: &str) -> Result<Option<Vec<u8>>, StoreError>;
}

/// Storage for engines by their ids, in one place that several machines may share.
pub trait EngineStores: Send + Sync + std::fmt::Debug {
    /// The store of an engine, which sees no other's values.
    fn of(&self, engine: &str) -> Arc<dyn EngineStore>;
}

/// A store that forgets at the end of the process: for replays and tests.
#[derive(Debug, Default)]
pub struct MemoryStore {
    values: Mutex<BTreeMap<String, Vec<u8>>>,
}

impl MemoryStore {
    fn values(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, Vec<u8>>> {
        self.values.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

impl EngineStore for MemoryStore {
    fn get(&self, key: &str) -> Result<Option<String>, StoreError> {
        let value = self.values().get(&format!("kv/{key}")).cloned();
        Ok(value.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
    }

    fn put(&self, key: &str, value: &str) -> Result<(), StoreError> {
        check_key(key)?;
        self.values().insert(format!("kv/{key}"), value.as_bytes().to_vec());
        Ok(())
    }

    fn delete(&self, key: &str) -> Result<(), StoreError> {
        self.values().remove(&format!("kv/{key}"));
        Ok(())
    }

    fn list(&self, prefix: &str) -> Result<Vec<String>, StoreError> {
        let values = self.values();
        let keys = values.keys().filter_map(|key| key.strip_prefix("kv/"));
        Ok(keys.filter(|key| key.starts_with(prefix)).map(str::to_owned).collect())
    }

    fn put_blob(&self, bytes: &[u8]) -> Result<String, StoreError> {
        let handle = hash(bytes);
        self.values().insert(format!("blob/{handle}"), bytes.to_vec());
        Ok(handle)
    }

    fn get_blob(&self, handle: &str) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.values().get(&format!("blob/{handle}")).cloned())
    }
}

/// A folder of bytes by hash, written beside and renamed, for its owner alone.
#[derive(Clone, Debug)]
pub struct BlobFolder(PathBuf);

impl BlobFolder {
    /// The folder; it is made when the first bytes come.
    pub fn at(folder: PathBuf) -> Self {
        BlobFolder(folder)
    }

    /// Stores bytes and answers their SHA-256 in hex.
    ///
    /// # Errors
    ///
    /// [`StoreError::Disk`].
    pub fn put(&self, bytes: &[u8]) -> Result<String, StoreError> {
        let handle = hash(bytes);
        // What was damaged meanwhile is put right.
        if !matches!(self.get(&handle), Ok(Some(_))) {
            write(&self.0.join(&handle), bytes)?;
        }
        Ok(handle)
    }

    /// The bytes of a handle; `None` where there are none.
    ///
    /// # Errors
    ///
    /// [`StoreError::Disk`], and [`StoreError::Damaged`] where the bytes are not those that were put.
    pub fn get(&self, handle: &str) -> Result<Option<Vec<u8>>, StoreError> {
        if !is_handle(handle) {
            return Ok(None);
        }
        let path = self.0.join(handle);
        match read(&path)? {
            Some(bytes) if hash(&bytes) != handle => Err(StoreError::Damaged { path }),
            found => Ok(found),
        }
    }

    /// The handles that begin with `prefix`, sorted.
    ///
    /// # Errors
    ///
    /// [`StoreError::Disk`].
    pub fn handles(&self, prefix: &str) -> Result<Vec<String>, StoreError> {
        let mut found = names_in(&self.0)?;
        found.retain(|name| is_handle(name) && name.starts_with(prefix));
        found.sort();
        Ok(found)
    }
}

/// Values in one store, bytes in a folder of their own: beside the session they belong to.
#[derive(Debug)]
pub(super) struct WithBlobs {
    pub(super) values: Arc<dyn EngineStore>,
    pub(super) blobs: BlobFolder,
}

impl EngineStore for WithBlobs {
    fn get(&self, key: &str) -> Result<Option<String>, StoreError> {
        self.values.get(key)
    }

    fn put(&self, key: &str, value: &str) -> Result<(), StoreError> {
        self.values.put(key, value)
    }

    fn delete(&self, key: &str) -> Result<(), StoreError> {
        self.values.delete(key)
    }

    fn list(&self, prefix: &str) -> Result<Vec<String>, StoreError> {
        self.values.list(prefix)
    }

    fn put_blob(&self, bytes: &[u8]) -> Result<String, StoreError> {
        self.blobs.put(bytes)
    }

    fn get_blob(&self, handle: &str) -> Result<Option<Vec<u8>>, StoreError> {
        self.blobs.get(handle)
    }
}

/// A store of one file for each value, written beside and renamed.
#[derive(Debug)]
pub struct FileStore {
    folder: PathBuf,
    blobs: BlobFolder,
}

impl FileStore {
    /// The store of the engine `id` below `state`. Ids are file names by their own rule.
    pub fn new(state: &Path, id: &str) -> Self {
        let folder = state.join("engines").join("data").join(id);
        FileStore { blobs: BlobFolder::at(folder.join("blobs")), folder }
    }

    fn value_path(&self, key: &str) -> Result<PathBuf, StoreError> {
        check_key(key)?;
        Ok(self.folder.join("kv").join(encode_name(key)))
    }
}

impl EngineStore for FileStore {
    fn get(&self, key: &str) -> Result<Option<String>, StoreError> {
        let bytes = read(&self.value_path(key)?)?;
        Ok(bytes.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
    }

    fn put(&self, key: &str, value: &str) -> Result<(), StoreError> {
        write(&self.value_path(key)?, value.as_bytes())
    }

    fn delete(&self, key: &str) -> Result<(), StoreError> {
        let path = self.value_path(key)?;
        match fs::remove_file(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                Err(disk("remove", &path)(error))
            }
            _ => Ok(()),
        }
    }

    fn list(&self, prefix: &str) -> Result<Vec<String>, StoreError> {
        let names = names_in(&self.folder.join("kv"))?.into_iter();
        let keys = names.filter_map(|name| decode_name(&name));
        let mut keys: Vec<_> = keys.filter(|key| key.starts_with(prefix)).collect();
        keys.sort();
        Ok(keys)
    }

    fn put_blob(&self, bytes: &[u8]) -> Result<String, StoreError> {
        self.blobs.put(bytes)
    }

    fn get_blob(&self, handle: &str) -> Result<Option<Vec<u8>>, StoreError> {
        self.blobs.get(handle)
    }
}

fn is_handle(name: &str) -> bool {
    name.len() == 64 && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The names of what is in a folder; none where the folder is not there.
fn names_in(folder: &Path) -> Result<Vec<String>, StoreError> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.map_err(disk("list", folder))?,
    };
    Ok(entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect())
}

/// Refuses a key that not every store takes.
pub fn check_key(key: &str) -> Result<(), StoreError> {
    let fits = !key.is_empty() && key.len() <= MAX_KEY_BYTES;
    fits.then_some(()).ok_or_else(|| StoreError::BadKey { key: key.into() })
}

/// The handle of bytes: their SHA-256 in hex.
pub fn hash(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A key may hold anything, a file name may not: all but letters, digits, `-` and `_` becomes `%xx`.
fn encode_name(key: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    let encode = |byte| {
        if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02x}") }
    };
    key.bytes().map(encode).collect()
}

/// `None` for a file that is no value: the temporary file of a write that was cut short.
fn decode_name(name: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(name.len());
    let mut rest = name.as_bytes();
    while let Some((&first, after)) = rest.split_first() {
        rest = after;
        match first {
            b'%' => {
                let (digits, after) = rest.split_at_checked(2)?;
                bytes.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
                rest = after;
            }
            b'.' => return None,
            plain => bytes.push(plain),
        }
    }
    String::from_utf8(bytes).ok()
}

fn read(path: &Path) -> Result<Option<Vec<u8>>, StoreError> {
    match fs::read(path) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(disk("read", path)(error)),
    }
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), StoreError> {
    let folder = path.parent().unwrap_or(path);
    super::library::private_folder(folder).map_err(disk("create", folder))?;
    let mut file = tempfile::Builder::new()
        .prefix(".new-")
        .tempfile_in(folder)
        .map_err(disk("write", path))?;
    file.write_all(bytes).map_err(disk("write", path))?;
    file.as_file().sync_all().map_err(disk("write", path))?;
    file.persist(path).map_err(|error| disk("rename", path)(error.error))?;
    Ok(())
}

fn disk(action: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> StoreError {
    let path = path.to_owned();
    move |source| StoreError::Disk { action, path, source }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(store: &dyn EngineStore) {
        assert_eq!(store.get("a/b").unwrap(), None);
        store.put("a/b", "1").unwrap();
        store.put("a/b", "2").unwrap();
        store.put("a/../c", "3").unwrap();
        store.put("会话", "4").unwrap();
        assert_eq!(store.get("a/b").unwrap().as_deref(), Some("2"));
        assert_eq!(store.list("a/").unwrap(), ["a/../c", "a/b"]);
        assert_eq!(store.list("").unwrap().len(), 3);
        store.delete("a/b").unwrap();
        store.delete("a/b").unwrap();
        assert_eq!(store.get("a/b").unwrap(), None);
        assert!(store.put("", "x").is_err());
        assert!(store.put(&"k".repeat(81), "x").is_err());
        let handle = store.put_blob(b"bytes").unwrap();
        assert_eq!(store.put_blob(b"bytes").unwrap(), handle);
        assert_eq!(store.get_blob(&handle).unwrap().as_deref(), Some(&b"bytes"[..]));
        assert_eq!(store.get_blob("../../etc/passwd").unwrap(), None);
    }

    #[test]
    fn both_stores_keep_the_same_contract() {
        check(&MemoryStore::default());
        let state = tempfile::tempdir().unwrap();
        check(&FileStore::new(state.path(), "demo"));
    }

    #[test]
    #[cfg(unix)]
    fn blobs_beside_a_session_are_their_owner_s_alone() {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s.jsonl.blobs");
        let values = Arc::new(MemoryStore::default());
        let store = WithBlobs { values, blobs: BlobFolder::at(path.clone()) };
        check(&store);
        let handle = store.put_blob(b"output").unwrap();
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&path), mode(&path.join(&handle))), (0o700, 0o600));
        assert_eq!(store.blobs.handles(&handle[..5]).unwrap(), std::slice::from_ref(&handle));
        fs::write(path.join(&handle), "other").unwrap();
        assert!(matches!(store.get_blob(&handle), Err(StoreError::Damaged { .. })));
    }

    #[test]
    fn engines_do_not_see_each_other() {
        let state = tempfile::tempdir().unwrap();
        FileStore::new(state.path(), "one").put("k", "v").unwrap();
        assert_eq!(FileStore::new(state.path(), "two").get("k").unwrap(), None);
    }
}
