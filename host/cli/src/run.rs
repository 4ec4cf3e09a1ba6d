//! `ctxhost run`: an agent with a gateway of its own, which ends with it and leaves nothing behind.

mod child;
mod clients;
mod token;

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::{ExitCode, ExitStatus};

use tokio::process::Command;
use tokio_util::sync::CancellationToken;

use self::clients::{ClientCommand, ClientUpstreams, GatewayAddress};
use super::error::CliError;
use super::log;
use super::output::Output;
use super::render::format::{format_count, group_digits};
use super::run_setup;
use ctxhost_config::Config;
use ctxhost_gateway::metrics::GatewayTotals;
use ctxhost_gateway::{Gateway, GatewayError, GatewayOptions};

/// Where nobody else is told of it: a free port of this machine.
const FREE_PORT: &str = "127.0.0.1:0";

/// Run an agent behind a gateway that is there for it alone.
///
/// The agent is told by its environment, Codex by arguments. Its keys stay its own, an address that its
/// environment names already is asked in its place. Sessions are forgotten when it ends; `ctxhost serve`
/// keeps them.
#[derive(Debug, clap::Args)]
pub(super) struct RunArgs {
    /// Where to listen; without it, a free port of this machine.
    #[arg(long, value_name = "ADDRESS")]
    listen: Option<String>,
    /// Print the link of the dashboard. It opens once.
    #[arg(long)]
    ui: bool,
    /// The agent and its arguments.
    #[arg(
        trailing_var_arg = true,
        allow_hyphen_values = true,
        required = true,
        value_name = "COMMAND"
    )]
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
        let traces = log::start_traced(&config.telemetry, log::DefaultLogLevel::Errors)?;
        // Whatever the umask says: what stands in it are sessions.
        let owner_alone = std::fs::Permissions::from_mode(0o700);
        let state =
            tempfile::Builder::new().permissions(owner_alone).prefix("ctxhost-run-").tempdir()?;
        let threads = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let outcome = threads.block_on(self.run_with_gateway(&config, state.path(), output));
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
        let listen = self.listen.clone().unwrap_or_else(|| FREE_PORT.to_owned());
        let upstreams = upstreams(&ClientUpstreams::of(&self.command, env_var));
        let mut options = GatewayOptions::from_config(config, state.to_owned());
        // A certificate is for clients elsewhere; the agent knows nothing of it.
        let gateway = &mut options.config.gateway;
        (gateway.tls_cert, gateway.tls_key) = (None, None);
        // Others on this machine may neither spend the agent's keys nor read its words.
        let token = self::token::gateway_token(options.token.as_ref())?;
        let options = GatewayOptions {
            listen: Some(listen),
            upstreams,
            token: Some(token.clone()),
            token_in_path: true,
            ..options
        };
        let gateway = Gateway::bind(options).await.map_err(bind_error)?;
        let (url, watch) = (gateway.url(), gateway.watch().clone());
        let runtime = gateway.runtime().clone();
        let stop = CancellationToken::new();
        let serving = tokio::spawn(gateway.serve(stop.clone()));
        if self.ui {
            output.note(&format!("ctxhost: dashboard {url}{}", watch.dashboard_link()));
        }
        let ended = run_agent(
            clients::configure_client(self.command, &GatewayAddress { url, token }, env_var),
            output,
        )
        .await;
        stop.cancel();
        let served = serving.await;
        output.note(&summary_line(watch.totals(), &runtime.engine()));
        if let Err(error) = served {
            return Err(CliError::internal(format!("the gateway broke down: {error}")));
        }
        Ok(match ended {
            Ok(status) => child::exit_code(status),
            Err(error) => child::start_failure_code(&error),
        })
    }
}

/// What protects a gateway from other machines is told to `ctxhost serve`.
fn bind_error(error: GatewayError) -> CliError {
    match error {
        GatewayError::Exposed { address, .. } => CliError::user(format!(
            "{address} can be reached from other machines, and this gateway is for one agent on this one; \
             give --listen an address such as 127.0.0.1:8787, or use `ctxhost serve`"
        )),
        other => other.into(),
    }
}

async fn run_agent(told: ClientCommand, output: &mut Output) -> std::io::Result<ExitStatus> {
    let ClientCommand { command, variables, note: remark } = told;
    if let Some(remark) = remark {
        output.note(&format!("ctxhost: {remark}"));
    }
    let mut words = command.into_iter();
    let program = words.next().unwrap_or_default();
    let mut command = Command::new(&program);
    command.args(words).envs(variables);
    child::run(command).await.inspect_err(|error| {
        output.note(&format!("error: {} was not started: {error}", program.to_string_lossy()));
    })
}

/// What came of it, in one line.
fn summary_line(sums: GatewayTotals, engine: &str) -> String {
    let GatewayTotals { requests, compactions, fallbacks, saved_tokens } = sums;
    let requests = format_count(requests, "request");
    let compactions = format_count(compactions, "compaction");
    let saved = group_digits(saved_tokens);
    let line = format!("ctxhost: {requests}, {compactions}, {saved} tokens saved, engine {engine}");
    match fallbacks {
        0 => line,
        fallbacks => format!("{line} (another one stood in {} times)", group_digits(fallbacks)),
    }
}

/// The addresses that the environment names, under the words of `[gateway.upstreams]`.
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
    fn a_receipt_is_one_line_and_says_who_stood_in() {
        let sums =
            GatewayTotals { requests: 12, compactions: 1, fallbacks: 0, saved_tokens: 34_567 };
        assert_eq!(
            summary_line(sums, "legacy"),
            "ctxhost: 12 requests, 1 compaction, 34,567 tokens saved, engine legacy"
        );
        let sums = GatewayTotals { fallbacks: 3, ..sums };
        assert!(summary_line(sums, "mask").ends_with("engine mask (another one stood in 3 times)"));
    }
}
