//! The tables, version by version.

use tokio_postgres::types::Type;

use super::address::Address;
use super::link::Link;
use super::pool::{Pool, Trouble};
use crate::error::OpenError;
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
/// [`OpenError`]; nothing has changed then.
pub fn migrate(settings: &StoreSettings) -> Result<(i32, i32), OpenError> {
    check_name(&settings.schema)?;
    let address = Address::of(settings)?;
    let pool = Pool::new(&address, &settings.schema, settings.timeout_ms, 1);
    let (schema, place) = (settings.schema.clone(), address.place());
    let link = Link::start().map_err(|source| OpenError::Thread { source })?;
    let outcome = link.wait(async move { migrate_with(&pool, &schema).await });
    let outcome = outcome.unwrap_or_else(|| Err(Trouble::Lost("it is closed".into())));
    let found = outcome.map_err(|trouble| OpenError::Unreachable {
        place: place.clone(),
        reason: trouble.into_reason(),
    })?;
    if found > NEWEST {
        let schema = settings.schema.clone();
        return Err(OpenError::Newer { place, schema, found, known: NEWEST });
    }
    Ok((found, NEWEST))
}

async fn migrate_with(pool: &Pool, schema: &str) -> Result<i32, Trouble> {
    let mut retry = pool.retry();
    loop {
        match migrate_once(pool, schema).await {
            Err(Trouble::Lost(reason)) if retry.again(&reason).await => {}
            outcome => return outcome,
        }
    }
}

async fn migrate_once(pool: &Pool, schema: &str) -> Result<i32, Trouble> {
    let mut line = pool.line().await?;
    let outcome = async {
        line.batch(&format!("begin; select pg_advisory_xact_lock({LOCK})")).await?;
        line.batch(&format!(
            "create schema if not exists {schema}; \
             create table if not exists @.versions (version int primary key, \
             migrated_at timestamptz not null default clock_timestamp())"
        ))
        .await?;
        let rows = line.rows("select coalesce(max(version), 0) from @.versions", &[]).await?;
        let found: i32 = rows.first().map_or(0, |row| row.get(0));
        for (version, statements) in (1..).zip(VERSIONS).filter(|(version, _)| *version > found) {
            line.batch(statements).await?;
            let values: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 1] =
                [(&version, Type::INT4)];
            line.rows("insert into @.versions (version) values ($1)", &values).await?;
        }
        line.batch("commit").await?;
        Ok(found)
    };
    let outcome = outcome.await;
    if outcome.is_err() {
        line.give_up();
    }
    outcome
}

/// Whether the tables are there in the version of this program.
pub(super) async fn check(pool: &Pool, schema: &str) -> Result<(), OpenError> {
    let (place, schema) = (pool.place(), schema.to_owned());
    let unreachable = |trouble: Trouble| OpenError::Unreachable {
        place: pool.place(),
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
        newer if newer > NEWEST => Err(OpenError::Newer { place, schema, found, known: NEWEST }),
        _ => Err(OpenError::Old { place, schema, found, wanted: NEWEST }),
    }
}

/// A name that needs no quotes anywhere.
pub(super) fn check_name(schema: &str) -> Result<(), OpenError> {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let begins = schema.starts_with(|c: char| c.is_ascii_lowercase() || c == '_');
    // PostgreSQL cuts longer names off, and two could become one.
    if begins && schema.chars().all(is_plain) && schema.len() <= 63 {
        return Ok(());
    }
    Err(OpenError::BadSchema { schema: schema.to_owned() })
}
