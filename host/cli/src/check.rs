//! `ctxhost check`: a library held against the contract of engines, rule by rule.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use ctxhost_engine_api::border::Meta;
use serde_json::{Value, json};

use super::failure::Failure;
use super::named::for_shell;
use super::output::Output;
use super::render::phrase::counted;
use ctxhost_check::{
    CALL_LIMIT, CheckError, Group, GroupReport, Kit, REPORT_FILE, Report, groups, serve,
};
use ctxhost_config::Config;
use ctxhost_engine::{Inspected, LoadError, inspect, shown_digest};

/// Hold an engine's library against the contract, rule by rule.
///
/// Every test runs in a process of its own, so an engine that aborts or hangs harms nobody. What an engine
/// answers is judged before the host's law repairs it. A failure is shown with the smallest conversation
/// at which it happens and the command that repeats it. The engine's settings are those of the file that
/// --config names, and of no other. A whole run leaves conformance.json in this folder, which speaks for these
/// very bytes. Exit code 0: conformant; 1: not; 3: no engine that this
/// host can load; 4: one that it must not load, because every user could have replaced it.
#[derive(Debug, clap::Args)]
pub(super) struct Check {
    /// The library.
    #[arg(required_unless_present = "child")]
    file: Option<PathBuf>,
    /// Run these groups only: load, contract, transcript, progress, determinism, restart, limits,
    /// cancellation, services, isolation, resources, security.
    #[arg(long, value_name = "GROUP,..", value_delimiter = ',', hide_possible_values = true)]
    only: Vec<Group>,
    /// Run this case of each group only, as a failure names it.
    #[arg(long, value_name = "N")]
    case: Option<u64>,
    /// Answer with the report as JSON.
    #[arg(long)]
    json: bool,
    /// How many seconds one call of the engine may take before it counts as hanging.
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = CALL_LIMIT.as_secs(),
        value_parser = clap::value_parser!(u64).range(1..)
    )]
    call_limit: u64,
    /// Do the job in this folder, as a child of the kit.
    #[arg(long, value_name = "FOLDER", hide = true)]
    child: Option<PathBuf>,
}

/// What is said of every file that is no engine for this host.
const NOTHING_CALLED: &str = "nothing was called";

/// The widest name of a group, and what it stands in.
const NAME_WIDTH: usize = 13;

impl Check {
    pub(super) fn run(
        self,
        config_path: Option<&Path>,
        output: &mut Output,
    ) -> Result<ExitCode, Failure> {
        if let Some(folder) = &self.child {
            serve(folder)?;
            return Ok(ExitCode::SUCCESS);
        }
        // What was asked for is wrong whatever the file is.
        groups(&self.only, self.case)?;
        let again = self.again(config_path);
        let file = self.file.unwrap_or_default();
        let inspected = inspect(&file).map_err(|error| Failure::from(CheckError::from(error)))?;
        let config = own_config(config_path, &inspected)?;
        if !self.json {
            output.print(&headline(&inspected))?;
        }
        let kit = Kit {
            file,
            config,
            only: self.only,
            case: self.case,
            call_limit: Duration::from_secs(self.call_limit),
            program: std::env::current_exe()?,
            arguments: vec!["check".to_owned(), "--child".to_owned()],
            again,
        };
        let mut written = Ok(());
        let report = kit.run(&mut |group| {
            if !self.json && written.is_ok() {
                written = output.print(&told(group));
            }
        })?;
        written?;
        let left = leave(&report)?;
        output.print(&if self.json { report.to_json() } else { verdict(&report, left) })?;
        Ok(ExitCode::from(u8::from(!report.conformant)))
    }

    /// This command without groups and case. What an engine does depends on its settings, and what counts as
    /// hanging on the limit.
    fn again(&self, config_path: Option<&Path>) -> String {
        let mut command = "ctxhost check".to_owned();
        if let Some(path) = config_path {
            command += &format!(" --config {}", for_shell(path));
        }
        if self.call_limit != CALL_LIMIT.as_secs() {
            command += &format!(" --call-limit {}", self.call_limit);
        }
        let file = self.file.as_deref().unwrap_or(Path::new(""));
        format!("{command} {}", for_shell(file))
    }
}

/// The table `[plugins.entries.<id>.config]` of the file that was named. No other config counts: what a
/// verdict says must not depend on the folder it was asked for in.
fn own_config(path: Option<&Path>, inspected: &Inspected) -> Result<Value, Failure> {
    let Some(path) = path else { return Ok(json!({})) };
    Ok(Config::load(path)?.engine_config(&inspected.meta.id))
}

fn headline(inspected: &Inspected) -> String {
    let Meta { id, version, abi_major, abi_minor, .. } = &inspected.meta;
    let sha256 = shown_digest(&inspected.sha256);
    format!("{id} {version}  ABI {abi_major}.{abi_minor}  sha256 {sha256}\n")
}

/// One group: a line, and what failed in it.
fn told(group: &GroupReport) -> String {
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
            let messages = counted(failure.history.len() as u64, "message");
            text += &format!("case {} shrunk to {messages}\n", failure.case);
            failure.history.iter().for_each(|line| text += &format!("    {line}\n"));
            text += &format!("    {}\n", failure.message);
        }
        if !failure.also.is_empty() {
            let cases: Vec<String> = failure.also.iter().map(u64::to_string).collect();
            let noun = if cases.len() == 1 { "case" } else { "cases" };
            text += &format!("    the same in {noun} {}\n", cases.join(", "));
        }
        text += &format!("    again: {}\n", failure.again);
    }
    text
}

/// Leaves the report of a whole run in this folder, and says whether it did.
fn leave(report: &Report) -> Result<bool, Failure> {
    if report.complete {
        std::fs::write(REPORT_FILE, report.to_json())
            .map_err(|error| Failure::internal(format!("cannot write {REPORT_FILE}: {error}")))?;
    }
    Ok(report.complete)
}

fn verdict(report: &Report, left: bool) -> String {
    let Report { checks, failed, seconds, .. } = report;
    let to = if left { format!("  -> {REPORT_FILE}") } else { String::new() };
    let checks = counted(*checks, "check");
    match report.conformant {
        true => format!("CONFORMANT  {checks}, 0 failed, {seconds:.1}s{to}\n"),
        false => format!("NOT CONFORMANT  {failed} failed, {checks}, {seconds:.1}s{to}\n"),
    }
}

impl From<CheckError> for Failure {
    fn from(error: CheckError) -> Self {
        match error {
            CheckError::NotLoadable(error) => {
                let was_read = !matches!(error, LoadError::Unreadable { .. });
                let failure = Failure::from(error);
                if was_read { failure.hint(NOTHING_CALLED) } else { failure }
            }
            CheckError::NotLoaded { reason } => Failure::library(reason).hint(NOTHING_CALLED),
            CheckError::NoSuchCase { .. } => Failure::caller(error.to_string()),
            CheckError::Io { .. } | CheckError::BadJob { .. } => {
                Failure::internal(error.to_string())
            }
        }
    }
}
