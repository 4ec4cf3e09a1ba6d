//! The address of the database and its TLS configuration.

use std::time::Duration;

use rustls::ClientConfig;
use rustls_platform_verifier::BuilderVerifierExt as _;
use tokio_postgres::config::{Host, SslMode as PgSslMode};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::error::StoreOpenError;
use crate::settings::{SslMode, StoreSettings};

/// The configuration of a connection.
#[derive(Clone)]
pub(super) struct DatabaseAddress {
    pub(super) config: tokio_postgres::Config,
    /// `None` without TLS.
    pub(super) tls: Option<MakeRustlsConnect>,
}

impl DatabaseAddress {
    /// Reads the address from the settings.
    pub(super) fn from_settings(
        settings: &StoreSettings,
    ) -> Result<DatabaseAddress, StoreOpenError> {
        let url = url(settings)?;
        let mut config: tokio_postgres::Config =
            url.parse().map_err(|error| StoreOpenError::BadUrl { reason: error_chain(&error) })?;
        if config.get_hosts().is_empty() {
            return Err(StoreOpenError::BadUrl { reason: "it has no host".into() });
        }
        let timeout = Duration::from_millis(settings.timeout_ms);
        // Three attempts have to fit into the limit.
        config.connect_timeout(timeout / 3);
        // Without these a stalled network keeps a dead connection in the pool for many minutes.
        config.tcp_user_timeout(timeout);
        config.keepalives_idle(timeout);
        // Operators find it in pg_stat_activity.
        if config.get_application_name().is_none() {
            config.application_name("ctxhost");
        }
        let is_encrypted = match settings.sslmode {
            SslMode::Require => true,
            SslMode::Disable => false,
            SslMode::Auto => {
                config.get_ssl_mode() == PgSslMode::Require || !is_this_machine(&config)
            }
        };
        // Never `prefer`, which falls back to plain text if someone on the network breaks TLS.
        config.ssl_mode(if is_encrypted { PgSslMode::Require } else { PgSslMode::Disable });
        let tls = if is_encrypted { Some(tls()?) } else { None };
        Ok(DatabaseAddress { config, tls })
    }

    /// Host, port and database, without credentials.
    pub(super) fn location(&self) -> String {
        let hosts: Vec<String> = self.config.get_hosts().iter().map(host_name).collect();
        let ports: Vec<String> = self.config.get_ports().iter().map(u16::to_string).collect();
        let ports = if ports.is_empty() { "5432".to_owned() } else { ports.join(",") };
        format!("{}:{ports}/{}", hosts.join(","), self.config.get_dbname().unwrap_or_default())
    }
}

fn url(settings: &StoreSettings) -> Result<String, StoreOpenError> {
    if let Some(variable) = &settings.url_env {
        let not_set = || StoreOpenError::UrlNotSet { variable: variable.clone() };
        return std::env::var(variable).ok().filter(|url| !url.is_empty()).ok_or_else(not_set);
    }
    settings.url.clone().ok_or(StoreOpenError::NoUrl)
}

fn host_name(host: &Host) -> String {
    match host {
        Host::Tcp(name) => name.clone(),
        #[cfg(unix)]
        Host::Unix(path) => path.display().to_string(),
    }
}

fn is_this_machine(config: &tokio_postgres::Config) -> bool {
    config.get_hosts().iter().all(|host| match host {
        Host::Tcp(name) => {
            let is_loopback = |ip: std::net::IpAddr| ip.is_loopback();
            name == "localhost" || name.parse().is_ok_and(is_loopback)
        }
        #[cfg(unix)]
        Host::Unix(_) => true,
    })
}

fn tls() -> Result<MakeRustlsConnect, StoreOpenError> {
    // Named here: rustls panics if it finds several providers and none is the default.
    let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
    let failed = |error: rustls::Error| StoreOpenError::Tls { reason: error.to_string() };
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(failed)?
        .with_platform_verifier()
        .map_err(failed)?
        .with_no_client_auth();
    Ok(MakeRustlsConnect::new(config))
}

/// An error and its causes in one line.
pub(super) fn error_chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(url: &str, sslmode: SslMode) -> Result<DatabaseAddress, StoreOpenError> {
        DatabaseAddress::from_settings(&StoreSettings {
            url: Some(url.into()),
            sslmode,
            ..StoreSettings::default()
        })
    }

    #[test]
    fn only_local_connections_are_unencrypted() {
        let encrypted = |url, sslmode| address(url, sslmode).unwrap().tls.is_some();
        assert!(!encrypted("postgres://a@localhost/db", SslMode::Auto));
        assert!(!encrypted("postgres://a@127.0.0.1:5433/db", SslMode::Auto));
        assert!(!encrypted("postgres://a@[::1]/db", SslMode::Auto));
        assert!(!encrypted("host=/run/postgresql dbname=db", SslMode::Auto));
        assert!(encrypted("postgres://a@localhost/db?sslmode=require", SslMode::Auto));
        assert!(encrypted("postgres://a@db.example/db", SslMode::Auto));
        assert!(encrypted("postgres://a@localhost,db.example/db", SslMode::Auto));
        assert!(!encrypted("postgres://a@db.example/db", SslMode::Disable));
        assert!(encrypted("postgres://a@localhost/db", SslMode::Require));
    }

    #[test]
    fn no_message_holds_a_password() {
        let whole = address("postgres://me:hunter2@db.example:1/db", SslMode::Auto).unwrap();
        assert_eq!(whole.location(), "db.example:1/db");
        for broken in ["postgres://me:hunter2@db.example:port/db", "postgres://me:hunter2@/db?x=1"]
        {
            let error = address(broken, SslMode::Auto).err().unwrap().to_string();
            assert!(!error.contains("hunter2"), "{error}");
        }
    }
}
