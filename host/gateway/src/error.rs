//! Why a gateway does not open.

use std::path::PathBuf;

use ctxhost_agent::BuildError;
use ctxhost_dialects::failure::PhraseError;
use ctxhost_provider::{ApiKeyError, ConnectError};

/// Why a gateway does not open, or ends.
#[derive(Debug, thiserror::Error)]
pub enum GatewayError {
    /// The address is none.
    #[error(
        "`{address}` is no address to listen on ({problem}); write it as 127.0.0.1:8787, port 0 for a free one"
    )]
    Address {
        /// What was written.
        address: String,
        /// What is wrong with it.
        problem: String,
    },
    /// Others than this machine could reach it, and nothing protects it.
    #[error(
        "refusing to listen on {address} without {lacks}; {advice}, or say --i-know-this-is-exposed"
    )]
    Exposed {
        /// The address.
        address: String,
        /// `TLS`, `a token`, or both.
        lacks: &'static str,
        /// What to do about it.
        advice: &'static str,
    },
    /// The token is so short that it can be guessed.
    #[error(
        "the token of the gateway has {chars} characters and needs at least {least}; make one with `openssl rand -hex 24` and put it into the variable {variable} (gateway.token_env)"
    )]
    ShortToken {
        /// How many it has.
        chars: usize,
        /// How many it needs.
        least: usize,
        /// The variable that it comes from.
        variable: String,
    },
    /// The port cannot be had.
    #[error("cannot listen on {address}: {cause}; another port with --listen, 0 for a free one")]
    Bind {
        /// The address.
        address: String,
        /// Why not.
        cause: std::io::Error,
    },
    /// The certificate or its key cannot be used.
    #[error("{} cannot be used: {problem}; it must be {wanted} in PEM", path.display())]
    Tls {
        /// The file.
        path: PathBuf,
        /// Why not.
        problem: String,
        /// What should stand there.
        wanted: &'static str,
    },
    /// Somebody to ask that cannot be asked.
    #[error("the upstream `{upstream}` cannot be used: {problem}")]
    Upstream {
        /// What was written.
        upstream: String,
        /// Why not, and what to do.
        problem: String,
    },
    /// The key of an upstream is not there.
    #[error(transparent)]
    Key(#[from] ConnectError),
    /// The program that prints it failed.
    #[error(transparent)]
    KeyCommand(#[from] ApiKeyError),
    /// A phrase of an upstream that cannot be matched.
    #[error(transparent)]
    Phrase(#[from] PhraseError),
    /// The engines cannot be had.
    #[error(transparent)]
    Runtime(#[from] BuildError),
}
