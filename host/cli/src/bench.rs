//! `ctxhost bench`: benchmarks of engines.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::builder::NonEmptyStringValueParser;
use indicatif::ProgressBar;

use super::engine_open::registry_error;
use super::error::CliError;
use super::output::Output;
use super::output_file::OutputFile;
use super::render;
use super::replay::SessionSource;
use super::run_setup;
use super::window::parse_tokens;
use ctxhost_config::Config;
use ctxhost_import::ImportedSession;
use ctxhost_provider::{LogprobClient, LogprobError};
use ctxhost_quality::report::QualityReport;
use ctxhost_quality::{
    BenchSubject, CachePrices, LabelledQuestion, ProbedAnswer, QualityError, RuleOptions,
    UtilityProbe, measure_evidence, measure_recording, measure_rules, parse_questions,
};

/// Benchmark engines.
#[derive(Debug, clap::Subcommand)]
pub(super) enum BenchCommand {
    Quality(QualityArgs),
}

/// Measure how much later needed information each engine keeps.
///
/// A recorded session, in any format that replay reads, measures the share of the identifiers that
/// its next steps use. A file of labelled questions measures the share of the evidence in the prompt.
/// It has one JSON object a line, plain or zstd; `evidence` counts turns from 0, and `category`,
/// `query_date`, `s` (conversation), `t` (time) and `stale` (turns with a replaced answer) are
/// optional:
///
/// {"id":"q1","query":"Where is the key?","evidence":[0],"turns":[{"s":"a","t":"2026/05/20
/// 09:04","role":"user","text":"The key is in the red box."},{"s":"a","role":"assistant","text":"Noted."}]}
///
/// Baselines: tail, bm25, bm25-neighbours, whole. No model is called unless --lm names one.
#[derive(Debug, clap::Args)]
pub(super) struct QualityArgs {
    /// Question files and recorded sessions (also demo:coding, demo:mixed).
    #[arg(value_name = "FILE|demo:NAME", required_unless_present = "rules", value_parser = SessionSource::parser())]
    files: Vec<SessionSource>,
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
    /// Price of a prompt token that is read from the cache, as a share of the price of an uncached
    /// one.
    #[arg(long, value_name = "SHARE", default_value_t = CachePrices::default().read, value_parser = parse_price)]
    cache_read: f64,
    /// Price of a prompt token that is written to the cache, as such a share.
    #[arg(long, value_name = "SHARE", default_value_t = CachePrices::default().write, value_parser = parse_price)]
    cache_write: f64,
    /// Also measure rules over five compactions of generated sessions.
    #[arg(long)]
    rules: bool,
    /// Number of sessions that --rules generates.
    #[arg(long, default_value_t = RuleOptions::default().sessions, requires = "rules")]
    rule_sessions: u64,
    /// Seed of the generated sessions.
    #[arg(long, default_value_t = RuleOptions::default().seed, requires = "rules")]
    seed: u64,
    /// Also let a model score the recorded answers after each prompt: the address of a completions
    /// endpoint with echo and logprobs (/v1/completions of OpenAI, vLLM and others). The prompts,
    /// and so the text of the recordings, are sent to it.
    #[arg(long, value_name = "URL")]
    lm: Option<String>,
    /// The model that --lm asks for.
    #[arg(long, value_name = "NAME", default_value = "default", requires = "lm")]
    lm_model: String,
    /// The environment variable with the key of --lm.
    #[arg(long, value_name = "VARIABLE", requires = "lm")]
    lm_key_env: Option<String>,
    /// Answers of each recording that --lm scores, evenly spaced.
    #[arg(long, value_name = "COUNT", default_value_t = 20, requires = "lm")]
    lm_answers: usize,
    /// Window of the --lm model, for the whole history: older entries are left out of it.
    #[arg(long, value_name = "TOKENS", requires = "lm", value_parser = parse_tokens)]
    lm_window: Option<u64>,
    /// Print the report as JSON.
    #[arg(long, group = "data")]
    json: bool,
    /// Print the report as Markdown tables.
    #[arg(long, group = "data")]
    markdown: bool,
    /// Leave timings out of the report, so that two runs are identical.
    #[arg(long)]
    no_timings: bool,
    /// Also write the report as one self-contained page.
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
}

/// Parses a price relative to that of an uncached token. Prices of providers are up to 2.
fn parse_price(text: &str) -> Result<f64, String> {
    let price = text.parse().ok().filter(|price| (0.0..=MAX_PRICE).contains(price));
    price.ok_or_else(|| format!("{text:?} is not a share; write a number from 0 to {MAX_PRICE}"))
}

/// Largest price relative to that of an uncached token.
const MAX_PRICE: f64 = 1_000.0;

/// Input files are limited to 1 GiB.
const MAX_INPUT_BYTES: u64 = 1 << 30;

/// Content of an input file.
enum BenchInput {
    Questions(Vec<LabelledQuestion>),
    Recording(Box<ImportedSession>),
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
        let beside = self.files.first().map(SessionSource::config_anchor).unwrap_or_default();
        let config = run_setup::find_config(config_path, &beside, output)?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let inputs = SessionSource::files(&self.files);
        let page =
            self.report.as_deref().map(|path| OutputFile::page(path, &inputs)).transpose()?;
        let mut report = runtime.block_on(self.measure(&config, output))?.judge();
        if self.no_timings {
            report = report.without_timings();
        }
        if let Some(page) = page {
            page.write(render::html::quality_page(&report).as_bytes())?;
            output.note(&format!("report {}", page.path().display()));
        }
        match (self.json, self.markdown) {
            (true, _) => output.print_json(&report)?,
            (_, true) => output.print_unwrapped(&render::quality::markdown(&report))?,
            _ => output.print(&render::quality::text(&report, output.style()))?,
        }
        // A figure of an engine that breaks its budget is not comparable.
        let is_sound =
            report.overruns() == 0 && report.violations() == 0 && report.unmeasured.is_empty();
        Ok(if is_sound { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    async fn measure(
        &self,
        config: &Config,
        output: &mut Output,
    ) -> Result<QualityReport, CliError> {
        let mut report = QualityReport::default();
        // All files and engines are read before the first measurement, which takes minutes.
        let files: Result<Vec<(String, BenchInput)>, CliError> =
            self.files.iter().map(read).collect();
        let files = files?;
        let subjects: Result<Vec<BenchSubject>, CliError> =
            self.engines.iter().map(|name| parse_subject(name, config)).collect();
        // Opened once: a model in a folder is read whole.
        let embedder = run_setup::open_embedder(config)?;
        let subjects: Vec<BenchSubject> =
            subjects?.into_iter().map(|subject| subject.with_embedder(embedder.clone())).collect();
        let probe = self.probe()?;
        let answers = self.probe_answers(probe.as_ref(), &files, config, output).await?;
        for subject in &subjects {
            let bar = output.progress_bar(subject.name());
            for (at, (file, input)) in files.iter().enumerate() {
                let measured =
                    self.measure_file(file, input, subject, config, &bar, &mut report).await;
                measured.map_err(quality_error)?;
                if let (Some(probe), BenchInput::Recording(recorded)) = (&probe, input) {
                    let (answers, session) = (answers.get(at), &recorded.session);
                    let rows = probe.measure(
                        (file, session),
                        answers.map_or(&[], Vec::as_slice),
                        subject,
                        &self.budgets,
                        config,
                        |count| bar.inc(count),
                    );
                    // Its recording names the budgets without a row.
                    report.utility.extend(rows.await.map_err(quality_error)?.rows);
                }
            }
            if self.rules {
                let options = RuleOptions {
                    sessions: self.rule_sessions,
                    seed: self.seed,
                    ..RuleOptions::default()
                };
                let row = measure_rules(subject, options, config, |count| bar.inc(count)).await;
                report.rules.extend(row.map_err(quality_error)?);
            }
            bar.finish_and_clear();
        }
        Ok(report)
    }

    async fn measure_file(
        &self,
        file: &str,
        input: &BenchInput,
        subject: &BenchSubject,
        config: &Config,
        bar: &ProgressBar,
        report: &mut QualityReport,
    ) -> Result<(), QualityError> {
        let (budgets, step) = (&self.budgets, |count| bar.inc(count));
        match input {
            BenchInput::Questions(questions) => {
                let measured =
                    measure_evidence(file, questions, subject, budgets, config, step).await?;
                report.evidence.extend(measured.rows);
                report.unmeasured.extend(measured.unmeasured);
            }
            BenchInput::Recording(recorded) => {
                let prices = CachePrices { read: self.cache_read, write: self.cache_write };
                let session = &recorded.session;
                let measured =
                    measure_recording(file, session, subject, budgets, prices, config, step)
                        .await?;
                report.recordings.extend(measured.rows);
                report.unmeasured.extend(measured.unmeasured);
            }
        }
        Ok(())
    }

    /// The model of --lm.
    fn probe(&self) -> Result<Option<UtilityProbe>, CliError> {
        let Some(url) = &self.lm else { return Ok(None) };
        let client = LogprobClient::new(url, &self.lm_model, self.lm_key_env.as_deref())
            .map_err(|error| CliError::user(format!("--lm: {error}")))?;
        Ok(Some(UtilityProbe { client, answers: self.lm_answers, whole_tokens: self.lm_window }))
    }

    /// The scored answers of each file; none for questions, and without --lm.
    async fn probe_answers(
        &self,
        probe: Option<&UtilityProbe>,
        files: &[(String, BenchInput)],
        config: &Config,
        output: &mut Output,
    ) -> Result<Vec<Vec<ProbedAnswer>>, CliError> {
        let mut answers = Vec::new();
        let Some(probe) = probe else { return Ok(answers) };
        let bar = output.progress_bar("whole history");
        for (_, input) in files {
            let found = match input {
                BenchInput::Questions(_) => Vec::new(),
                BenchInput::Recording(recorded) => probe
                    .probe_answers(&recorded.session, config, |count| bar.inc(count))
                    .await
                    .map_err(quality_error)?,
            };
            answers.push(found);
        }
        bar.finish_and_clear();
        Ok(answers)
    }
}

fn parse_subject(name: &str, config: &Config) -> Result<BenchSubject, CliError> {
    BenchSubject::parse(name, config).map_err(|error| registry_error(config, name, error))
}

fn quality_error(error: QualityError) -> CliError {
    let is_long = matches!(&error, QualityError::Probe { source: LogprobError::TooLong(_), .. });
    let error = CliError::user(error.to_string());
    if is_long {
        return error
            .hint("name the window of the model with --lm-window, or use smaller --budgets");
    }
    error
}

/// Reads a file as questions, or else as a recording.
fn read(source: &SessionSource) -> Result<(String, BenchInput), CliError> {
    let name = source.name();
    let SessionSource::File(path) = source else {
        return Ok((name, BenchInput::Recording(Box::new(source.open()?))));
    };
    // Recordings and questions are both JSON Lines, so the content decides, not the name. What cannot be read as one
    // file, such as a session in a database, is a recording at most.
    let bytes = ctxhost_files::read(path, MAX_INPUT_BYTES).ok();
    let not_questions = match bytes.map(|bytes| parse_questions(&bytes)) {
        Some(Ok(questions)) => return Ok((name, BenchInput::Questions(questions))),
        Some(Err(error)) => Some(error),
        None => None,
    };
    let recorded = source.open().map_err(|error| match not_questions {
        Some(not_questions) => error.hint(format!("not a question file either: {not_questions}")),
        None => error,
    })?;
    Ok((name, BenchInput::Recording(Box::new(recorded))))
}
