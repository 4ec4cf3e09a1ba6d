//! `ctxhost check`: the conformance tests of an engine library.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use ctxhost_engine_api::border::EngineMetadata;
use serde_json::{Value, json};

use super::duration::{format_duration, parse_duration};
use super::error::CliError;
use super::output::Output;
use super::output_file::write_whole;
use super::render::format::format_count;
use super::session_arg::shell_quote;
use ctxhost_check::{
    CALL_LIMIT, CheckError, CheckGroup, CheckReport, ConformanceSuite, GroupReport, REPORT_FILE,
    groups, serve,
};
use ctxhost_config::Config;
use ctxhost_engine::{EngineFile, LoadError, inspect, short_digest};

/// Test an engine library against the contract.
///
/// Every test runs in its own process, so an engine that aborts or hangs does not affect the
/// others. Tests judge the engine's own answers, before the host repairs them. A failure is shown
/// with the smallest conversation that reproduces it and the command to repeat it. The engine's
/// settings come from --config only. A full run writes conformance.json, bound to the bytes of the
/// library. Exit codes: 0 conformant; 1 not conformant; 3 not an engine for this host; 4 not
/// loadable, because any user can replace the file.
#[derive(Debug, clap::Args)]
pub(super) struct CheckArgs {
    /// Library to test.
    #[arg(required_unless_present = "child")]
    file: Option<PathBuf>,
    /// Run only these groups: load, contract, transcript, progress, determinism, restart, limits,
    /// cancellation, services, isolation, resources, security.
    #[arg(long, value_name = "GROUP,..", value_delimiter = ',', hide_possible_values = true)]
    only: Vec<CheckGroup>,
    /// Run only this case of each group, as named in a failure.
    #[arg(long, value_name = "N")]
    case: Option<u64>,
    /// Print the report as JSON.
    #[arg(long)]
    json: bool,
    /// Time limit of one engine call, such as 2m [default: 10s]; a longer call counts as hanging.
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    call_limit: Option<Duration>,
    /// Run the job in this folder, as a child of the test kit.
    #[arg(long, value_name = "FOLDER", hide = true)]
    child: Option<PathBuf>,
}

/// Hint for files that are not an engine for this host.
const NOTHING_CALLED: &str = "the engine was not run";

/// Hint for libraries that do not survive their load.
const LOAD_RAN: &str =
    "only the constructors of the library ran, no call of the engine: no host can use it";

/// Hint for children that died without code of the engine.
const NO_VERDICT: &str =
    "the engine was not loaded, so nothing is known about it; run the command again";

/// Width of the longest group name.
const NAME_WIDTH: usize = 13;

impl CheckArgs {
    pub(super) fn run(
        self,
        config_path: Option<&Path>,
        output: &mut Output,
    ) -> Result<ExitCode, CliError> {
        if let Some(folder) = &self.child {
            serve(folder)?;
            return Ok(ExitCode::SUCCESS);
        }
        // Wrong arguments are reported before anything is read.
        groups(&self.only, self.case)?;
        let again = self.repeat_command(config_path);
        let file = self.file.unwrap_or_default();
        let inspected = inspect(&file).map_err(|error| CliError::from(CheckError::from(error)))?;
        let (config, readable) = engine_settings(config_path, &inspected)?;
        if !self.json {
            output.print(&headline(&inspected))?;
        }
        let kit = ConformanceSuite {
            file,
            config,
            readable,
            groups: self.only,
            case: self.case,
            call_limit: self.call_limit.unwrap_or(CALL_LIMIT),
            program: std::env::current_exe()?,
            arguments: vec!["check".to_owned(), "--child".to_owned()],
            rerun_command: again,
        };
        // The suite takes a callback that cannot fail, so a write error is kept until it returns.
        let mut written = Ok(());
        let report = kit.run(&mut |group| {
            if !self.json && written.is_ok() {
                written = output.print(&group_lines(group));
            }
        })?;
        written?;
        let left = write_report(&report)?;
        if self.json {
            output.print_unwrapped(&report.to_json())?;
        } else {
            output.print(&stopped_line(&report))?;
            output.print(&missing_line(&report))?;
            output.print(&verdict(&report, left))?;
        }
        Ok(ExitCode::from(u8::from(!report.conformant)))
    }

    /// The command that repeats this run, without groups and case. It includes the settings and the
    /// time limit, since results depend on both.
    fn repeat_command(&self, config_path: Option<&Path>) -> String {
        let mut command = "ctxhost check".to_owned();
        if let Some(path) = config_path {
            command += &format!(" --config {}", shell_quote(path));
        }
        if let Some(limit) = self.call_limit {
            // Without the blank between two units, so that it stays one word.
            command += &format!(" --call-limit {}", format_duration(limit).replace(' ', ""));
        }
        let file = self.file.as_deref().unwrap_or(Path::new(""));
        format!("{command} {}", shell_quote(file))
    }
}

/// Reads `[plugins.entries.<id>.config]` and `plugins.sandbox.readable` from --config. No other config is
/// searched: a verdict must not depend on the current folder.
fn engine_settings(
    path: Option<&Path>,
    inspected: &EngineFile,
) -> Result<(Value, Vec<PathBuf>), CliError> {
    let Some(path) = path else { return Ok((json!({}), Vec::new())) };
    let config = Config::load(path)?;
    let settings = config.engine_config(&inspected.meta.id);
    Ok((settings, config.plugins.sandbox.readable))
}

fn headline(inspected: &EngineFile) -> String {
    let EngineMetadata { id, version, abi_major, abi_minor, .. } = &inspected.meta;
    let sha256 = short_digest(&inspected.sha256);
    format!("{id} {version}  ABI {abi_major}.{abi_minor}  sha256 {sha256}\n")
}

/// One line for a group, then its failures.
fn group_lines(group: &GroupReport) -> String {
    let name = group.name.name();
    let seconds = format!("{:.1}s", group.seconds);
    if group.ok {
        return format!("  {name:<NAME_WIDTH$}ok    {seconds:<7}{}\n", group.covered);
    }
    let mut text = String::new();
    for failure in &group.failures {
        text += &format!("  {name:<NAME_WIDTH$}FAIL  ");
        if failure.history.is_empty() {
            text += &format!("{}\n", failure.message);
        } else {
            let messages = format_count(failure.history.len() as u64, "message");
            text += &format!("case {} shrunk to {messages}\n", failure.case);
            failure.history.iter().for_each(|line| text += &format!("    {line}\n"));
            text += &format!("    {}\n", failure.message);
        }
        if !failure.other_cases.is_empty() {
            let cases: Vec<String> = failure.other_cases.iter().map(u64::to_string).collect();
            let noun = if cases.len() == 1 { "case" } else { "cases" };
            text += &format!("    also fails in {noun} {}\n", cases.join(", "));
        }
        text += &format!("    repeat: {}\n", failure.rerun_command);
    }
    text
}

/// Writes the report of a full run into this folder; `false` for a partial run.
fn write_report(report: &CheckReport) -> Result<bool, CliError> {
    if report.complete {
        // Only a full run: a report of some groups would certify what was not tested.
        write_whole(Path::new(REPORT_FILE), report.to_json().as_bytes())?;
    }
    Ok(report.complete)
}

/// Why groups did not run; empty if all did.
fn stopped_line(report: &CheckReport) -> String {
    match report.stopped.as_str() {
        "" => String::new(),
        why => format!("  {why}\n"),
    }
}

/// What this machine lacks to confine the engine; empty if nothing.
fn missing_line(report: &CheckReport) -> String {
    let missing = &report.confinement.missing;
    if missing.is_empty() {
        return String::new();
    }
    format!("  the engine ran without: {}\n", missing.join("; "))
}

fn verdict(report: &CheckReport, left: bool) -> String {
    let CheckReport { checks, failed, seconds, .. } = report;
    let to = if left { format!("  → {REPORT_FILE}") } else { String::new() };
    let checks = format_count(*checks, "check");
    if report.conformant {
        format!("CONFORMANT  {checks}, 0 failed, {seconds:.1}s{to}\n")
    } else {
        format!("NOT CONFORMANT  {failed} failed, {checks}, {seconds:.1}s{to}\n")
    }
}

impl From<CheckError> for CliError {
    fn from(error: CheckError) -> Self {
        match error {
            CheckError::NotLoadable(error) => {
                // An unreadable path says nothing about the engine in it.
                let was_read = !matches!(error, LoadError::Unreadable { .. });
                let failure = CliError::from(error);
                if was_read { failure.hint(NOTHING_CALLED) } else { failure }
            }
            CheckError::NotLoaded { reason } => CliError::library(reason).hint(NOTHING_CALLED),
            CheckError::LoadDied { .. } => CliError::internal(error.to_string()).hint(LOAD_RAN),
            CheckError::ChildDied { .. } => CliError::internal(error.to_string()).hint(NO_VERDICT),
            CheckError::NoSuchCase { .. } => CliError::user(error.to_string()),
            CheckError::Io { .. } | CheckError::BadJob { .. } => {
                CliError::internal(error.to_string())
            }
        }
    }
}
