//! `ctxhost serve`: runs the gateway until a signal ends it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use tokio_util::sync::CancellationToken;

use super::config::watched_config;
use super::error::CliError;
use super::log;
use super::output::Output;
use super::run_setup;
use ctxhost_config::{Config, is_url};
use ctxhost_dialects::DialectName;
use ctxhost_engine::state_folder;
use ctxhost_gateway::{Gateway, GatewayError, GatewayOptions};
use ctxhost_platform::processes::{limit_arenas, raise_open_files};
use ctxhost_platform::signals::ShutdownSignals;
use ctxhost_store::StoreKind;

/// Run the HTTP gateway (Anthropic, OpenAI, Gemini, Ollama).
///
/// Set a client's base URL to its address. Requests that need no change are forwarded byte for
/// byte.
#[derive(Debug, clap::Args)]
pub(super) struct ServeArgs {
    /// Address and port to listen on, port 0 for a free one [default: gateway.listen].
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// Upstream for all dialects, or <dialect>=<address or provider>; can be repeated.
    #[arg(long, value_name = "URL|DIALECT=URL", value_parser = parse_upstream)]
    upstream: Vec<(Vec<&'static str>, String)>,
    /// Certificate chain of the gateway, PEM.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// Private key of its certificate, PEM.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Listen on an address that other machines can reach, without a token or without TLS.
    #[arg(long)]
    i_know_this_is_exposed: bool,
}

/// Parses --upstream: an address for all dialects, or one dialect. An upstream for one of OpenAI's
/// two dialects serves the other as well, unless that one has its own.
fn parse_upstream(written: &str) -> Result<(Vec<&'static str>, String), String> {
    if is_url(written) {
        return Ok((DialectName::INBOUND.map(DialectName::as_str).into(), written.to_owned()));
    }
    let Some((dialect, upstream)) = written.split_once('=') else {
        return Err(
            "write an address that begins with http:// or https://, or dialect=address".into()
        );
    };
    let known = DialectName::parse(dialect).filter(|name| DialectName::INBOUND.contains(name));
    let known = known.ok_or_else(|| {
        format!("unknown dialect `{dialect}`; write anthropic, openai, responses, gemini or ollama")
    })?;
    Ok((vec![known.as_str()], upstream.to_owned()))
}

impl ServeArgs {
    pub(super) fn run(
        self,
        config_path: Option<&Path>,
        output: &mut Output,
    ) -> Result<ExitCode, CliError> {
        limit_arenas();
        let config = run_setup::find_config(config_path, &std::env::current_dir()?, output)?;
        // Held to the end of the command: dropping it flushes the exporter.
        let _traces = log::start_traced(&config.telemetry, log::DefaultLogLevel::Warnings)?;
        let options = self.options(GatewayOptions::from_config(&config, state_folder()));
        // Before the runtime starts, which opens descriptors of its own.
        // Each connection needs a file descriptor, and the usual limit is below `gateway.max_connections`.
        raise_open_files();
        let needs_token = options.token.is_some();
        let threads = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        threads.block_on(async {
            // Signals are handled before the greeting is printed: a supervisor may stop the gateway
            // as soon as it reads it.
            let end = shutdown_token(config.gateway.drain_ms)?;
            let gateway = Gateway::bind(options).await?;
            output.note(&greeting(&gateway, needs_token));
            note_session_storage(&config, output);
            gateway.serve(end).await;
            Ok(ExitCode::SUCCESS)
        })
    }

    fn options(self, options: GatewayOptions) -> GatewayOptions {
        let mut upstreams = BTreeMap::new();
        for (dialects, upstream) in self.upstream {
            // Flags override the config per dialect; a later flag overrides an earlier one.
            for dialect in dialects {
                upstreams.insert(dialect.to_owned(), upstream.clone());
            }
        }
        GatewayOptions {
            listen: self.listen,
            watched_config: Some(watched_config(&options.config)),
            upstreams,
            tls: self.tls_cert.zip(self.tls_key),
            allow_exposed: self.i_know_this_is_exposed,
            ..options
        }
    }
}

/// Conversations of clients are stored in local files, whatever `[store]` says.
fn note_session_storage(config: &Config, output: &mut Output) {
    if config.store.kind != StoreKind::Files {
        output.note(
            "ctxhost: [store] applies to chat and to programs; the gateway stores conversations in local files, \
             so send each client to one gateway only",
        );
    }
}

/// The address, the active engine, and the variables to set in a client.
fn greeting(gateway: &Gateway, needs_token: bool) -> String {
    let url = gateway.url();
    let engine = gateway.runtime().engine();
    let dashboard = match dashboard_address(gateway) {
        Some(link) => format!("dashboard {link}  (works once; `ctxhost ui` prints another)"),
        None => NO_DASHBOARD_LINK.to_owned(),
    };
    let reach = if gateway.address().ip().is_unspecified() { "  on all addresses" } else { "" };
    let token = if needs_token { "  token required" } else { "" };
    format!(
        "ctxhost: listening {url}{reach}  engine {engine}{token}\n  \
         ANTHROPIC_BASE_URL={url}  OPENAI_BASE_URL={url}/v1  GOOGLE_GEMINI_BASE_URL={url}\n  \
         {dashboard}"
    )
}

/// Printed instead of a link; the log names the folder and the error.
pub(super) const NO_DASHBOARD_LINK: &str = "no link to the dashboard, since the state folder cannot be written; make it writable, or set CTXHOST_STATE_DIR to \
     another folder";

/// The address of the dashboard with a token; `None` if none could be stored.
pub(super) fn dashboard_address(gateway: &Gateway) -> Option<String> {
    let link = gateway.dashboard_link();
    // Without a token the path leads to a page that asks for one.
    link.contains('?').then(|| format!("{}{link}", gateway.url()))
}

/// A token that the first signal cancels. The second signal ends the process at once.
fn shutdown_token(drain_ms: u64) -> Result<CancellationToken, CliError> {
    let end = CancellationToken::new();
    let mut signals = ShutdownSignals::listen()?;
    let on_signal = end.clone();
    tokio::spawn(async move {
        let signal = signals.next().await;
        // A warning, which is logged by default: an operator has to see why the gateway stopped.
        tracing::warn!(
            signal,
            drain_ms,
            "stopping; running responses have gateway.drain_ms to finish, and a second signal stops at once"
        );
        on_signal.cancel();
        let signal = signals.next().await;
        tracing::warn!(signal, "stopping at once, with running responses aborted");
        // A stream that never ends must not keep a user from stopping the gateway.
        std::process::exit(1);
    });
    Ok(end)
}

impl From<GatewayError> for CliError {
    fn from(error: GatewayError) -> Self {
        match error {
            GatewayError::Runtime(error) => error.into(),
            GatewayError::KeyCommand(_) => CliError::internal(error.to_string()),
            other => CliError::user(other.to_string()),
        }
    }
}
