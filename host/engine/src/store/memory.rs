//! A store in memory.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::{EngineStore, EngineStores, StoreError, StoreSize, check_key};
use ctxhost_blobs::hash;
use parking_lot::Mutex;

/// A store in memory, for replays and tests.
#[derive(Debug, Default)]
pub struct MemoryStore {
    values: Mutex<BTreeMap<String, Vec<u8>>>,
}

impl EngineStore for MemoryStore {
    fn get(&self, key: &str) -> Result<Option<String>, StoreError> {
        let value = self.values.lock().get(&format!("kv/{key}")).cloned();
        Ok(value.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()))
    }

    fn put(&self, key: &str, value: &str) -> Result<(), StoreError> {
        check_key(key)?;
        self.values.lock().insert(format!("kv/{key}"), value.as_bytes().to_vec());
        Ok(())
    }

    fn delete(&self, key: &str) -> Result<(), StoreError> {
        self.values.lock().remove(&format!("kv/{key}"));
        Ok(())
    }

    fn list(&self, prefix: &str) -> Result<Vec<String>, StoreError> {
        let values = self.values.lock();
        let keys = values.keys().filter_map(|key| key.strip_prefix("kv/"));
        Ok(keys.filter(|key| key.starts_with(prefix)).map(str::to_owned).collect())
    }

    fn put_blob(&self, bytes: &[u8]) -> Result<String, StoreError> {
        let handle = hash(bytes);
        // An engine may store the same bytes at every request.
        self.values.lock().entry(format!("blob/{handle}")).or_insert_with(|| bytes.to_vec());
        Ok(handle)
    }

    fn get_blob(&self, handle: &str) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.values.lock().get(&format!("blob/{handle}")).cloned())
    }

    fn size(&self) -> Result<StoreSize, StoreError> {
        let values = self.values.lock();
        let values =
            values.iter().filter_map(|(key, value)| Some((key.strip_prefix("kv/")?, value)));
        Ok(values.fold(StoreSize::default(), |kept, (key, value)| StoreSize {
            entries: kept.entries + 1,
            bytes: kept.bytes + (key.len() + value.len()) as u64,
        }))
    }
}

/// Stores in memory by engine id: a reopened engine finds the values of its predecessor.
#[derive(Debug, Default)]
pub struct MemoryStores {
    stores: Mutex<HashMap<String, Arc<MemoryStore>>>,
}

impl EngineStores for MemoryStores {
    fn open_store(&self, engine: &str) -> Arc<dyn EngineStore> {
        let mut stores = self.stores.lock();
        stores.entry(engine.to_owned()).or_default().clone()
    }
}
