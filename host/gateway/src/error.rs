//! Errors at the start of a gateway.

use std::path::PathBuf;

use ctxhost_agent::BuildError;
use ctxhost_dialects::failure::PhraseError;
use ctxhost_provider::{ApiKeyError, ConnectError};

/// Why a gateway does not start.
#[derive(Debug, thiserror::Error)]
pub enum GatewayError {
    /// The listen address is invalid.
    #[error(
        "invalid listen address `{address}`: {problem}; write HOST:PORT, such as 127.0.0.1:8787 (port 0 selects a free one)"
    )]
    Address {
        /// The configured value.
        address: String,
        /// The cause.
        problem: String,
    },
    /// The address is reachable from other machines without protection.
    #[error(
        "refusing to listen on {address} without {lacks}; {advice}, or pass --i-know-this-is-exposed"
    )]
    Exposed {
        /// The address.
        address: String,
        /// `TLS`, `a token`, or both.
        lacks: &'static str,
        /// What to do.
        advice: String,
    },
    /// The token is too short.
    #[error(
        "the gateway token has {chars} characters and needs at least {least}; set {variable} (gateway.token_env) to the output of `openssl rand -hex 24`"
    )]
    ShortToken {
        /// Its length.
        chars: usize,
        /// The required length.
        least: usize,
        /// Its environment variable.
        variable: String,
    },
    /// The port cannot be bound.
    #[error(
        "cannot listen on {address}: {cause}; choose another port with --listen (0 selects a free one)"
    )]
    Bind {
        /// The address.
        address: String,
        /// The cause.
        cause: std::io::Error,
    },
    /// The certificate or its key is unusable.
    #[error("cannot use {}: {problem}; expected {expected} in PEM", path.display())]
    Tls {
        /// The file.
        path: PathBuf,
        /// The cause.
        problem: String,
        /// The expected content.
        expected: &'static str,
    },
    /// An upstream is unusable.
    #[error("cannot use the upstream `{upstream}`: {problem}")]
    Upstream {
        /// The configured value.
        upstream: String,
        /// The cause, and what to do.
        problem: String,
    },
    /// The key of an upstream is missing.
    #[error(transparent)]
    Key(#[from] ConnectError),
    /// The command that prints a key failed.
    #[error(transparent)]
    KeyCommand(#[from] ApiKeyError),
    /// An error phrase of an upstream is invalid.
    #[error(transparent)]
    Phrase(#[from] PhraseError),
    /// The runtime could not be built.
    #[error(transparent)]
    Runtime(#[from] BuildError),
}
