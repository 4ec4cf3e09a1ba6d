//! Engine key-value stores in the database, shared by all machines.

use std::sync::Arc;

use tokio_postgres::Row;
use tokio_postgres::types::{ToSql, Type};

use super::core::PostgresCore;
use ctxhost_blobs::hash;
use ctxhost_engine::EngineStores;
use ctxhost_engine::store::{EngineStore, StoreError, StoreSize, check_key};

/// The stores of all engines.
#[derive(Debug)]
pub(super) struct PostgresEngineStores {
    core: Arc<PostgresCore>,
}

impl PostgresEngineStores {
    pub(super) fn new(core: &Arc<PostgresCore>) -> PostgresEngineStores {
        PostgresEngineStores { core: core.clone() }
    }
}

impl EngineStores for PostgresEngineStores {
    fn open_store(&self, engine: &str) -> Arc<dyn EngineStore> {
        Arc::new(PostgresEngineStore { core: self.core.clone(), engine: engine.to_owned() })
    }
}

/// The store of one engine.
#[derive(Debug)]
struct PostgresEngineStore {
    core: Arc<PostgresCore>,
    engine: String,
}

/// An owned statement value, since the statement runs on another thread.
type OwnedValue = (Box<dyn ToSql + Sync + Send>, Type);

impl PostgresEngineStore {
    fn query(
        &self,
        action: &'static str,
        statement: &'static str,
        owned: Vec<OwnedValue>,
    ) -> Result<Vec<Row>, StoreError> {
        let pool = self.core.pool.clone();
        let rows = self.core.query(async move {
            let values: Vec<(&(dyn ToSql + Sync), Type)> = owned
                .iter()
                .map(|(value, kind)| (&**value as &(dyn ToSql + Sync), kind.clone()))
                .collect();
            pool.rows(statement, &values).await
        });
        rows.map_err(|error| StoreError::Database { action, reason: error.into_reason() })
    }

    fn engine(&self) -> OwnedValue {
        (Box::new(self.engine.clone()), Type::TEXT)
    }
}

fn bytes(bytes: &[u8]) -> OwnedValue {
    // Keys and values are bytes in the database: text columns reject zero bytes, and sort by
    // the collation of the server.
    (Box::new(bytes.to_vec()), Type::BYTEA)
}

impl EngineStore for PostgresEngineStore {
    fn get(&self, key: &str) -> Result<Option<String>, StoreError> {
        let statement = "select value from @.engine_values where engine = $1 and key = $2";
        let rows =
            self.query("read a value", statement, vec![self.engine(), bytes(key.as_bytes())])?;
        Ok(rows.first().map(|row| String::from_utf8_lossy(row.get(0)).into_owned()))
    }

    fn put(&self, key: &str, value: &str) -> Result<(), StoreError> {
        check_key(key)?;
        let statement = "insert into @.engine_values (engine, key, value) values ($1, $2, $3) \
                         on conflict (engine, key) do update set value = excluded.value";
        let values = vec![self.engine(), bytes(key.as_bytes()), bytes(value.as_bytes())];
        self.query("write a value", statement, values).map(drop)
    }

    fn delete(&self, key: &str) -> Result<(), StoreError> {
        let statement = "delete from @.engine_values where engine = $1 and key = $2";
        self.query("remove a value", statement, vec![self.engine(), bytes(key.as_bytes())])
            .map(drop)
    }

    fn list(&self, prefix: &str) -> Result<Vec<String>, StoreError> {
        // No `like`, where % and _ in a prefix would be wildcards.
        let statement = "select key from @.engine_values where engine = $1 \
                         and substring(key from 1 for length($2)) = $2 order by key";
        let rows =
            self.query("list values", statement, vec![self.engine(), bytes(prefix.as_bytes())])?;
        let key = |row: &Row| String::from_utf8_lossy(row.get(0)).into_owned();
        Ok(rows.iter().map(key).collect())
    }

    fn put_blob(&self, content: &[u8]) -> Result<String, StoreError> {
        let handle = hash(content);
        let statement = "insert into @.blobs (handle, bytes) values ($1, $2) \
                         on conflict (handle) do nothing";
        let values: Vec<OwnedValue> = vec![(Box::new(handle.clone()), Type::TEXT), bytes(content)];
        self.query("write a blob", statement, values)?;
        Ok(handle)
    }

    fn get_blob(&self, handle: &str) -> Result<Option<Vec<u8>>, StoreError> {
        let statement = "select bytes from @.blobs where handle = $1";
        let values: Vec<OwnedValue> = vec![(Box::new(handle.to_owned()), Type::TEXT)];
        let rows = self.query("read a blob", statement, values)?;
        let Some(found) = rows.first().map(|row| row.get::<_, Vec<u8>>(0)) else { return Ok(None) };
        // The handle is a promise to the engine: other bytes under it would be an invented history.
        if hash(&found) != handle {
            let reason = format!("the bytes of blob {handle} do not match its hash");
            return Err(StoreError::Database { action: "read a blob", reason });
        }
        Ok(Some(found))
    }

    fn size(&self) -> Result<StoreSize, StoreError> {
        let statement = "select count(*), coalesce(sum(length(key) + length(value)), 0)::bigint \
                         from @.engine_values where engine = $1";
        let rows = self.query("count values", statement, vec![self.engine()])?;
        let number = |row: &Row, at: usize| u64::try_from(row.get::<_, i64>(at)).unwrap_or(0);
        let size = |row: &Row| StoreSize { entries: number(row, 0), bytes: number(row, 1) };
        Ok(rows.first().map(size).unwrap_or_default())
    }
}
