//! What engines keep: values by key and bytes by hash, each engine in a namespace of its own.

mod files;
mod memory;
mod session_blobs;

pub use files::FileStore;
pub use memory::{MemoryStore, MemoryStores};
pub(super) use session_blobs::SessionBlobStore;

use std::sync::Arc;

use ctxhost_blobs::BlobError;

use super::deadline::group_thousands;

/// Why a store failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// A key no store takes.
    #[error("key {key:?} is empty or longer than {MAX_KEY_BYTES} bytes")]
    BadKey {
        /// The key.
        key: String,
    },
    /// The database did not answer, or said no.
    #[error("the store cannot {action}: {reason}")]
    Database {
        /// What was tried.
        action: &'static str,
        /// What it said.
        reason: String,
    },
    /// It holds as much as this engine may keep.
    #[error(
        "{} bytes more do not fit: this engine keeps {} of {} bytes (plugins.quotas.store_mib); it has to delete values it does not need, or the limit be raised",
        group_thousands(*more), group_thousands(*used), group_thousands(*limit)
    )]
    Full {
        /// What was to be stored, in bytes.
        more: u64,
        /// What is stored, in bytes.
        used: u64,
        /// The limit, in bytes.
        limit: u64,
    },
    /// A file could not be written or read, or holds something else.
    #[error(transparent)]
    File(#[from] BlobError),
}

/// The longest key: a file name takes 255 bytes, and each byte may need three.
const MAX_KEY_BYTES: usize = 80;

/// How much an engine keeps by key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreSize {
    /// Values.
    pub entries: u64,
    /// The bytes of the keys and values.
    pub bytes: u64,
}

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
    /// How much is kept by key; counts it, which takes as long as a list of all keys.
    fn size(&self) -> Result<StoreSize, StoreError>;
}

/// Storage for engines by their ids, in one place that several machines may share.
pub trait EngineStores: Send + Sync + std::fmt::Debug {
    /// The store of an engine, which sees no other's values.
    fn open_store(&self, engine: &str) -> Arc<dyn EngineStore>;
}

/// Refuses a key that not every store takes.
pub fn check_key(key: &str) -> Result<(), StoreError> {
    let fits = !key.is_empty() && key.len() <= MAX_KEY_BYTES;
    fits.then_some(()).ok_or_else(|| StoreError::BadKey { key: key.into() })
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
        assert_eq!(store.size().unwrap(), StoreSize { entries: 3, bytes: 3 + 6 + 6 + 3 });
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
    fn engines_do_not_see_each_other() {
        let state = tempfile::tempdir().unwrap();
        FileStore::new(state.path(), "one").put("k", "v").unwrap();
        assert_eq!(FileStore::new(state.path(), "two").get("k").unwrap(), None);
        let stores = MemoryStores::default();
        stores.open_store("one").put("k", "v").unwrap();
        assert_eq!(stores.open_store("two").get("k").unwrap(), None);
        assert_eq!(
            stores.open_store("one").get("k").unwrap().as_deref(),
            Some("v"),
            "of the next one of the name"
        );
    }
}
