//! `ctxhost replay`: a recorded session shaped again, turn by turn.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::builder::NonEmptyStringValueParser;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use super::failure::Failure;
use super::opening::unlisted;
use super::output::Output;
use super::render;
use super::setup;
use super::window::parse_tokens;
use crate::config::Config;
use crate::runtime::replay;
use crate::runtime::replay::report::{LineProblem, Report, Run, SessionFacts};
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
    /// The engine, by id or by the path of its library, or several in a row, such as mask+legacy; by
    /// default the one of the slot.
    #[arg(
        long,
        value_name = "ID|PATH",
        conflicts_with = "engines",
        value_parser = NonEmptyStringValueParser::new()
    )]
    engine: Option<String>,
    /// Several engines, side by side; each may be a row of them, such as mask+legacy.
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
        let config = setup::find_config(config_path, &self.file, output)?;
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
        output: &mut Output,
    ) -> Result<Report, Failure> {
        let roster = Roster::of(config);
        let model = recorded.session.model();
        let (mut setup, window) = setup::of(config, &roster, model, self.window)?;
        let names = self.engine_names(config, output)?;
        let mut runs: Vec<Run> = Vec::new();
        for name in &names {
            let specs = roster.stack(config, name);
            let mut specs = specs.map_err(|error| unlisted(config, name, error))?;
            setup::give_rules(&recorded.session, &mut specs, &mut setup, output);
            let bar = progress_bar(output, name);
            let run = replay::replay(&recorded.session, &specs, &setup, |progress| {
                bar.set_length(progress.total);
                bar.set_position(progress.requests);
            });
            runs.push(run.await.map_err(|error| setup::broken_off(config, name, &window, error))?);
            bar.finish_and_clear();
        }
        Ok(Report { session: facts(&self.file, recorded), window, runs })
    }

    /// The engines that were asked for; without any, the one of the slot. An engine asked for by name
    /// must be there: another one in its place would be no answer. Where the slot decides, its
    /// fallback is what the agent would meet too.
    fn engine_names(&self, config: &Config, output: &mut Output) -> Result<Vec<String>, Failure> {
        let named = self.engine.iter().chain(&self.engines);
        let names = named.map(|name| setup::engine_or_slot(Some(name), config, output));
        let names = names.collect::<Result<Vec<_>, _>>()?;
        match names.is_empty() {
            true => Ok(vec![setup::engine_or_slot(None, config, output)?]),
            false => Ok(names),
        }
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
            return Ok(output.print(&format!("{json}\n"))?);
        }
        Ok(output.print(&render::table::render(report, output.style()))?)
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

fn progress_bar(output: &Output, engine: &str) -> ProgressBar {
    let target =
        if output.watched() { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let bar = ProgressBar::with_draw_target(None, target);
    let style = ProgressStyle::with_template("{msg:>12} {wide_bar} {pos}/{len} requests {eta}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.set_message(engine.to_owned());
    bar
}
