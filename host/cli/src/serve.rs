//! `ctxhost serve`: the gateway, until it is told to end.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use tokio_util::sync::CancellationToken;

use super::failure::Failure;
use super::log;
use super::output::Output;
use super::setup;
use ctxhost_config::{Config, is_address};
use ctxhost_dialects::DialectName;
use ctxhost_engine::state_folder;
use ctxhost_gateway::{Gateway, GatewayError, GatewayOptions};
use ctxhost_store::StoreKind;

/// Let agents of others send their requests through the engine of the slot.
///
/// An agent is pointed at it by its base URL. What an engine need not touch goes on byte for byte.
#[derive(Debug, clap::Args)]
pub(super) struct Serve {
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
    if is_address(written) {
        return Ok((DialectName::OF_CLIENTS.map(DialectName::word).into(), written.to_owned()));
    }
    let Some((dialect, upstream)) = written.split_once('=') else {
        return Err(
            "write an address that begins with http:// or https://, or dialect=address".into()
        );
    };
    let meant = DialectName::of_word(dialect).filter(|it| DialectName::OF_CLIENTS.contains(it));
    let meant = meant.ok_or_else(|| {
        format!("`{dialect}` is no dialect; write anthropic, openai, responses or gemini")
    })?;
    Ok((vec![meant.word()], upstream.to_owned()))
}

impl Serve {
    pub(super) fn run(
        self,
        config_path: Option<&Path>,
        output: &mut Output,
    ) -> Result<ExitCode, Failure> {
        let config = setup::find_config(config_path, &std::env::current_dir()?, output)?;
        let _traces = log::start_traced(&config.telemetry, log::Unasked::Warnings)?;
        let options = self.options(GatewayOptions::of(&config, state_folder()));
        open_as_many_files_as_may_be();
        let asks_for_token = options.token.is_some();
        let threads = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        threads.block_on(async {
            // Whoever ends it as soon as it says that it listens must be heard.
            let end = told_to_end()?;
            let gateway = Gateway::bind(options).await?;
            output.remark(&greeting(&gateway, asks_for_token));
            say_where_sessions_are(&config, output);
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
            is_exposed: self.i_know_this_is_exposed,
            ..options
        }
    }
}

/// The conversations of clients are in files of this machine, whatever `[store]` says.
fn say_where_sessions_are(config: &Config, output: &mut Output) {
    if config.store.kind != StoreKind::Files {
        output.remark(
            "ctxhost: [store] kind = \"postgres\" holds the sessions of chat and of programs; the gateway keeps the \
             conversations of its clients in files of this machine, so let one gateway serve one client",
        );
    }
}

/// A connection is a file, and the usual limit is below `gateway.max_connections`.
fn open_as_many_files_as_may_be() {
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
    let link = gateway.watch().link();
    let token = if asks_for_token { "  token asked for" } else { "" };
    format!(
        "ctxhost: listening {url}  engine {engine}{token}\n  \
         ANTHROPIC_BASE_URL={url}  OPENAI_BASE_URL={url}/v1  GOOGLE_GEMINI_BASE_URL={url}\n  \
         dashboard {url}{link}"
    )
}

/// Cancelled by the first signal to end. A second one ends the process at once, whatever is on its way.
fn told_to_end() -> Result<CancellationToken, Failure> {
    let end = CancellationToken::new();
    let mut signals = Signals::listen()?;
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
struct Signals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
    /// Its terminal is closed.
    hang_up: tokio::signal::unix::Signal,
}

impl Signals {
    fn listen() -> std::io::Result<Signals> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Signals {
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

impl From<GatewayError> for Failure {
    fn from(error: GatewayError) -> Self {
        match error {
            GatewayError::Runtime(error) => error.into(),
            GatewayError::KeyCommand(_) => Failure::internal(error.to_string()),
            other => Failure::caller(other.to_string()),
        }
    }
}
