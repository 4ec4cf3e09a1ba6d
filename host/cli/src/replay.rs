//! `ctxhost replay`: recorded sessions shaped again, turn by turn.

mod source;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::builder::NonEmptyStringValueParser;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

pub(crate) use self::source::SessionSource;
use super::engine_open::registry_error;
use super::error::CliError;
use super::output::Output;
use super::render;
use super::run_setup;
use super::window::parse_tokens;
use ctxhost_agent::engine_registry::EngineRegistry;
use ctxhost_agent::replay;
use ctxhost_agent::replay::report::{EngineRun, ReplayReport, ReplayedSession, UnreadableLine};
use ctxhost_config::Config;
use ctxhost_session::import::{ImportedSession, UNKNOWN_MODEL};

/// Replay recorded sessions through one engine or several and show what each did to them.
///
/// Reads Pi, Claude Code and Codex sessions and plain OpenAI or Anthropic message arrays; demo:coding and
/// demo:mixed are sessions that come with the program. Nothing is written to a session and nothing leaves
/// this machine, unless the config names a model for summaries. The config is that of --config, else the
/// nearest of this folder, else the nearest of the session's; which one is said.
#[derive(Debug, clap::Args)]
pub(super) struct ReplayArgs {
    /// The sessions: files, or demo:NAME.
    #[arg(required = true, value_name = "FILE|demo:NAME")]
    sessions: Vec<SessionSource>,
    /// The context window to replay against, such as 32k; by default the window of a session's model, for
    /// a demo its own.
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
    /// Print the report as JSON: one object, or a list of them for several sessions.
    #[arg(long, group = "data")]
    json: bool,
    /// Print a Markdown table: one line for each session and engine.
    #[arg(long, group = "data")]
    markdown: bool,
    /// Leave times out of the JSON or the Markdown, so that two runs are the same to the byte.
    #[arg(long, requires = "data")]
    no_timings: bool,
    /// Also write the report of a session as one self-contained page.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

impl ReplayArgs {
    pub(super) fn run(
        self,
        config_path: Option<&Path>,
        output: &mut Output,
    ) -> Result<ExitCode, CliError> {
        if self.report.is_some() && self.sessions.len() > 1 {
            return Err(CliError::user("--report makes the page of one session; name one"));
        }
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| CliError::internal(error.to_string()))?;
        let mut reports = Vec::new();
        for source in &self.sessions {
            let recorded = source.open()?;
            let config = run_setup::find_config(config_path, &source.config_anchor(), output)?;
            let report = runtime.block_on(self.replay(source, &recorded, &config, output))?;
            if !self.json && !self.markdown {
                let gap = if reports.is_empty() { "" } else { "\n" };
                output
                    .print(&format!("{gap}{}", render::table::render(&report, output.style())))?;
            }
            reports.push(report);
        }
        let runs = reports.iter().flat_map(|report| &report.runs);
        let violations: u64 = runs.map(|run| run.totals.violations).sum();
        self.write_reports(reports, output)?;
        Ok(if violations == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    async fn replay(
        &self,
        source: &SessionSource,
        recorded: &ImportedSession,
        config: &Config,
        output: &mut Output,
    ) -> Result<ReplayReport, CliError> {
        let roster = EngineRegistry::load(config);
        let (mut options, window) = source.options(config, &roster, recorded, self.window)?;
        let names = self.engine_names(config, output)?;
        options.engines.must_open = self.engine.is_some() || !self.engines.is_empty();
        let mut runs: Vec<EngineRun> = Vec::new();
        for name in &names {
            let specs = roster.chain(config, name);
            let mut specs = specs.map_err(|error| registry_error(config, name, error))?;
            run_setup::add_workspace_rules(&recorded.session, &mut specs, &mut options, output);
            let bar = progress_bar(output, name);
            let run = replay::replay(&recorded.session, &specs, &options, |progress| {
                bar.set_length(progress.total);
                bar.set_position(progress.requests);
            });
            runs.push(
                run.await.map_err(|error| run_setup::run_error(config, name, &window, error))?,
            );
            bar.finish_and_clear();
        }
        Ok(ReplayReport { session: session_facts(&source.name(), recorded), window, runs })
    }

    /// The engines that were asked for; without any, the one of the slot. An engine asked for by name
    /// must be there: another one in its place would be no answer. Where the slot decides, its
    /// fallback is what the agent would meet too.
    fn engine_names(&self, config: &Config, output: &mut Output) -> Result<Vec<String>, CliError> {
        let named = self.engine.iter().chain(&self.engines);
        let names = named.map(|name| run_setup::named_engine_or_slot(Some(name), config, output));
        let names = names.collect::<Result<Vec<_>, _>>()?;
        match names.is_empty() {
            true => Ok(vec![run_setup::named_engine_or_slot(None, config, output)?]),
            false => Ok(names),
        }
    }

    /// Writes what was asked for beside the text for people: the page, the data.
    fn write_reports(
        &self,
        reports: Vec<ReplayReport>,
        output: &mut Output,
    ) -> Result<(), CliError> {
        if let (Some(path), Some(report)) = (&self.report, reports.first()) {
            let page = render::html::page(report);
            std::fs::write(path, page).map_err(|error| {
                CliError::internal(format!("cannot write {}: {error}", path.display()))
            })?;
            output.note(&format!("report {}", path.display()));
        }
        if self.markdown {
            let with_timings = !self.no_timings;
            return Ok(output.print(&render::markdown::render(&reports, with_timings))?);
        }
        if !self.json {
            return Ok(());
        }
        let timed = |report: ReplayReport| match self.no_timings {
            true => report.without_timings(),
            false => report,
        };
        let reports: Vec<ReplayReport> = reports.into_iter().map(timed).collect();
        let json = match reports.as_slice() {
            [report] => serde_json::to_string_pretty(report),
            reports => serde_json::to_string_pretty(reports),
        };
        let json = json.map_err(|error| CliError::internal(error.to_string()))?;
        Ok(output.print_bytes(format!("{json}\n").as_bytes())?)
    }
}

fn session_facts(name: &str, recorded: &ImportedSession) -> ReplayedSession {
    let (entries, turns, requests) = replay::count_history(&recorded.session);
    let model = recorded.session.model().map(|(_, id)| id);
    let problem = |line, message: &str| UnreadableLine { line, message: message.into() };
    ReplayedSession {
        name: name.to_owned(),
        format: recorded.format.clone(),
        entries,
        turns,
        requests,
        model: model.filter(|id| id != UNKNOWN_MODEL).unwrap_or_default(),
        problems: recorded.problems.iter().map(|p| problem(p.line, &p.message)).collect(),
    }
}

fn progress_bar(output: &Output, engine: &str) -> ProgressBar {
    let target = if output.is_watched() {
        ProgressDrawTarget::stderr()
    } else {
        ProgressDrawTarget::hidden()
    };
    let bar = ProgressBar::with_draw_target(None, target);
    let style = ProgressStyle::with_template("{msg:>12} {wide_bar} {pos}/{len} requests {eta}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.set_message(engine.to_owned());
    bar
}
