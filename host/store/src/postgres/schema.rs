//! The database schema and its migrations.

use tokio_postgres::types::Type;

use super::address::DatabaseAddress;
use super::database_thread::DatabaseThread;
use super::pool::{ConnectionPool, QueryError};
use crate::error::StoreOpenError;
use crate::settings::StoreSettings;

/// All migrations in order. A released one is never changed.
const VERSIONS: [&str; 3] = [
    include_str!("schema/0001_sessions.sql"),
    include_str!("schema/0002_lanes.sql"),
    include_str!("schema/0003_engines.sql"),
];

/// The schema version of this program.
#[allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap)]
const NEWEST: i32 = VERSIONS.len() as i32;

/// The key of the advisory lock that serializes migrations: `ctxhost` in ASCII.
const LOCK: i64 = 0x0063_7478_686f_7374;

/// Creates the tables or migrates them. Returns the version found and the version now.
///
/// # Errors
///
/// [`StoreOpenError`]; nothing is changed then.
pub fn migrate(settings: &StoreSettings) -> Result<(i32, i32), StoreOpenError> {
    check_name(&settings.schema)?;
    let address = DatabaseAddress::from_settings(settings)?;
    let pool = ConnectionPool::new(&address, &settings.schema, settings.timeout_ms, 1);
    let (schema, place) = (settings.schema.clone(), address.location());
    let thread = DatabaseThread::start().map_err(|source| StoreOpenError::Thread { source })?;
    let outcome = thread.block_on(async move { migrate_with(&pool, &schema).await });
    let outcome = outcome.unwrap_or_else(|| Err(QueryError::Lost("the store thread ended".into())));
    let found = outcome.map_err(|error| StoreOpenError::Unreachable {
        place: place.clone(),
        reason: error.into_reason(),
    })?;
    if found > NEWEST {
        let schema = settings.schema.clone();
        return Err(StoreOpenError::SchemaTooNew { place, schema, found, known: NEWEST });
    }
    Ok((found, NEWEST))
}

async fn migrate_with(pool: &ConnectionPool, schema: &str) -> Result<i32, QueryError> {
    let mut retry = pool.retry();
    loop {
        match migrate_once(pool, schema).await {
            Err(QueryError::Lost(reason)) if retry.wait_for_retry(&reason).await => {}
            outcome => return outcome,
        }
    }
}

async fn migrate_once(pool: &ConnectionPool, schema: &str) -> Result<i32, QueryError> {
    let mut connection = pool.acquire().await?;
    let outcome = async {
        // Two concurrent `create schema if not exists` can both find none, and one of them fails.
        connection.run_batch(&format!("begin; select pg_advisory_xact_lock({LOCK})")).await?;
        connection
            .run_batch(&format!(
                "create schema if not exists {schema}; \
             create table if not exists @.versions (version int primary key, \
             migrated_at timestamptz not null default clock_timestamp())"
            ))
            .await?;
        let rows = connection.rows("select coalesce(max(version), 0) from @.versions", &[]).await?;
        let found: i32 = rows.first().map_or(0, |row| row.get(0));
        for (version, statements) in (1..).zip(VERSIONS).filter(|(version, _)| *version > found) {
            connection.run_batch(statements).await?;
            let values: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 1] =
                [(&version, Type::INT4)];
            connection.rows("insert into @.versions (version) values ($1)", &values).await?;
        }
        connection.run_batch("commit").await?;
        Ok(found)
    };
    let outcome = outcome.await;
    if outcome.is_err() {
        // The transaction and its lock end with the connection.
        connection.discard();
    }
    outcome
}

/// Checks that the tables exist in the version of this program.
pub(super) async fn check(pool: &ConnectionPool, schema: &str) -> Result<(), StoreOpenError> {
    let (place, schema) = (pool.location(), schema.to_owned());
    let unreachable = |error: QueryError| StoreOpenError::Unreachable {
        place: pool.location(),
        reason: error.into_reason(),
    };
    let values: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 1] =
        [(&format!("{schema}.versions"), Type::TEXT)];
    // Selecting from a missing table would be an error like any other.
    let rows = pool.rows("select to_regclass($1) is not null", &values).await;
    let exists = rows.map_err(unreachable)?.first().is_some_and(|row| row.get(0));
    let found: i32 = if exists {
        let rows = pool.rows("select coalesce(max(version), 0) from @.versions", &[]).await;
        rows.map_err(unreachable)?.first().map_or(0, |row| row.get(0))
    } else {
        0
    };
    match found {
        NEWEST => Ok(()),
        newer if newer > NEWEST => {
            Err(StoreOpenError::SchemaTooNew { place, schema, found, known: NEWEST })
        }
        _ => Err(StoreOpenError::SchemaTooOld { place, schema, found, wanted: NEWEST }),
    }
}

/// Checks that a schema name needs no quotes.
pub(super) fn check_name(schema: &str) -> Result<(), StoreOpenError> {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let has_valid_start = schema.starts_with(|c: char| c.is_ascii_lowercase() || c == '_');
    // PostgreSQL truncates longer names, so two of them could become equal.
    if has_valid_start && schema.chars().all(is_plain) && schema.len() <= 63 {
        return Ok(());
    }
    Err(StoreOpenError::BadSchema { schema: schema.to_owned() })
}
