//! `ctxhost bench`: benchmarks of engines.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::builder::NonEmptyStringValueParser;

use super::engine_open::registry_error;
use super::error::CliError;
use super::output::Output;
use super::render;
use super::run_setup;
use super::window::parse_tokens;
use ctxhost_config::Config;
use ctxhost_quality::report::QualityReport;
use ctxhost_quality::{
    BenchSubject, LabelledQuestion, RuleOptions, measure_evidence, measure_recording,
    measure_rules, parse_questions,
};
use ctxhost_session::import;

/// Benchmark engines.
#[derive(Debug, clap::Subcommand)]
pub(super) enum BenchCommand {
    Quality(QualityArgs),
}

/// Measure how much later needed information each engine keeps.
///
/// A file of labelled questions (JSON lines with `turns`, `query` and `evidence`, plain or zstd)
/// measures the share of the evidence in the prompt. A recorded session, in any format that replay
/// reads, measures the share of the identifiers that its next steps use. --rules measures rules
/// over five compactions of generated sessions. Baselines: tail, bm25, bm25-neighbours, whole. No
/// model is called.
#[derive(Debug, clap::Args)]
pub(super) struct QualityArgs {
    /// Question files and recorded sessions.
    #[arg(value_name = "FILE", required_unless_present = "rules")]
    files: Vec<PathBuf>,
    /// Engines and baselines to compare; an engine may be a chain, such as mask+legacy.
    #[arg(
        long,
        value_name = "ID|BASELINE,…",
        value_delimiter = ',',
        default_value = "recall,window,bm25,bm25-neighbours",
        value_parser = NonEmptyStringValueParser::new()
    )]
    engines: Vec<String>,
    /// Prompt budgets, in tokens as the host counts them.
    #[arg(
        long,
        value_name = "TOKENS,…",
        value_delimiter = ',',
        default_value = "2k,4k,8k,16k,32k",
        value_parser = parse_tokens
    )]
    budgets: Vec<u64>,
    /// Also measure rules over five compactions of generated sessions.
    #[arg(long)]
    rules: bool,
    /// Number of sessions that --rules generates.
    #[arg(long, default_value_t = RuleOptions::default().sessions, requires = "rules")]
    rule_sessions: u64,
    /// Seed of the generated sessions.
    #[arg(long, default_value_t = RuleOptions::default().seed, requires = "rules")]
    seed: u64,
    /// Print the report as JSON.
    #[arg(long, group = "data")]
    json: bool,
    /// Print the report as Markdown tables.
    #[arg(long, group = "data")]
    markdown: bool,
    /// Leave timings out of the report, so that two runs are identical.
    #[arg(long)]
    no_timings: bool,
}

/// Input files are limited to 1 GiB.
const MAX_INPUT_BYTES: u64 = 1 << 30;

/// Content of an input file.
enum BenchInput {
    Questions(Vec<LabelledQuestion>),
    Recording(Box<import::ImportedSession>),
}

impl BenchCommand {
    pub(super) fn run(
        self,
        config_path: Option<&Path>,
        output: &mut Output,
    ) -> Result<ExitCode, CliError> {
        match self {
            BenchCommand::Quality(command) => command.run(config_path, output),
        }
    }
}

impl QualityArgs {
    fn run(self, config_path: Option<&Path>, output: &mut Output) -> Result<ExitCode, CliError> {
        let beside = self.files.first().cloned().unwrap_or_default();
        let config = run_setup::find_config(config_path, &beside, output)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let mut report = runtime.block_on(self.measure(&config, output))?;
        if self.no_timings {
            report = report.without_timings();
        }
        match (self.json, self.markdown) {
            (true, _) => output.print_json(&report)?,
            (_, true) => output.print_unwrapped(&render::quality::markdown(&report))?,
            _ => output.print(&render::quality::table(&report, output.style()))?,
        }
        // A figure of an engine that breaks its budget is not comparable.
        let is_sound = report.overruns() == 0 && report.violations() == 0;
        Ok(if is_sound { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    async fn measure(
        &self,
        config: &Config,
        output: &mut Output,
    ) -> Result<QualityReport, CliError> {
        let mut report = QualityReport::default();
        let files: Result<Vec<(String, BenchInput)>, CliError> =
            self.files.iter().map(|path| read(path)).collect();
        // All files are read before the first measurement, which takes minutes.
        let files = files?;
        for name in &self.engines {
            let subject = BenchSubject::parse(name, config)
                .map_err(|error| registry_error(config, name, error))?;
            let bar = output.progress_bar(name);
            let broken = |error: ctxhost_quality::QualityError| CliError::user(error.to_string());
            for (file, material) in &files {
                let step = |count| bar.inc(count);
                match material {
                    BenchInput::Questions(questions) => report.evidence.extend(
                        measure_evidence(file, questions, &subject, &self.budgets, config, step)
                            .await
                            .map_err(broken)?,
                    ),
                    BenchInput::Recording(recorded) => report.recordings.extend(
                        measure_recording(
                            file,
                            &recorded.session,
                            &subject,
                            &self.budgets,
                            config,
                            step,
                        )
                        .await
                        .map_err(broken)?,
                    ),
                }
            }
            if self.rules {
                let options = RuleOptions {
                    sessions: self.rule_sessions,
                    seed: self.seed,
                    ..RuleOptions::default()
                };
                let row = measure_rules(&subject, options, config, |count| bar.inc(count)).await;
                report.rules.extend(row.map_err(broken)?);
            }
            bar.finish_and_clear();
        }
        Ok(report)
    }
}

/// Reads a file as questions, or else as a recording.
fn read(path: &Path) -> Result<(String, BenchInput), CliError> {
    let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
    let shown = path.display().to_string();
    let bytes = ctxhost_files::read(path, MAX_INPUT_BYTES)
        .map_err(|error| CliError::user(format!("{shown}: {error}")))?;
    match parse_questions(&bytes) {
        Ok(questions) => Ok((name, BenchInput::Questions(questions))),
        // Recordings and questions are both JSON Lines, so the content decides, not the name.
        Err(not_questions) => match import::open_bytes(&shown, &bytes) {
            Ok(recorded) => Ok((name, BenchInput::Recording(Box::new(recorded)))),
            Err(error) => {
                let error = CliError::user(error.to_string());
                Err(error.hint(format!("not a question file either: {not_questions}")))
            }
        },
    }
}
