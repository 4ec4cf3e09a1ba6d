//! The tables, version by version.

use tokio_postgres::types::Type;

use super::address::DatabaseAddress;
use super::database_thread::DatabaseThread;
use super::pool::{ConnectionPool, QueryError};
use crate::error::StoreOpenError;
use crate::settings::StoreSettings;

/// All versions in order. One that was released is never changed.
const VERSIONS: [&str; 3] = [
    include_str!("schema/0001_sessions.sql"),
    include_str!("schema/0002_lanes.sql"),
    include_str!("schema/0003_engines.sql"),
];

/// The version that this program works with.
#[allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap)]
const NEWEST: i32 = VERSIONS.len() as i32;

/// Two programs that migrate at the same time do it one after the other: `ctxhost` in ASCII.
const LOCK: i64 = 0x0063_7478_686f_7374;

/// Makes the tables, or brings them to the newest version. Answers the version found and that left.
///
/// # Errors
///
/// [`StoreOpenError`]; nothing has changed then.
pub fn migrate(settings: &StoreSettings) -> Result<(i32, i32), StoreOpenError> {
    check_name(&settings.schema)?;
    let address = DatabaseAddress::from_settings(settings)?;
    let pool = ConnectionPool::new(&address, &settings.schema, settings.timeout_ms, 1);
    let (schema, place) = (settings.schema.clone(), address.location());
    let link = DatabaseThread::start().map_err(|source| StoreOpenError::Thread { source })?;
    let outcome = link.block_on(async move { migrate_with(&pool, &schema).await });
    let outcome = outcome.unwrap_or_else(|| Err(QueryError::Lost("it is closed".into())));
    let found = outcome.map_err(|trouble| StoreOpenError::Unreachable {
        place: place.clone(),
        reason: trouble.into_reason(),
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
    let mut line = pool.acquire().await?;
    let outcome = async {
        line.run_batch(&format!("begin; select pg_advisory_xact_lock({LOCK})")).await?;
        line.run_batch(&format!(
            "create schema if not exists {schema}; \
             create table if not exists @.versions (version int primary key, \
             migrated_at timestamptz not null default clock_timestamp())"
        ))
        .await?;
        let rows = line.rows("select coalesce(max(version), 0) from @.versions", &[]).await?;
        let found: i32 = rows.first().map_or(0, |row| row.get(0));
        for (version, statements) in (1..).zip(VERSIONS).filter(|(version, _)| *version > found) {
            line.run_batch(statements).await?;
            let values: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 1] =
                [(&version, Type::INT4)];
            line.rows("insert into @.versions (version) values ($1)", &values).await?;
        }
        line.run_batch("commit").await?;
        Ok(found)
    };
    let outcome = outcome.await;
    if outcome.is_err() {
        line.discard();
    }
    outcome
}

/// Whether the tables are there in the version of this program.
pub(super) async fn check(pool: &ConnectionPool, schema: &str) -> Result<(), StoreOpenError> {
    let (place, schema) = (pool.location(), schema.to_owned());
    let unreachable = |trouble: QueryError| StoreOpenError::Unreachable {
        place: pool.location(),
        reason: trouble.into_reason(),
    };
    let values: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 1] =
        [(&format!("{schema}.versions"), Type::TEXT)];
    let rows = pool.rows("select to_regclass($1) is not null", &values).await;
    let is_there = rows.map_err(unreachable)?.first().is_some_and(|row| row.get(0));
    let found: i32 = if is_there {
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

/// A name that needs no quotes anywhere.
pub(super) fn check_name(schema: &str) -> Result<(), StoreOpenError> {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let begins = schema.starts_with(|c: char| c.is_ascii_lowercase() || c == '_');
    // PostgreSQL cuts longer names off, and two could become one.
    if begins && schema.chars().all(is_plain) && schema.len() <= 63 {
        return Ok(());
    }
    Err(StoreOpenError::BadSchema { schema: schema.to_owned() })
}
