//! Which store, where it is, and how long it may take.

use serde::{Deserialize, Serialize};

/// `[store]`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct StoreSettings {
    /// What keeps sessions.
    pub kind: StoreKind,
    /// The address of the database. One with a password belongs into `url_env`.
    pub url: Option<String>,
    /// The variable that holds the address.
    pub url_env: Option<String>,
    /// The schema that holds the tables.
    pub schema: String,
    /// Whether the connection is encrypted.
    pub sslmode: SslMode,
    /// Connections at the same time. Default 4: a statement takes a millisecond, a turn many seconds.
    pub connections: usize,
    /// How long a machine that says nothing keeps its sessions, in milliseconds. Default 15,000: two
    /// renewals may fail in a row, and a person still waits for the next machine.
    pub lease_ms: u64,
    /// How long a turn waits for one on another machine, in milliseconds. Default 300,000: most turns
    /// with tools are shorter.
    pub wait_ms: u64,
    /// How long a statement may take, with new connections and repetitions, in milliseconds. Default
    /// 10,000: a database that fails over is back by then, and the lease still lives.
    pub timeout_ms: u64,
}

impl Default for StoreSettings {
    fn default() -> Self {
        StoreSettings {
            kind: StoreKind::Files,
            url: None,
            url_env: None,
            schema: "ctxhost".into(),
            sslmode: SslMode::Auto,
            connections: 4,
            lease_ms: 15_000,
            wait_ms: 300_000,
            timeout_ms: 10_000,
        }
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
