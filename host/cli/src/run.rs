//! `ctxhost run`: runs an agent behind its own temporary gateway.

mod child;
mod clients;
mod other_upstreams;
mod token;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::process::{ExitCode, ExitStatus};

use tokio::process::Command;
use tokio_util::sync::CancellationToken;

use self::clients::{ClientCommand, ClientUpstreams, GatewayAddress};
use super::config::watched_config;
use super::error::CliError;
use super::log;
use super::output::Output;
use super::render::format::{format_count, group_digits};
use super::run_setup;
use super::serve::{NO_DASHBOARD_LINK, dashboard_address};
use ctxhost_config::Config;
use ctxhost_engine::state_folder;
use ctxhost_gateway::metrics::GatewayTotals;
use ctxhost_gateway::{Gateway, GatewayError, GatewayOptions, dashboard_folder};
use ctxhost_platform::files::{PRIVATE_FOLDER, permissions};
use ctxhost_platform::signals::run_in_foreground;

/// A free port of this machine.
const FREE_PORT: &str = "127.0.0.1:0";

/// Run an agent behind a gateway of its own.
///
/// The agent is configured through its environment, Codex through arguments. It keeps its keys; an
/// upstream address that its environment names is used as the upstream. Sessions are deleted at the
/// end; `ctxhost serve` keeps them.
#[derive(Debug, clap::Args)]
pub(super) struct RunArgs {
    /// Address to listen on; by default a free port of this machine.
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// Print the dashboard link, which works once; `ctxhost ui` prints another.
    #[arg(long)]
    ui: bool,
    /// Agent and its arguments.
    #[arg(trailing_var_arg = true, required = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

impl RunArgs {
    pub(super) fn run(
        self,
        config_path: Option<&Path>,
        output: &mut Output,
    ) -> Result<ExitCode, CliError> {
        let cwd = std::env::current_dir()?;
        let config = run_setup::find_config(config_path, &cwd, output)?;
        if config_path.is_none() {
            note_upstreams(&config, output);
        }
        let traces = log::start_traced(&config.telemetry, log::DefaultLogLevel::Errors)?;
        // Sessions of a temporary gateway live in this folder and are deleted with it.
        let mut folder = tempfile::Builder::new();
        folder.prefix("ctxhost-run-");
        // Private whatever the umask is.
        if let Some(owner_alone) = permissions(PRIVATE_FOLDER) {
            folder.permissions(owner_alone);
        }
        let state = folder.tempdir()?;
        let threads = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let outcome = threads.block_on(self.run_with_gateway(&config, state.path(), output));
        // The runtime ends before the traces: its tasks still create spans, and the exporter must
        // not be dropped inside a future.
        drop(threads);
        drop(traces);
        outcome
    }

    async fn run_with_gateway(
        self,
        config: &Config,
        state: &Path,
        output: &mut Output,
    ) -> Result<ExitCode, CliError> {
        // The port of the config belongs to `ctxhost serve`, which may be running.
        let listen = self.listen.clone().unwrap_or_else(|| FREE_PORT.to_owned());
        // What the agent's environment names is the real upstream; the child gets this gateway's
        // address instead.
        let upstreams = upstreams(&ClientUpstreams::of(&self.command, env_var));
        let mut options = GatewayOptions::from_config(config, state.to_owned());
        // The agent does not know the certificate, which is meant for clients on other machines.
        let gateway = &mut options.config.gateway;
        (gateway.tls_cert, gateway.tls_key) = (None, None);
        // Other users of this machine must not spend the agent's keys or read its conversation.
        let token = self::token::gateway_token(options.token.as_ref())?;
        let options = GatewayOptions {
            listen: Some(listen),
            watched_config: Some(watched_config(config)),
            upstreams,
            token: Some(token.clone()),
            // Most agents only accept a base URL, so the token is its first path segment.
            token_in_path: true,
            // `ctxhost ui` finds this gateway too, though its sessions are in a folder of its own.
            dashboard: dashboard_folder(&state_folder()),
            ..options
        };
        let gateway = Gateway::bind(options).await.map_err(bind_error)?;
        let (url, watch) = (gateway.url(), gateway.watch().clone());
        if self.ui {
            let link = dashboard_address(&gateway).map(|link| format!("dashboard {link}"));
            output.note(&format!("ctxhost: {}", link.as_deref().unwrap_or(NO_DASHBOARD_LINK)));
        }
        let runtime = gateway.runtime().clone();
        let stop = CancellationToken::new();
        let serving = tokio::spawn(gateway.serve(stop.clone()));
        let address = GatewayAddress { url, token };
        let client = clients::configure_client(self.command, &address, env_var);
        let is_noted = client.note.is_some();
        let ended = run_agent(client, output).await;
        // Before the gateway ends, and with it the engine.
        let engine = runtime.engine();
        // The gateway outlives the agent, so that requests at its very end are still answered.
        stop.cancel();
        let served = serving.await;
        let totals = watch.totals();
        output.note(&summary_line(totals, &engine));
        let is_unused = totals.requests == 0 && ended.as_ref().is_ok_and(ExitStatus::success);
        if is_unused && !is_noted {
            output.note(&format!("ctxhost: {}", clients::note_unused(&address)));
        }
        if let Err(error) = served {
            return Err(CliError::internal(format!("the gateway failed: {error}")));
        }
        Ok(match ended {
            // The exit code is the agent's, so that scripts can wrap it transparently.
            Ok(status) => child::exit_code(status),
            Err(error) => child::start_failure_code(&error),
        })
    }
}

/// Rewords the error about an exposed address, whose fix is a flag of `ctxhost serve`.
fn bind_error(error: GatewayError) -> CliError {
    match error {
        GatewayError::Exposed { address, .. } => CliError::user(format!(
            "other machines can reach {address}, but `ctxhost run` serves one agent on this machine; \
             use --listen 127.0.0.1:8787, or `ctxhost serve`"
        )),
        other => other.into(),
    }
}

async fn run_agent(client: ClientCommand, output: &mut Output) -> std::io::Result<ExitStatus> {
    let ClientCommand { command, variables, note } = client;
    if let Some(note) = note {
        output.note(&format!("ctxhost: {note}"));
    }
    let mut arguments = command.into_iter();
    let program = arguments.next().unwrap_or_default();
    let mut command = Command::new(&program);
    command.args(arguments).envs(variables);
    run_in_foreground(command).await.inspect_err(|error| {
        output.note(&format!("error: cannot start {}: {error}", program.to_string_lossy()));
    })
}

/// The summary that is printed at the end.
fn summary_line(sums: GatewayTotals, engine: &str) -> String {
    let GatewayTotals { requests, compactions, fallbacks, saved_tokens, .. } = sums;
    let requests = format_count(requests, "request");
    let compactions = format_count(compactions, "compaction");
    let saved = group_digits(saved_tokens);
    let line = format!("ctxhost: {requests}, {compactions}, {saved} tokens saved, engine {engine}");
    match fallbacks {
        0 => line,
        fallbacks => format!("{line} ({})", format_count(fallbacks, "fallback")),
    }
}

/// Names the servers that get the agent's keys and texts because a config says so that was found, not named.
fn note_upstreams(config: &Config, output: &mut Output) {
    let gateway = &config.gateway;
    for (requests, url) in gateway.upstreams.iter().chain(&gateway.models) {
        output.note(&format!("ctxhost: {requests} is sent to {url} ({})", config.name()));
    }
}

/// The upstreams that the environment names, by the keys of `[gateway.upstreams]`.
fn upstreams(named: &ClientUpstreams) -> BTreeMap<String, String> {
    let all = [
        ("anthropic-messages", &named.anthropic),
        ("openai-completions", &named.openai),
        ("openai-responses", &named.openai),
        ("google-generative-ai", &named.gemini),
    ];
    let named = all.into_iter().filter_map(|(word, url)| Some((word.to_owned(), url.clone()?)));
    named.collect()
}

fn env_var(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_is_one_line_and_counts_fallbacks() {
        let sums = GatewayTotals {
            requests: 12,
            compactions: 1,
            saved_tokens: 34_567,
            ..GatewayTotals::default()
        };
        assert_eq!(
            summary_line(sums, "legacy"),
            "ctxhost: 12 requests, 1 compaction, 34,567 tokens saved, engine legacy"
        );
        let sums = GatewayTotals { fallbacks: 3, ..sums };
        assert!(summary_line(sums, "mask").ends_with("engine mask (3 fallbacks)"));
    }
}
