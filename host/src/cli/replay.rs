//! `ctxhost replay`: a recorded session shaped again, turn by turn.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::builder::NonEmptyStringValueParser;
use ctxhost_engine_api::ModelRef;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::config::nearest;
use super::failure::Failure;
use super::opening::{self, unlisted, unopened};
use super::output::Output;
use super::render;
use super::render::phrase::grouped;
use super::window::parse_tokens;
use crate::config::Config;
use crate::engine::SlotError;
use crate::provider::{Completer, OpenAiCompleter, OpenAiSettings};
use crate::runtime::RuntimeError;
use crate::runtime::replay::report::{LineProblem, Report, Run, SessionFacts, WindowFacts};
use crate::runtime::replay::{self, ReplaySettings};
use crate::runtime::roster::Roster;
use crate::session::recording::{self, Recorded, UNKNOWN_MODEL};

/// Replay a recorded session through one engine or several and show what each did to it.
///
/// Reads Pi, Claude Code and Codex sessions and plain OpenAI or Anthropic message arrays. Nothing is
/// written to the session and nothing leaves this machine, unless the config names a model for
/// summaries.
#[derive(Debug, clap::Args)]
pub(super) struct Replay {
    /// The session.
    file: PathBuf,
    /// The context window to replay against, such as 32k; by default the window of its model.
    #[arg(long, value_name = "TOKENS", value_parser = parse_tokens)]
    window: Option<u64>,
    /// The engine, by id or by the path of its library; by default the one of the slot.
    #[arg(
        long,
        value_name = "ID|PATH",
        conflicts_with = "engines",
        value_parser = NonEmptyStringValueParser::new()
    )]
    engine: Option<String>,
    /// Several engines, side by side.
    #[arg(
        long,
        value_name = "ID|PATH,…",
        value_delimiter = ',',
        value_parser = NonEmptyStringValueParser::new()
    )]
    engines: Vec<String>,
    /// Print the report as JSON.
    #[arg(long)]
    json: bool,
    /// Leave times out of the JSON, so that two runs are the same to the byte.
    #[arg(long, requires = "json")]
    no_timings: bool,
    /// Also write the report as one self-contained page.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

impl Replay {
    pub(super) fn run(
        self,
        config_path: Option<&Path>,
        output: &mut Output,
    ) -> Result<ExitCode, Failure> {
        let recorded = recording::read(&self.file)?;
        let config = find_config(config_path, &self.file, output)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| Failure::internal(error.to_string()))?;
        let report = runtime.block_on(self.replay(&recorded, &config, output))?;
        self.show(&report, output)?;
        let violations: u64 = report.runs.iter().map(|run| run.totals.violations).sum();
        Ok(if violations == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    async fn replay(
        &self,
        recorded: &Recorded,
        config: &Config,
        output: &Output,
    ) -> Result<Report, Failure> {
        let roster = Roster::of(config);
        let (settings, window) = self.settings(recorded, config, &roster)?;
        let names = self.engine_names(config);
        if self.names_engines() {
            names.iter().try_for_each(|name| opening::find(config, name).map(drop))?;
        }
        let mut runs: Vec<Run> = Vec::new();
        for name in &names {
            let spec = roster.spec(config, name).map_err(|error| unlisted(config, name, error))?;
            let bar = progress_bar(output, name);
            let run = replay::replay(&recorded.session, &spec, &settings, |progress| {
                bar.set_length(progress.total);
                bar.set_position(progress.requests);
            });
            runs.push(run.await.map_err(|error| broken_off(config, name, &window, error))?);
            bar.finish_and_clear();
        }
        Ok(Report { session: facts(&self.file, recorded), window, runs })
    }

    /// Whether engines were asked for by name. Then another one in their place would be no answer;
    /// where the slot decides, its fallback is what the agent would meet too.
    fn names_engines(&self) -> bool {
        self.engine.is_some() || !self.engines.is_empty()
    }

    /// The engines that were asked for; without any, the one of the slot.
    fn engine_names(&self, config: &Config) -> Vec<String> {
        match (&self.engine, self.engines.is_empty()) {
            (Some(engine), _) => vec![engine.clone()],
            (None, false) => self.engines.clone(),
            (None, true) => vec![config.slot().engine],
        }
    }

    fn settings(
        &self,
        recorded: &Recorded,
        config: &Config,
        roster: &Roster,
    ) -> Result<(ReplaySettings, WindowFacts), Failure> {
        let (provider, id) = recorded.session.model().unwrap_or_default();
        let (window_tokens, source) = match self.window {
            Some(window) => (window, "--window".to_owned()),
            None => {
                let (window, source) = config.window_for(&provider, &id);
                (window, source.to_string())
            }
        };
        let overhead = config.budget.overhead_tokens;
        let (reserve_tokens, budget_tokens) = config.budget.budget(window_tokens, overhead);
        let settings = ReplaySettings {
            budget_tokens,
            reserve_tokens,
            model: ModelRef { provider, id, window_tokens },
            law: config.law.clone(),
            on_error: config.plugins.on_engine_error,
            legacy: roster.legacy(config),
            timeouts: config.timeouts.clone(),
            completer: completer(config)?,
        };
        Ok((settings, WindowFacts { window_tokens, source, reserve_tokens, budget_tokens }))
    }

    fn show(&self, report: &Report, output: &mut Output) -> Result<(), Failure> {
        if let Some(path) = &self.report {
            let page = render::html::page(report);
            std::fs::write(path, page).map_err(|error| {
                Failure::caller(format!("cannot write {}: {error}", path.display()))
            })?;
            output.remark(&format!("report {}", path.display()));
        }
        if self.json {
            let report = report.clone();
            let report = if self.no_timings { report.without_timings() } else { report };
            let json = serde_json::to_string_pretty(&report)
                .map_err(|error| Failure::internal(error.to_string()))?;
            return output.print(&format!("{json}\n"));
        }
        output.print(&render::table::render(report, output.style()))
    }
}

/// The config of this folder, else that of the session's, so that a folder of recordings can bring
/// its own.
fn find_config(
    given: Option<&Path>,
    session: &Path,
    output: &mut Output,
) -> Result<Config, Failure> {
    if let Some(path) = given {
        return Ok(Config::load(path)?);
    }
    let beside = || session.canonicalize().ok()?.parent().and_then(Config::discover);
    match nearest().or_else(beside) {
        Some(path) => {
            output.remark(&format!("config {}", path.display()));
            Ok(Config::load(path)?)
        }
        None => Ok(Config::default()),
    }
}

fn facts(path: &Path, recorded: &Recorded) -> SessionFacts {
    let (entries, turns, requests) = replay::count(&recorded.session);
    let model = recorded.session.model().map(|(_, id)| id);
    let problem = |line, message: &str| LineProblem { line, message: message.into() };
    SessionFacts {
        name: path.file_name().unwrap_or_default().to_string_lossy().into_owned(),
        format: recorded.format.clone(),
        entries,
        turns,
        requests,
        model: model.filter(|id| id != UNKNOWN_MODEL).unwrap_or_default(),
        problems: recorded.problems.iter().map(|p| problem(p.line, &p.message)).collect(),
    }
}

fn completer(config: &Config) -> Result<Option<Arc<dyn Completer>>, Failure> {
    let Some(summariser) = &config.summariser else { return Ok(None) };
    let api_key = match &summariser.api_key_env {
        Some(name) => std::env::var(name).map_err(|_| {
            Failure::caller(format!("the key for [summariser] is missing: {name} is not set"))
        })?,
        None => String::new(),
    };
    let settings = OpenAiSettings {
        base_url: summariser.base_url.clone(),
        model: summariser.model.clone(),
        api_key,
        timeout_ms: summariser.timeout_ms,
        max_output_tokens: summariser.max_output_tokens,
    };
    let completer = OpenAiCompleter::new(settings, tokio::runtime::Handle::current())
        .map_err(|error| Failure::internal(error.message))?;
    Ok(Some(Arc::new(completer)))
}

fn progress_bar(output: &Output, engine: &str) -> ProgressBar {
    let target =
        if output.watched() { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let bar = ProgressBar::with_draw_target(None, target);
    let style = ProgressStyle::with_template("{msg:>12} {wide_bar} {pos}/{len} requests {eta}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.set_message(engine.to_owned());
    bar
}

/// Why a replay ended early: with which engine, and where its window came from.
fn broken_off(config: &Config, name: &str, window: &WindowFacts, error: RuntimeError) -> Failure {
    let failure = match error {
        RuntimeError::Slot(SlotError::Open(error)) => return unopened(config, name, error),
        other => Failure::from(other),
    };
    let WindowFacts { window_tokens, source, .. } = window;
    failure.hint(format!(
        "while replaying with engine {name} against a window of {} tokens ({source})",
        grouped(*window_tokens)
    ))
}
