//! Options for starting a gateway.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use secrecy::{ExposeSecret as _, SecretString};
use tokio_rustls::TlsAcceptor;

use super::auth::MIN_TOKEN_CHARS;
use super::dashboard::dashboard_folder;
use super::error::GatewayError;
use super::tls;
use ctxhost_agent::engine_options::failure_log;
use ctxhost_agent::{Runtime, RuntimeBuilder};
use ctxhost_blobs::BlobDirs;
use ctxhost_config::Config;

/// The config of a gateway, and overrides of it.
#[derive(Clone, Debug)]
pub struct GatewayOptions {
    /// The config.
    pub config: Config,
    /// The state folder: sessions below `gateway`, engine stores, the failure log.
    pub state: PathBuf,
    /// The folder of dashboard links, where `ctxhost ui` finds the gateway.
    pub dashboard: PathBuf,
    /// Replaces `gateway.listen`.
    pub listen: Option<String>,
    /// Upstreams by dialect; they override `gateway.upstreams`.
    pub upstreams: BTreeMap<String, String>,
    /// The token that clients must send; `None` for no token.
    pub token: Option<SecretString>,
    /// Whether a path may begin with the token, for clients that can be configured with a URL only.
    pub token_in_path: bool,
    /// Certificate and key; they replace `gateway.tls_cert` and `gateway.tls_key`.
    pub tls: Option<(PathBuf, PathBuf)>,
    /// Allows an address that other machines can reach without protection.
    pub allow_exposed: bool,
    /// The config file whose changes are applied at run time. It need not exist yet.
    pub watched_config: Option<PathBuf>,
}

impl GatewayOptions {
    /// The options of a config, with the token from its environment variable.
    pub fn from_config(config: &Config, state: impl Into<PathBuf>) -> GatewayOptions {
        let token = read_token(std::env::var_os(&config.gateway.token_env));
        let state = state.into();
        GatewayOptions {
            config: config.clone(),
            dashboard: dashboard_folder(&state),
            state,
            listen: None,
            upstreams: BTreeMap::new(),
            token,
            token_in_path: false,
            tls: None,
            allow_exposed: false,
            watched_config: Some(config.name()).filter(|name| !name.is_empty()).map(PathBuf::from),
        }
    }

    /// Checks the length of the token.
    ///
    /// # Errors
    ///
    /// [`GatewayError::ShortToken`].
    pub(super) fn check_token(&self) -> Result<(), GatewayError> {
        let Some(token) = &self.token else { return Ok(()) };
        let (chars, least) = (token.expose_secret().chars().count(), MIN_TOKEN_CHARS);
        if chars >= least {
            return Ok(());
        }
        let variable = self.config.gateway.token_env.clone();
        Err(GatewayError::ShortToken { chars, least, variable })
    }

    /// The TLS acceptor, if a certificate is configured.
    pub(super) fn acceptor(&self) -> Result<Option<TlsAcceptor>, GatewayError> {
        let settings = &self.config.gateway;
        let configured = || Some((settings.tls_cert.as_deref()?, settings.tls_key.as_deref()?));
        let given = self.tls.as_ref().map(|(cert, key)| (cert.as_path(), key.as_path()));
        let files: Option<(&Path, &Path)> = given.or_else(configured);
        files.map(|(cert, key)| tls::acceptor(cert, key)).transpose()
    }

    /// Builds the runtime. It has no models and no tools, because clients bring their own.
    pub(super) async fn runtime(&self) -> Result<Runtime, GatewayError> {
        let mut config = self.config.clone();
        // The gateway must start without the key of a configured agent model.
        config.agent.model = None;
        config.agent.fallbacks = Vec::new();
        let state = &self.state;
        let mut builder = RuntimeBuilder::from_config(&config)
            .without_builtin_tools()
            .store_folder(state.join("store"))
            .memory_folder(state.join("memory"))
            .shadow_log(state.join(ctxhost_agent::shadow::log::FILE_NAME))
            .failure_log(failure_log(&config, state))
            .blob_dirs(BlobDirs::from_state_dir(state));
        if let Some(watched) = &self.watched_config {
            builder = builder.watch_config(watched, state);
        }
        Ok(builder.build().await?)
    }
}

/// The token in an environment variable. One that is set but empty, as a failed command leaves it, is a token
/// that is too short: without it the gateway would serve everyone.
fn read_token(variable: Option<OsString>) -> Option<SecretString> {
    variable.map(|token| SecretString::from(token.to_string_lossy().trim()))
}

/// Refuses an unprotected public address: anyone who can connect can spend the user's money and read their
/// sessions.
pub(super) fn refuse_exposure(
    address: SocketAddr,
    token: bool,
    tls: bool,
    variable: &str,
) -> Result<(), GatewayError> {
    if address.ip().is_loopback() {
        return Ok(());
    }
    let set_token =
        format!("set {variable} (gateway.token_env) to the output of `openssl rand -hex 24`");
    let (lacks, advice) = match (tls, token) {
        (true, true) => return Ok(()),
        (false, true) => ("TLS", "use --tls-cert and --tls-key".to_owned()),
        (true, false) => ("a token", set_token),
        (false, false) => {
            ("TLS and a token", format!("use --tls-cert and --tls-key, and {set_token}"))
        }
    };
    Err(GatewayError::Exposed { address: address.to_string(), lacks, advice })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_token_is_refused_with_a_remedy() {
        let refused = |token: &str| {
            let options = GatewayOptions::from_config(&Config::default(), "state");
            let options = GatewayOptions { token: read_token(Some(token.into())), ..options };
            options.check_token().map_err(|error| error.to_string())
        };
        assert_eq!(refused("0123456789abcdef"), Ok(()));
        let error = refused("0123456789abcde").unwrap_err();
        assert!(error.contains("15 characters") && error.contains("at least 16"), "{error}");
        assert!(error.contains("openssl rand") && error.contains("CTXHOST_TOKEN"), "{error}");
        assert!(!error.contains("0123456789"), "{error}");
        assert!(refused("").unwrap_err().contains("0 characters"));
        assert!(refused(" \n").unwrap_err().contains("0 characters"));
        assert!(read_token(None).is_none());
        // Counted in characters, not bytes.
        assert!(refused("ääääääää").is_err());
    }

    #[test]
    fn public_addresses_need_token_and_tls() {
        let refused = |address: &str, token, tls| {
            let refused = refuse_exposure(address.parse().unwrap(), token, tls, "MY_TOKEN");
            refused.map_err(|error| error.to_string())
        };
        for own in ["127.0.0.1:1", "127.8.8.8:1", "[::1]:1"] {
            assert_eq!(refused(own, false, false), Ok(()));
        }
        assert_eq!(refused("0.0.0.0:8787", true, true), Ok(()));
        let error = refused("0.0.0.0:8787", true, false).unwrap_err();
        assert!(error.starts_with("refusing to listen on 0.0.0.0:8787 without TLS;"), "{error}");
        let error = refused("[::]:8787", false, true).unwrap_err();
        assert!(error.contains("without a token; set MY_TOKEN (gateway.token_env)"), "{error}");
        assert!(refused("10.1.1.1:1", false, false).unwrap_err().contains("TLS and a token"));
    }
}
