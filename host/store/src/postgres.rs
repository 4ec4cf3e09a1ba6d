//! Sessions in a PostgreSQL database, for many gateways on many machines.
//!
//! A session is given to one machine at a time: `lane` is how, and `schema/` says where it stands. The
//! rest of this room follows from one rule: whatever is written is one statement that holds the fence and
//! the number of the line against the session's row, so a machine that lost a session can wake up as
//! late as it likes.

mod address;
mod beat;
mod entries;
mod keeper;
mod lane;
mod letters;
mod link;
mod pool;
mod schema;
mod values;

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio_postgres::types::Type;

use super::error::OpenError;
use super::settings::StoreSettings;
use super::{KeptSession, SessionStore};
use address::Address;
use beat::Beat;
use ctxhost_engine::EngineStores;
use ctxhost_session::{Founding, Keeper, Session, SessionError};
use keeper::Rows;
use lane::Place;
use link::Link;
use pool::{Pool, Trouble};
use values::Values;

pub use schema::migrate;

/// Sessions in a PostgreSQL database. Clones are the same.
#[derive(Clone, Debug)]
pub struct PostgresStore {
    core: Arc<Core>,
}

/// What all open sessions of a store share.
#[derive(Debug)]
struct Core {
    pool: Arc<Pool>,
    beat: Arc<Beat>,
    /// Who this is, for other machines.
    name: String,
    /// Sessions opened so far, so that each has a name of its own.
    opened: AtomicU64,
    lease_ms: u64,
    wait_ms: u64,
    /// Last, so that what the others leave behind is still done.
    link: Link,
}

impl PostgresStore {
    /// Connects, and looks whether the tables are there.
    ///
    /// # Errors
    ///
    /// [`OpenError`].
    pub fn open(settings: &StoreSettings) -> Result<PostgresStore, OpenError> {
        schema::check_name(&settings.schema)?;
        let address = Address::of(settings)?;
        let (schema, timeout_ms) = (settings.schema.clone(), settings.timeout_ms);
        let link = Link::start().map_err(|source| OpenError::Thread { source })?;
        let pool = Arc::new(Pool::new(&address, &schema, timeout_ms, settings.connections));
        // Renewals do not wait behind statements.
        let heart = Pool::new(&address, &schema, timeout_ms, 1);
        let checked = {
            let pool = pool.clone();
            link.wait(async move { schema::check(&pool, &schema).await })
        };
        let gone = || OpenError::Unreachable { place: address.place(), reason: "it ended".into() };
        checked.unwrap_or_else(|| Err(gone()))?;
        let lease_ms = settings.lease_ms;
        let beat = Arc::new(Beat::default());
        link.spawn(beat::renew(Arc::downgrade(&beat), heart, lease_ms));
        let (name, opened) = (name_of_this_process(), AtomicU64::new(0));
        let wait_ms = settings.wait_ms;
        Ok(PostgresStore {
            core: Arc::new(Core { pool, beat, name, opened, lease_ms, wait_ms, link }),
        })
    }

    /// What other machines see as the holder of a session: host, process and a number by chance.
    pub fn name(&self) -> &str {
        &self.core.name
    }
}

impl SessionStore for PostgresStore {
    fn keep(&self, session: Session) -> Result<Session, SessionError> {
        session.kept_by(|founding| self.core.found(founding))
    }

    fn open(&self, id: &str) -> Result<Session, SessionError> {
        let lines = self.core.lines(id)?;
        let place = Place::at(&self.core, id, lines.next_seq);
        Session::of_keeper(id, &lines.bytes, Box::new(Rows::of(place)))
    }

    fn read(&self, id: &str) -> Result<Session, SessionError> {
        Ok(Session::parse(id, &self.core.lines(id)?.bytes)?.read_only())
    }

    fn list(&self, cwd: Option<&Path>) -> Result<Vec<KeptSession>, SessionError> {
        let cwd = cwd.map(|cwd| std::path::absolute(cwd).unwrap_or_else(|_| cwd.to_owned()));
        let cwd = cwd.map(|cwd| cwd.display().to_string());
        let pool = self.core.pool.clone();
        let asked = self.core.link.wait(async move {
            let statement = "select id, cwd, (extract(epoch from changed_at) * 1000)::bigint \
                             from @.sessions where $1::text is null or cwd = $1 \
                             order by changed_at desc, id desc";
            pool.rows(statement, &[(&cwd, Type::TEXT)]).await
        });
        let rows = self.core.answer(asked).map_err(failed("list sessions"))?;
        let kept = |row: &tokio_postgres::Row| KeptSession {
            id: row.get(0),
            cwd: row.get(1),
            changed_ms: row.get(2),
        };
        Ok(rows.iter().map(kept).collect())
    }

    fn engines(&self) -> Option<Arc<dyn EngineStores>> {
        Some(Arc::new(Values::of(&self.core)))
    }
}

impl Core {
    fn found(self: &Arc<Self>, founding: &Founding<'_>) -> Result<Box<dyn Keeper>, SessionError> {
        let next_seq = self.write_all(founding)?;
        Ok(Box::new(Rows::of(Place::at(self, founding.id, next_seq))))
    }

    /// A name of its own for each session that is opened.
    fn name_of_place(&self) -> String {
        format!("{}/{}", self.name, self.opened.fetch_add(1, Ordering::Relaxed))
    }

    fn answer<T>(&self, answer: Option<Result<T, Trouble>>) -> Result<T, Trouble> {
        answer.unwrap_or_else(|| Err(Trouble::Lost("it is closed".into())))
    }
}

/// An error about the store, from what it said.
fn failed(action: impl Into<String>) -> impl FnOnce(Trouble) -> SessionError {
    let action = action.into();
    move |trouble| SessionError::Store { action, reason: trouble.into_reason() }
}

fn name_of_this_process() -> String {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let host = match host.trim() {
        "" => "unknown-host",
        host => host,
    };
    let chance = RandomState::new().build_hasher().finish();
    // The slash parts a holder's name from its numbers.
    format!("{}.{}.{:08x}", host.replace('/', "-"), std::process::id(), chance >> 32)
}
