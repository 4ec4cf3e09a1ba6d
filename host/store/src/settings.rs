//! Settings of the store.

use serde::{Deserialize, Serialize};

ctxhost_engine_api::settings! {
    /// `[store]`.
    #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    pub struct StoreSettings {
        /// Where sessions are stored; a database is for several machines that share sessions (docs/stores.md).
        pub kind: StoreKind = StoreKind::Files, Word(&["files", "postgres"]);
        /// The address of the database, as `postgres://user@host/name`; put one with a password into
        /// url_env.
        pub url: Option<String> = None, Text;
        /// The environment variable with the address; takes precedence over url.
        pub url_env: Option<String> = None, Variable;
        /// The schema of the tables; several installations can share a database with different
        /// schemas.
        pub schema: String = "ctxhost".into(), Text;
        /// Whether to use TLS with certificate verification; auto does for connections to other
        /// machines.
        pub sslmode: SslMode = SslMode::Auto, Word(&["auto", "disable", "require"]);
        /// Maximum number of connections; a statement takes a millisecond, a turn many seconds.
        pub connections: usize = 4, Whole(1), "connections";
        /// How long a lease lasts without renewal; two renewals may fail, and a user may wait this
        /// long for another machine to take over.
        pub lease_ms: u64 = 15_000, Whole(100), "ms";
        /// How long a turn waits for a session leased to another machine; most turns are shorter.
        pub wait_ms: u64 = 300_000, Whole(0), "ms";
        /// How long a statement may take with reconnects and repetitions; a database failover is
        /// shorter, and the lease is still valid.
        pub timeout_ms: u64 = 10_000, Whole(100), "ms";
    }
}

/// Where sessions are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StoreKind {
    /// Local files.
    Files,
    /// A PostgreSQL database.
    Postgres,
}

/// Whether connections use TLS, always with certificate verification.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SslMode {
    /// To other machines only.
    Auto,
    /// Never.
    Disable,
    /// Always.
    Require,
}
