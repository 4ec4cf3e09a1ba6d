//! Why a store could not be opened.

/// Why a store could not be opened. No message holds a password.
#[derive(Debug, thiserror::Error)]
pub enum StoreOpenError {
    /// The program was built without the driver of the database.
    #[error(
        "this ctxhost was built without PostgreSQL; build it with the cargo feature `postgres`, or set store.kind = \"files\""
    )]
    NotBuilt,
    /// Nobody says where the database is.
    #[error(
        "no address of a database is given; write url or url_env under [store] in ctxhost.toml"
    )]
    NoUrl,
    /// The variable that should hold the address holds nothing.
    #[error(
        "the variable {variable} (store.url_env) is not set; put an address such as postgres://user@host/ctxhost into it"
    )]
    UrlNotSet {
        /// Its name.
        variable: String,
    },
    /// The address is none.
    #[error("the address of the store is none: {reason}; write it as postgres://user@host/ctxhost")]
    BadUrl {
        /// What is wrong with it.
        reason: String,
    },
    /// The name of the schema would have to be quoted.
    #[error("{schema:?} is no name for a schema; take small letters, digits and _ (store.schema)")]
    BadSchema {
        /// What was written.
        schema: String,
    },
    /// The certificates of this machine cannot be used.
    #[error("cannot prepare TLS for the store: {reason}")]
    Tls {
        /// What is wrong.
        reason: String,
    },
    /// The database does not answer, or does not let us in.
    #[error("the store at {place} does not answer: {reason}")]
    Unreachable {
        /// Host, port and database.
        place: String,
        /// What it said.
        reason: String,
    },
    /// The schema is not there, or is older.
    #[error(
        "the store at {place} has version {found} of the schema {schema}, version {wanted} is needed; run `ctxhost store migrate`"
    )]
    SchemaTooOld {
        /// Host, port and database.
        place: String,
        /// The schema.
        schema: String,
        /// Its version; 0 where it is not there.
        found: i32,
        /// What this program works with.
        wanted: i32,
    },
    /// A newer program has migrated the schema.
    #[error(
        "the store at {place} has version {found} of the schema {schema}, this program knows up to {known}; update ctxhost"
    )]
    SchemaTooNew {
        /// Host, port and database.
        place: String,
        /// The schema.
        schema: String,
        /// Its version.
        found: i32,
        /// What this program works with.
        known: i32,
    },
    /// The thread of the store could not be started.
    #[error("cannot start the thread of the store: {source}")]
    Thread {
        /// What the system said.
        source: std::io::Error,
    },
}
