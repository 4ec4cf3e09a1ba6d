//! `ctxhost replay`: replays recorded sessions through engines.

mod source;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::builder::NonEmptyStringValueParser;
use indicatif::{ProgressBar, ProgressStyle};

pub(crate) use self::source::SessionSource;
use super::engine_open::registry_error;
use super::error::CliError;
use super::output::Output;
use super::output_file::OutputFile;
use super::render;
use super::run_setup;
use super::store::stored_hint;
use super::window::parse_tokens;
use ctxhost_agent::engine_registry::EngineRegistry;
use ctxhost_agent::replay;
use ctxhost_agent::replay::report::{EngineRun, ReplayReport, ReplayedSession, UnreadableLine};
use ctxhost_config::Config;
use ctxhost_import::{ImportedSession, UNKNOWN_MODEL};

/// Replay recorded sessions through engines and compare the results.
///
/// Reads sessions of Pi, OpenClaw, Claude Code, Codex, Gemini CLI and opencode, and plain OpenAI or
/// Anthropic message arrays; demo:coding and demo:mixed are built in. Sessions are not changed and
/// nothing is sent, unless the config names a model for summaries. Uses the config of --config, else the nearest one of the
/// current folder, else the nearest one of the session, and prints which.
#[derive(Debug, clap::Args)]
pub(super) struct ReplayArgs {
    /// Sessions: files, ids that `ctxhost doctor` prints, or demo:NAME.
    #[arg(required = true, value_name = "FILE|demo:NAME", value_parser = SessionSource::parser())]
    sessions: Vec<SessionSource>,
    /// Context window to replay against, such as 32k; by default the window of the session's model,
    /// or of the demo.
    #[arg(long, value_name = "TOKENS", value_parser = parse_tokens)]
    window: Option<u64>,
    /// Engine, by id or library path, or a chain such as mask+legacy; by default the active engine.
    /// Several are compared.
    #[arg(
        long,
        value_name = "ID|PATH",
        conflicts_with = "engines",
        value_parser = NonEmptyStringValueParser::new()
    )]
    engine: Vec<String>,
    /// Engines to compare; each may be a chain, such as mask+legacy.
    #[arg(
        long,
        value_name = "ID|PATH,…",
        value_delimiter = ',',
        value_parser = NonEmptyStringValueParser::new()
    )]
    engines: Vec<String>,
    /// Print the report as JSON: an object, or a list for several sessions.
    #[arg(long, group = "data")]
    json: bool,
    /// Print a Markdown table with one row for each session and engine.
    #[arg(long, group = "data")]
    markdown: bool,
    /// Leave timings out of JSON or Markdown, so that two runs are identical.
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
            return Err(CliError::user("--report takes one session"));
        }
        let inputs = SessionSource::files(&self.sessions);
        let page =
            self.report.as_deref().map(|path| OutputFile::page(path, &inputs)).transpose()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| CliError::internal(error.to_string()))?;
        let mut reports = Vec::new();
        for source in &self.sessions {
            let recorded = source.open().map_err(|error| match source.file() {
                Some(named) => stored_hint(error, named, config_path),
                None => error,
            })?;
            let config = run_setup::find_config(config_path, &source.config_anchor(), output)?;
            let report = runtime.block_on(self.replay(source, &recorded, &config, output))?;
            if !self.json && !self.markdown {
                // Text is printed per session as it finishes; JSON and Markdown need all of them.
                let gap = if reports.is_empty() { "" } else { "\n" };
                output
                    .print(&format!("{gap}{}", render::table::render(&report, output.style())))?;
            }
            reports.push(report);
        }
        let mut runs = reports.iter().flat_map(|report| &report.runs);
        // Repairs and emergency trims are results. A failed engine has none: a script must not take
        // the figures of its fallback for its own.
        let is_sound = runs.all(|run| run.totals.violations == 0 && !run.has_failed());
        self.write_reports(reports, page, output)?;
        Ok(if is_sound { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    async fn replay(
        &self,
        source: &SessionSource,
        recorded: &ImportedSession,
        config: &Config,
        output: &mut Output,
    ) -> Result<ReplayReport, CliError> {
        let registry = EngineRegistry::load(config);
        let (mut options, window) = source.options(config, &registry, recorded, self.window)?;
        let names = self.engine_names(config, output)?;
        // A named engine that silently fell back would make the comparison wrong.
        options.engines.must_open = !self.engine.is_empty() || !self.engines.is_empty();
        let mut runs: Vec<EngineRun> = Vec::new();
        // One for all engines: a bar for each would appear and disappear.
        let bar = progress_bar(output);
        for name in &names {
            let specs = registry.chain(config, name);
            let mut specs = specs.map_err(|error| registry_error(config, name, error))?;
            run_setup::add_workspace_rules(&recorded.session, &mut specs, &mut options, output);
            // Of a library only the file: a path leaves no room for the bar.
            bar.set_message(name.rsplit('/').next().unwrap_or_default().to_owned());
            let run = replay::replay(&recorded.session, &specs, &options, |progress| {
                bar.set_length(progress.total);
                bar.set_position(progress.requests);
            });
            runs.push(
                run.await.map_err(|error| run_setup::run_error(config, name, &window, error))?,
            );
        }
        bar.finish_and_clear();
        Ok(ReplayReport { session: session_facts(&source.name(), recorded), window, runs })
    }

    /// The engines to replay. A named engine must open, since a fallback would measure another
    /// engine; the active engine may fall back as it would in an agent.
    fn engine_names(&self, config: &Config, output: &mut Output) -> Result<Vec<String>, CliError> {
        let named = self.engine.iter().chain(&self.engines);
        let names = named.map(|name| run_setup::named_engine_or_slot(Some(name), config, output));
        let names = names.collect::<Result<Vec<_>, _>>()?;
        if names.is_empty() {
            return Ok(vec![run_setup::named_engine_or_slot(None, config, output)?]);
        }
        Ok(names)
    }

    /// Writes the page and the data that were requested.
    fn write_reports(
        &self,
        reports: Vec<ReplayReport>,
        page: Option<OutputFile>,
        output: &mut Output,
    ) -> Result<(), CliError> {
        if let (Some(page), Some(report)) = (page, reports.first()) {
            page.write(render::html::page(report).as_bytes())?;
            output.note(&format!("report {}", page.path().display()));
        }
        if self.markdown {
            let with_timings = !self.no_timings;
            return Ok(output.print_unwrapped(&render::markdown::render(&reports, with_timings))?);
        }
        if !self.json {
            return Ok(());
        }
        let mut reports = reports;
        if self.no_timings {
            reports = reports.into_iter().map(ReplayReport::without_timings).collect();
        }
        match reports.as_slice() {
            [report] => output.print_json(report),
            reports => output.print_json(reports),
        }
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
        // Formats without a model carry a placeholder that must not appear in reports.
        model: model.filter(|id| id != UNKNOWN_MODEL).unwrap_or_default(),
        problems: recorded.problems.iter().map(|p| problem(p.line, &p.message)).collect(),
    }
}

fn progress_bar(output: &Output) -> ProgressBar {
    let bar = output.progress_bar("");
    let style = ProgressStyle::with_template("{msg:>12} {wide_bar} {pos}/{len} requests {eta}");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}
