//! Storage of engines: values by key and blobs by hash, in a namespace for each engine.

mod files;
mod memory;

pub use files::FileStore;
pub use memory::{MemoryStore, MemoryStores};

use ctxhost_engine_api::transcript::tokens::group_thousands;
use std::sync::Arc;

use ctxhost_blobs::BlobError;

/// Why an operation of a store failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// An invalid key.
    #[error("key {key:?} is empty or longer than {MAX_KEY_BYTES} bytes")]
    BadKey {
        /// The key.
        key: String,
    },
    /// The database failed.
    #[error("the store cannot {action}: {reason}")]
    Database {
        /// The operation, as a verb.
        action: &'static str,
        /// Its error.
        reason: String,
    },
    /// The quota of the engine is used up.
    #[error(
        "{} more bytes do not fit: the engine stores {} of {} bytes (plugins.quotas.store_mib); delete values it does not need or raise the limit",
        group_thousands(*more), group_thousands(*used), group_thousands(*limit)
    )]
    Full {
        /// The size of the refused value.
        more: u64,
        /// The bytes stored.
        used: u64,
        /// The limit, in bytes.
        limit: u64,
    },
    /// A file cannot be read or written.
    #[error(transparent)]
    File(#[from] BlobError),
}

/// The longest key: a file name takes 255 bytes, and an encoded byte takes three.
const MAX_KEY_BYTES: usize = 80;

/// The size of an engine's values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreSize {
    /// The number of values.
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
    /// Removes a value, if it exists.
    fn delete(&self, key: &str) -> Result<(), StoreError>;
    /// The keys that begin with `prefix`, sorted.
    fn list(&self, prefix: &str) -> Result<Vec<String>, StoreError>;
    /// Stores bytes and returns their SHA-256 in hex.
    fn put_blob(&self, bytes: &[u8]) -> Result<String, StoreError>;
    /// The bytes of a hash.
    fn get_blob(&self, handle: &str) -> Result<Option<Vec<u8>>, StoreError>;
    /// The size of all values. Counts them, which takes as long as listing all keys.
    fn size(&self) -> Result<StoreSize, StoreError>;
}

/// Stores of engines by id, in one place that several machines may share.
pub trait EngineStores: Send + Sync + std::fmt::Debug {
    /// The store of an engine, which sees no values of others.
    fn open_store(&self, engine: &str) -> Arc<dyn EngineStore>;
}

/// Refuses a key that some store cannot hold.
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
