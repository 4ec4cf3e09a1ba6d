//! `ctxhost serve`: the gateway, until it is told to end.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use tokio_util::sync::CancellationToken;

use super::error::CliError;
use super::log;
use super::output::Output;
use super::run_setup;
use ctxhost_config::{Config, is_url};
use ctxhost_dialects::DialectName;
use ctxhost_engine::state_folder;
use ctxhost_gateway::{Gateway, GatewayError, GatewayOptions};
use ctxhost_store::StoreKind;

/// Let agents of others send their requests through the engine of the slot.
///
/// An agent is pointed at it by its base URL. What an engine need not touch goes on byte for byte.
#[derive(Debug, clap::Args)]
pub(super) struct ServeArgs {
    /// Address and port to listen on; port 0 for a free one [default: gateway.listen of the config].
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// Who is asked: an address for all, or <dialect>=<address or provider>; may be given several times.
    #[arg(long, value_name = "URL|DIALECT=URL", value_parser = parse_upstream)]
    upstream: Vec<(Vec<&'static str>, String)>,
    /// The gateway's certificates, PEM.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    tls_cert: Option<PathBuf>,
    /// The key of its certificate, PEM.
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Listen where other machines can reach it, without a token or without TLS.
    #[arg(long)]
    i_know_this_is_exposed: bool,
}

/// The dialects that are meant, and who is asked in them. One of OpenAI's two counts for the other where
/// nobody names that one.
fn parse_upstream(written: &str) -> Result<(Vec<&'static str>, String), String> {
    if is_url(written) {
        return Ok((DialectName::INBOUND.map(DialectName::as_str).into(), written.to_owned()));
    }
    let Some((dialect, upstream)) = written.split_once('=') else {
        return Err(
            "write an address that begins with http:// or https://, or dialect=address".into()
        );
    };
    let meant = DialectName::parse(dialect).filter(|it| DialectName::INBOUND.contains(it));
    let meant = meant.ok_or_else(|| {
        format!("`{dialect}` is no dialect; write anthropic, openai, responses or gemini")
    })?;
    Ok((vec![meant.as_str()], upstream.to_owned()))
}

impl ServeArgs {
    pub(super) fn run(
        self,
        config_path: Option<&Path>,
        output: &mut Output,
    ) -> Result<ExitCode, CliError> {
        let config = run_setup::find_config(config_path, &std::env::current_dir()?, output)?;
        let _traces = log::start_traced(&config.telemetry, log::DefaultLogLevel::Warnings)?;
        let options = self.options(GatewayOptions::from_config(&config, state_folder()));
        raise_open_file_limit();
        let asks_for_token = options.token.is_some();
        let threads = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        threads.block_on(async {
            // Whoever ends it as soon as it says that it listens must be heard.
            let end = shutdown_token()?;
            let gateway = Gateway::bind(options).await?;
            output.note(&greeting(&gateway, asks_for_token));
            note_session_storage(&config, output);
            gateway.serve(end).await;
            Ok(ExitCode::SUCCESS)
        })
    }

    fn options(self, options: GatewayOptions) -> GatewayOptions {
        let mut upstreams = BTreeMap::new();
        for (dialects, upstream) in self.upstream {
            for dialect in dialects {
                upstreams.insert(dialect.to_owned(), upstream.clone());
            }
        }
        GatewayOptions {
            listen: self.listen,
            upstreams,
            tls: self.tls_cert.zip(self.tls_key),
            allow_exposed: self.i_know_this_is_exposed,
            ..options
        }
    }
}

/// The conversations of clients are in files of this machine, whatever `[store]` says.
fn note_session_storage(config: &Config, output: &mut Output) {
    if config.store.kind != StoreKind::Files {
        output.note(
            "ctxhost: [store] kind = \"postgres\" holds the sessions of chat and of programs; the gateway keeps the \
             conversations of its clients in files of this machine, so let one gateway serve one client",
        );
    }
}

/// A connection is a file, and the usual limit is below `gateway.max_connections`.
fn raise_open_file_limit() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let raised = rustix::process::Rlimit { current: limit.maximum, ..limit };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        tracing::debug!(%error, "the limit of open files stays as it is");
    }
}

/// Where it is, who serves, and what an agent has to be told.
fn greeting(gateway: &Gateway, asks_for_token: bool) -> String {
    let url = gateway.url();
    let engine = gateway.runtime().engine();
    let link = gateway.watch().dashboard_link();
    let token = if asks_for_token { "  token asked for" } else { "" };
    format!(
        "ctxhost: listening {url}  engine {engine}{token}\n  \
         ANTHROPIC_BASE_URL={url}  OPENAI_BASE_URL={url}/v1  GOOGLE_GEMINI_BASE_URL={url}\n  \
         dashboard {url}{link}"
    )
}

/// Cancelled by the first signal to end. A second one ends the process at once, whatever is on its way.
fn shutdown_token() -> Result<CancellationToken, CliError> {
    let end = CancellationToken::new();
    let mut signals = ShutdownSignals::listen()?;
    let told = end.clone();
    tokio::spawn(async move {
        signals.next().await;
        told.cancel();
        signals.next().await;
        std::process::exit(1);
    });
    Ok(end)
}

/// The signals that end a server.
struct ShutdownSignals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
    /// Its terminal is closed.
    hang_up: tokio::signal::unix::Signal,
}

impl ShutdownSignals {
    fn listen() -> std::io::Result<ShutdownSignals> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(ShutdownSignals {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            _ = self.hang_up.recv() => {}
        }
    }
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
