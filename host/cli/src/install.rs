//! `ctxhost install` and `ctxhost uninstall`: pins engine libraries and names them in the config.

use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use super::error::CliError;
use super::locked;
use super::output::Output;
use super::session_arg::shell_quote;
use super::use_engine::config_target;
use ctxhost_agent::engine_options::failure_log;
use ctxhost_agent::installation::{EngineInstaller, InstalledEngine};
use ctxhost_config::{Config, FILE_NAME};
use ctxhost_engine::{FailureLog, Isolation, short_digest, split_ids, state_folder};
use ctxhost_trust::{EnginePackage, LOCK_NAME, LockFile, Signature, TrustedKeys, named_path};

/// Install an engine.
///
/// Copies its library into a private folder, pins its bytes in ctxhost.lock and adds it to
/// ctxhost.toml. Does not run it.
#[derive(Debug, clap::Args)]
pub(super) struct InstallArgs {
    /// Library, folder of its crate after `cargo build --release` or of its Makefile after `make`,
    /// or folder with one library, its report and its signature. ctxhost.lock records where it is
    /// for `ctxhost sync`: a path below ctxhost.lock, or a file:/// URL of a shared folder.
    #[arg(value_name = "FILE|DIR|URL")]
    source: String,
    /// Do not ask for confirmation.
    #[arg(short, long)]
    yes: bool,
}

/// Uninstall an engine.
///
/// Removes its library, its pin and its path in ctxhost.toml. Its settings stay.
#[derive(Debug, clap::Args)]
pub(super) struct UninstallArgs {
    /// Engine id.
    engine: String,
}

/// The files that an installation changes.
pub(super) struct InstallTarget {
    pub(super) config: PathBuf,
    settings: Config,
    state: PathBuf,
    failures: FailureLog,
}

impl InstallArgs {
    pub(super) fn run(
        self,
        config_path: Option<&Path>,
        output: &mut Output,
    ) -> Result<ExitCode, CliError> {
        locked::refuse_change("install")?;
        let target = InstallTarget::open(config_path)?;
        let path = named_path(&self.source).map_err(|error| CliError::user(error.to_string()))?;
        let plugins = &target.settings.plugins;
        let keys = TrustedKeys::parse(&plugins.trusted_keys);
        let keys = keys.map_err(|error| CliError::user(error.to_string()))?;
        // Read once: the digest that is shown is of the bytes that get installed.
        let package = EnginePackage::open(&path, &keys)?;
        let isolation = target.installation().isolation(&package.file)?;
        output.print(&describe_package(&package, isolation, &target.config, &path)?)?;
        // After the description, so that the user sees which file was refused.
        if plugins.require_signature && package.signer().is_none() {
            let message = "not installed: plugins.require_signature requires a signature by one of \
                           plugins.trusted_keys";
            let error = CliError::untrusted(message);
            return Err(match &package.signature {
                Signature::UnknownKey(key) => error.hint(format!(
                    "if you trust the signer, add \"{key}\" to trusted_keys in [plugins] of {}",
                    target.config.display()
                )),
                Signature::Missing | Signature::Trusted(_) => error,
            });
        }
        // The answer defaults to no, and a refusal is not success for a script.
        if !self.yes && !confirm()? {
            output.print("nothing was installed\n")?;
            return Ok(ExitCode::FAILURE);
        }
        let installed = target.installation().install(&package, &self.source)?;
        output.print(&describe_installed(&installed, &target, config_path))?;
        Ok(ExitCode::SUCCESS)
    }
}

impl UninstallArgs {
    pub(super) fn run(
        self,
        config_path: Option<&Path>,
        output: &mut Output,
    ) -> Result<ExitCode, CliError> {
        locked::refuse_change("uninstall")?;
        let target = InstallTarget::open(config_path)?;
        let pin = target.installation().uninstall(&self.engine)?;
        let digits = short_digest(&pin.sha256);
        output.print(&format!("{} {}  sha256 {digits} is uninstalled\n", pin.id, pin.version))?;
        // The slot is left alone: replacing the active engine is a decision of its own.
        if target.settings.slot().engine == pin.id {
            let config = target.config.display();
            output.note(&format!("the slot still names it ({config}); run `ctxhost use legacy`"));
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl InstallTarget {
    pub(super) fn open(config_path: Option<&Path>) -> Result<InstallTarget, CliError> {
        let config = config_target(config_path)?;
        let settings = if config.exists() { Config::load(&config)? } else { Config::default() };
        let state = state_folder();
        let failures = failure_log(&settings, &state);
        Ok(InstallTarget { config, settings, state, failures })
    }

    pub(super) fn installation(&self) -> EngineInstaller<'_> {
        EngineInstaller { config: &self.config, state: &self.state, failure_log: &self.failures }
    }
}

/// Describes what is about to be trusted.
fn describe_package(
    package: &EnginePackage,
    isolation: Isolation,
    config: &Path,
    given: &Path,
) -> Result<String, CliError> {
    let file = &package.file;
    let signer = match &package.signature {
        Signature::Missing => "none".to_owned(),
        Signature::UnknownKey(key) => format!("{key} (not in trusted_keys, so not checked)"),
        Signature::Trusted(key) => key.clone(),
    };
    let rights = if isolation == Isolation::Process {
        "in a sandboxed process"
    } else {
        "with your permissions"
    };
    let mut text = format!("the engine runs as native code {rights}\n");
    let (id, version, sha256) = (&file.meta.id, &file.meta.version, short_digest(&file.sha256));
    text += &format!("{id} {version}  sha256 {sha256}  signer {signer}  isolation {isolation}\n");
    // A folder was given: name the library that was found in it.
    if std::path::absolute(given).is_ok_and(|given| given != file.path) {
        text += &format!("from {}\n", file.path.display());
    }
    text += &match &package.conformance {
        Some(conformance) => format!("conformance {}\n", conformance.verdict),
        None => {
            let named = if given.is_dir() { &*file.path } else { given };
            format!("conformance none (ctxhost check {})\n", shell_quote(named))
        }
    };
    let lock = LockFile::read(config).map_err(|error| CliError::user(error.to_string()))?;
    if let Some(old) = lock.as_ref().and_then(|lock| lock.pin(id)) {
        let old_sha256 = short_digest(&old.sha256);
        text += &if old.sha256 == file.sha256 {
            "these bytes are already pinned\n".to_owned()
        } else {
            format!("{} {old_sha256} → {version} {sha256}\n", old.version)
        };
    }
    Ok(text)
}

fn describe_installed(
    installed: &InstalledEngine,
    target: &InstallTarget,
    given: Option<&Path>,
) -> String {
    let id = &installed.pin.id;
    let mut text = format!("pinned in {LOCK_NAME}\n");
    if installed.pin.source.is_none() {
        text += &format!(
            "no source recorded, since the file is not below {LOCK_NAME}: `ctxhost sync` of another \
             checkout will not find it\n"
        );
    }
    if installed.config_changed {
        let name = target.config.file_name().unwrap_or(FILE_NAME.as_ref()).to_string_lossy();
        let is_new = if installed.config_created { " (new)" } else { "" };
        text += &format!("{name}{is_new}: [plugins.entries.{id}] path\n");
    }
    if installed.released {
        text += "older builds are released from quarantine\n";
    }
    let slot = target.settings.slot().configured;
    if !split_ids(&slot).contains(&id.as_str()) {
        let config =
            given.map(|path| format!(" --config {}", shell_quote(path))).unwrap_or_default();
        text += &format!(
            "next: ctxhost use {id}{config}; `ctxhost engines info {id}` loads it and shows what it needs\n"
        );
    }
    text
}

/// Asks for confirmation on the terminal; without one the answer is no.
fn confirm() -> Result<bool, CliError> {
    if !std::io::stdin().is_terminal() {
        let error =
            CliError::user("cannot ask for confirmation without a terminal; nothing was installed");
        return Err(error.hint("check the lines above, then repeat the command with --yes"));
    }
    let mut stderr = std::io::stderr();
    // On standard error, since standard output may be redirected to a file.
    write!(stderr, "install it? [y/N] ")?;
    stderr.flush()?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes"))
}
