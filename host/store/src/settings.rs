//! Which store, where it is, and how long it may take.

use serde::{Deserialize, Serialize};

ctxhost_engine_api::settings! {
    /// `[store]`.
    #[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    pub struct StoreSettings {
        /// What keeps sessions; a database is for many gateways on many machines (docs/stores.md).
        pub kind: StoreKind = StoreKind::Files, Word(&["files", "postgres"]);
        /// The address of the database, as `postgres://user@host/name`; one with a password belongs
        /// into url_env.
        pub url: Option<String> = None, Text;
        /// The variable that holds the address; goes before url.
        pub url_env: Option<String> = None, Text;
        /// The schema that holds the tables; several hosts may share a database in schemas of their
        /// own.
        pub schema: String = "ctxhost".into(), Text;
        /// Whether the connection is encrypted, and the certificate checked; auto does so to every
        /// other machine.
        pub sslmode: SslMode = SslMode::Auto, Word(&["auto", "disable", "require"]);
        /// At the same time; a statement takes a millisecond, a turn many seconds.
        pub connections: usize = 4, Whole(1), "connections";
        /// How long a machine that says nothing keeps its sessions; two renewals may fail in a row,
        /// and a person still waits for the next machine.
        pub lease_ms: u64 = 15_000, Whole(100), "ms";
        /// How long a turn waits for one on another machine; most turns with tools are shorter.
        pub wait_ms: u64 = 300_000, Whole(0), "ms";
        /// How long a statement may take, with new connections and repetitions; a database that
        /// fails over is back by then, and the lease still lives.
        pub timeout_ms: u64 = 10_000, Whole(100), "ms";
    }
}

/// What keeps sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StoreKind {
    /// Files of this machine.
    Files,
    /// A PostgreSQL database.
    Postgres,
}

/// Whether the connection is encrypted. Where it is, the certificate is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SslMode {
    /// To another machine.
    Auto,
    /// Never.
    Disable,
    /// Always.
    Require,
}
