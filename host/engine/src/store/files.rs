//! A store of files: one for each value, and a folder of blobs.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::{EngineStore, StoreError, StoreSize, check_key};
use ctxhost_blobs::{BlobError, BlobFolder, disk_error};
use ctxhost_files::{FileAccess, replace_file};

/// A store of one file for each value, replaced atomically.
#[derive(Debug)]
pub struct FileStore {
    folder: PathBuf,
    blobs: BlobFolder,
}

impl FileStore {
    /// The store of the engine `id` below `state`.
    pub fn new(state: &Path, id: &str) -> Self {
        let folder = state.join("engines").join("data").join(encode_name(id));
        FileStore { blobs: BlobFolder::new(folder.join("blobs")), folder }
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
        let path = self.value_path(key)?;
        Ok(replace_file(&path, value.as_bytes(), FileAccess::Private).map_err(BlobError::from)?)
    }

    fn delete(&self, key: &str) -> Result<(), StoreError> {
        let path = self.value_path(key)?;
        match fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                Err(disk_error("remove", &path)(error).into())
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
        Ok(self.blobs.put(bytes)?)
    }

    fn get_blob(&self, handle: &str) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.blobs.get(handle)?)
    }

    fn size(&self) -> Result<StoreSize, StoreError> {
        let folder = self.folder.join("kv");
        let mut kept = StoreSize::default();
        for name in names_in(&folder)? {
            // Removed since it was listed.
            let Ok(file) = fs::symlink_metadata(folder.join(&name)) else { continue };
            let key = decode_name(&name).unwrap_or_default();
            kept.entries += 1;
            kept.bytes += key.len() as u64 + file.len();
        }
        Ok(kept)
    }
}

/// The file names in a folder; empty where it does not exist.
fn names_in(folder: &Path) -> Result<Vec<String>, BlobError> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        other => other.map_err(disk_error("list", folder))?,
    };
    Ok(entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect())
}

/// Encodes a key as a file name: all but alphanumerics, `-` and `_` becomes `%xx`.
fn encode_name(key: &str) -> String {
    // No dot, so that keys cannot collide with temporary files or leave the folder.
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    let encode = |byte| {
        if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02x}") }
    };
    key.bytes().map(encode).collect()
}

/// The key of a file name; `None` for the temporary file of an interrupted write.
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

fn read(path: &Path) -> Result<Option<Vec<u8>>, BlobError> {
    match ctxhost_files::read(path, ctxhost_files::SESSION_FILE_BYTES) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(disk_error("read", path)(error)),
    }
}
