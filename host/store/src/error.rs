//! Errors of opening a store.

/// Why a store could not be opened. No message holds a password.
#[derive(Debug, thiserror::Error)]
pub enum StoreOpenError {
    /// The program was built without PostgreSQL support.
    #[error(
        "this ctxhost was built without PostgreSQL; build it with the cargo feature `postgres`, or set store.kind = \"files\""
    )]
    NotBuilt,
    /// No database address is configured.
    #[error("no database address is configured; set url or url_env under [store] in ctxhost.toml")]
    NoUrl,
    /// The environment variable for the address is not set.
    #[error(
        "the environment variable {variable} (store.url_env) is not set; set it to an address such as postgres://user@host/ctxhost"
    )]
    UrlNotSet {
        /// Its name.
        variable: String,
    },
    /// The address is invalid.
    #[error("invalid database address: {reason}; expected postgres://user@host/ctxhost")]
    BadUrl {
        /// What is wrong with it.
        reason: String,
    },
    /// The schema name would need quotes.
    #[error("invalid schema name {schema:?} (store.schema); use lower-case letters, digits and _")]
    BadSchema {
        /// The configured name.
        schema: String,
    },
    /// TLS cannot be configured, for example without system certificates.
    #[error("cannot prepare TLS for the store: {reason}")]
    Tls {
        /// What is wrong.
        reason: String,
    },
    /// The database is unreachable or rejects the connection.
    #[error("cannot use the store at {place}: {reason}")]
    Unreachable {
        /// Host, port and database.
        place: String,
        /// The error of the database.
        reason: String,
    },
    /// The schema is missing or older.
    #[error(
        "the store at {place} has version {found} of the schema {schema}, but version {wanted} is required; run `ctxhost store migrate`"
    )]
    SchemaTooOld {
        /// Host, port and database.
        place: String,
        /// The schema.
        schema: String,
        /// Its version; 0 if it is missing.
        found: i32,
        /// The version of this program.
        wanted: i32,
    },
    /// A newer program migrated the schema.
    #[error(
        "the store at {place} has version {found} of the schema {schema}, this program supports up to {known}; update ctxhost"
    )]
    SchemaTooNew {
        /// Host, port and database.
        place: String,
        /// The schema.
        schema: String,
        /// Its version.
        found: i32,
        /// The version of this program.
        known: i32,
    },
    /// The store thread could not be started.
    #[error("cannot start the thread of the store: {source}")]
    Thread {
        /// The error of the system.
        source: std::io::Error,
    },
}
