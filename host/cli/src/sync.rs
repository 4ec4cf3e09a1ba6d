//! `ctxhost sync`: installs the engines that ctxhost.lock names.

use std::path::Path;
use std::process::ExitCode;

use super::error::CliError;
use super::install::InstallTarget;
use super::locked;
use super::output::Output;
use ctxhost_agent::installation::{
    EngineSyncReport, EngineSyncResult, InstallationError, SyncError, SyncedEngine,
};
use ctxhost_config::Config;
use ctxhost_engine::short_digest;
use ctxhost_trust::{LOCK_NAME, LockFile, PackageError};

/// Install the engines that ctxhost.lock names.
///
/// Copies what is missing from the recorded sources and checks digests and signatures. Runs no
/// engine. With --locked neither ctxhost.lock nor ctxhost.toml may change.
#[derive(Debug, clap::Args)]
pub(super) struct SyncArgs {}

impl SyncArgs {
    pub(super) fn run(
        self,
        config_path: Option<&Path>,
        output: &mut Output,
    ) -> Result<ExitCode, CliError> {
        let target = InstallTarget::open(config_path)?;
        let report = target.installation().sync(locked::is_requested())?;
        // With --locked the report does not tell a missing lock file from an empty one.
        let lock = LockFile::read(&target.config);
        let has_lock = lock.map_err(|error| CliError::user(error.to_string()))?.is_some();
        if has_lock {
            output.print(&describe_report(&report))?;
        }
        // All of them: one missing library should not hide that another one was changed.
        let failures = report.engines.into_iter().filter_map(failure);
        if let Some(failure) = failures.reduce(CliError::with) {
            return Err(failure);
        }
        if locked::is_requested() {
            refuse_changes(report.lock_changed, &report.entries_changed)?;
            if target.config.exists() {
                locked::check_engines(&locked::with_lock(Config::load(&target.config)?))?;
            }
        }
        if !has_lock {
            let lock = LockFile::path_for(&target.config);
            return Err(InstallationError::NoLock { lock }.into());
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn describe_report(report: &EngineSyncReport) -> String {
    let mut text = String::new();
    for SyncedEngine { pin, result } in &report.engines {
        let done = match result {
            EngineSyncResult::Present => "present".to_owned(),
            EngineSyncResult::Installed { from } => format!("installed from {}", from.display()),
            // Printed as an error.
            EngineSyncResult::Failed(_) => continue,
        };
        let digits = short_digest(&pin.sha256);
        text += &format!("{} {}  sha256 {digits}  {done}\n", pin.id, pin.version);
    }
    if report.engines.is_empty() {
        text += &format!("{LOCK_NAME} names no engines\n");
    }
    if !locked::is_requested() {
        if report.lock_changed {
            text += &format!("{LOCK_NAME}: paths of earlier versions are now relative\n");
        }
        for id in &report.entries_changed {
            text += &format!("[plugins.entries.{id}] path is now that of the installed file\n");
        }
    }
    text
}

/// With --locked a checkout must be complete as it is.
fn refuse_changes(lock_changed: bool, entries_changed: &[String]) -> Result<(), CliError> {
    let mut files: Vec<String> =
        entries_changed.iter().map(|id| format!("[plugins.entries.{id}] of the config")).collect();
    if lock_changed {
        files.push(LOCK_NAME.to_owned());
    }
    if files.is_empty() {
        return Ok(());
    }
    let message = format!("--locked: {} would change", files.join(" and "));
    Err(CliError::untrusted(message)
        .hint("run `ctxhost sync` without --locked and commit the change"))
}

fn failure(engine: SyncedEngine) -> Option<CliError> {
    let EngineSyncResult::Failed(error) = engine.result else { return None };
    let message = format!("{}: {error}", engine.pin.id);
    Some(match error {
        SyncError::OtherBytes { .. }
        | SyncError::OtherEngine { .. }
        | SyncError::NotSigned { .. }
        | SyncError::Conflict { .. }
        | SyncError::Source(_)
        | SyncError::Package(PackageError::Signature(_)) => CliError::untrusted(message),
        SyncError::Folder(_) => CliError::internal(message),
        SyncError::NoSource | SyncError::SourceMissing { .. } => CliError::user(message),
        SyncError::Package(error) => CliError::from(error),
        SyncError::Config(error) => CliError::from(error),
    })
}
