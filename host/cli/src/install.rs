//! `ctxhost install` and `ctxhost uninstall`: which code may run here, and who said so.

use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use super::failure::Failure;
use super::output::Output;
use super::use_engine::target;
use ctxhost_config::{Config, FILE_NAME};
use ctxhost_engine::{FailureBook, Isolation, shown_digest, stages, state_folder};
use ctxhost_runtime::engine_options::failure_book;
use ctxhost_runtime::installation::{Installation, InstalledEngine};
use ctxhost_trust::{Keys, LOCK_NAME, LockFile, Package, Signature};

/// Install an engine: copy its library into a private folder, pin its bytes in ctxhost.lock and name
/// it in ctxhost.toml. Nothing of it is run.
#[derive(Debug, clap::Args)]
pub(super) struct Install {
    /// The library, the folder of its crate after `cargo build --release` or of its Makefile after `make`,
    /// or a folder that holds one library with its report and its signature.
    #[arg(value_name = "FILE|DIR")]
    path: PathBuf,
    /// Do not ask.
    #[arg(short, long)]
    yes: bool,
}

/// Take an installed engine away: its library, its pin and its path in ctxhost.toml. Its settings stay.
#[derive(Debug, clap::Args)]
pub(super) struct Uninstall {
    /// The engine's id.
    engine: String,
}

/// Where things are for this command.
struct Place {
    config: PathBuf,
    settings: Config,
    state: PathBuf,
    failures: FailureBook,
}

impl Install {
    pub(super) fn run(
        self,
        config_path: Option<&Path>,
        output: &mut Output,
    ) -> Result<ExitCode, Failure> {
        let place = Place::of(config_path)?;
        let plugins = &place.settings.plugins;
        let keys = Keys::parse(&plugins.trusted_keys);
        let keys = keys.map_err(|error| Failure::caller(error.to_string()))?;
        let package = Package::open(&self.path, &keys)?;
        let isolation = place.installation().isolation(&package.file)?;
        output.print(&told(&package, isolation, &place.config, &self.path)?)?;
        if plugins.require_signature && package.signer().is_none() {
            let message = "not installed: plugins.require_signature asks for a signature by one of \
                           plugins.trusted_keys";
            return Err(Failure::distrust(message));
        }
        if !self.yes && !agreed()? {
            output.print("nothing was installed\n")?;
            return Ok(ExitCode::FAILURE);
        }
        let installed = place.installation().install(&package)?;
        output.print(&done(&installed, &place, config_path))?;
        Ok(ExitCode::SUCCESS)
    }
}

impl Uninstall {
    pub(super) fn run(
        self,
        config_path: Option<&Path>,
        output: &mut Output,
    ) -> Result<ExitCode, Failure> {
        let place = Place::of(config_path)?;
        let pin = place.installation().uninstall(&self.engine)?;
        let digits = shown_digest(&pin.sha256);
        output.print(&format!("{} {}  sha256 {digits} is uninstalled\n", pin.id, pin.version))?;
        if place.settings.slot().engine == pin.id {
            let config = place.config.display();
            output.remark(&format!(
                "the slot still names it ({config}); `ctxhost use legacy` mends that"
            ));
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Place {
    fn of(config_path: Option<&Path>) -> Result<Place, Failure> {
        let config = target(config_path);
        let settings = if config.exists() { Config::load(&config)? } else { Config::default() };
        let state = state_folder();
        let failures = failure_book(&settings, &state);
        Ok(Place { config, settings, state, failures })
    }

    fn installation(&self) -> Installation<'_> {
        Installation { config: &self.config, state: &self.state, failures: &self.failures }
    }
}

/// What is about to be trusted.
fn told(
    package: &Package,
    isolation: Isolation,
    config: &Path,
    given: &Path,
) -> Result<String, Failure> {
    let file = &package.file;
    let signer = match &package.signature {
        Signature::Missing => "none".to_owned(),
        Signature::Stranger(key) => format!("{key} (not in trusted_keys, so not checked)"),
        Signature::By(key) => key.clone(),
    };
    let mut text = "installing runs native code with your permissions\n".to_owned();
    if isolation == Isolation::Process {
        text = "installing runs native code, in a process of its own\n".to_owned();
    }
    let (id, version, sha256) = (&file.meta.id, &file.meta.version, shown_digest(&file.sha256));
    text += &format!("{id} {version}  sha256 {sha256}  signer {signer}  isolation {isolation}\n");
    if std::path::absolute(given).is_ok_and(|given| given != file.path) {
        text += &format!("from {}\n", file.path.display());
    }
    text += &match &package.conformance {
        Some(conformance) => format!("conformance {}\n", conformance.verdict),
        None => {
            let named = if given.is_dir() { &*file.path } else { given };
            format!("conformance none (ctxhost check {})\n", named.display())
        }
    };
    let lock = LockFile::read(config).map_err(|error| Failure::caller(error.to_string()))?;
    if let Some(old) = lock.as_ref().and_then(|lock| lock.pin(id)) {
        let old_sha256 = shown_digest(&old.sha256);
        text += &match old.sha256 == file.sha256 {
            true => "these bytes are pinned already\n".to_owned(),
            false => format!("{} {old_sha256} -> {version} {sha256}\n", old.version),
        };
    }
    Ok(text)
}

fn done(installed: &InstalledEngine, place: &Place, given: Option<&Path>) -> String {
    let id = &installed.pin.id;
    let mut text = format!("pinned in {LOCK_NAME}\n");
    if installed.config_changed {
        let name = place.config.file_name().unwrap_or(FILE_NAME.as_ref()).to_string_lossy();
        let is_new = if installed.config_created { " is new" } else { "" };
        text += &format!("{name}{is_new}: [plugins.entries.{id}] path\n");
    }
    if installed.released {
        text += "the quarantine of older builds is lifted\n";
    }
    let slot = place.settings.slot().configured;
    if !stages(&slot).contains(&id.as_str()) {
        let config = given.map(|path| format!(" --config {}", path.display())).unwrap_or_default();
        text += &format!("next: ctxhost use {id}{config}\n");
    }
    text
}

/// Asks whoever sits there. Where nobody does, nobody agreed.
fn agreed() -> Result<bool, Failure> {
    if !std::io::stdin().is_terminal() {
        let failure = Failure::caller("nobody can be asked here, so nothing was installed");
        return Err(failure.hint("say --yes where you have looked at what stands above"));
    }
    let mut stderr = std::io::stderr();
    write!(stderr, "install it? [y/N] ")?;
    stderr.flush()?;
    let mut answer = String::new();
    std::io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim().to_lowercase().as_str(), "y" | "yes"))
}
