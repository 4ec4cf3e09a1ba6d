//! `ctxhost config`: the config file checked, explained, and made out of another agent's.

mod import;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use super::failure::Failure;
use super::opening;
use super::output::Output;
use super::render::grid::{Column, Grid};
use super::render::paint::Tone;
use ctxhost_config::{Config as Settings, FILE_NAME, explain, schema};
use ctxhost_engine::{Inspected, stages};
use ctxhost_runtime::roster;
use ctxhost_trust::{LOCK_NAME, Trust};

/// The config file: checked, explained, described, imported.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Config {
    /// Check every key and value, and open the engine of the slot and the bundled ones with their
    /// settings. Other libraries are read, not loaded.
    Check,
    /// Show every setting with its value, its unit, its reason and where it comes from.
    Explain,
    /// Print the JSON Schema of ctxhost.toml, with which editors complete and check it.
    Schema,
    Import(import::Import),
}

impl Config {
    pub(super) fn run(
        self,
        config_path: Option<&Path>,
        output: &mut Output,
    ) -> Result<ExitCode, Failure> {
        match self {
            Config::Check => check(&load(config_path)?, output),
            Config::Explain => show(&load(config_path)?, output),
            Config::Schema => print_schema(output),
            Config::Import(command) => command.run(output),
        }
    }
}

/// The config that was named, else the nearest one, else the defaults.
pub(super) fn load(given: Option<&Path>) -> Result<Settings, Failure> {
    match given.map(Path::to_owned).or_else(nearest) {
        Some(path) => Ok(Settings::load(path)?),
        None => Ok(Settings::default()),
    }
}

/// The nearest config of this folder and those above.
pub(super) fn nearest() -> Option<PathBuf> {
    Settings::discover(std::env::current_dir().ok()?).map(from_here)
}

/// A path below this folder is named from here.
pub(super) fn from_here(path: PathBuf) -> PathBuf {
    let here = std::env::current_dir().unwrap_or_default();
    path.strip_prefix(&here).map(Path::to_owned).unwrap_or(path)
}

fn check(settings: &Settings, output: &mut Output) -> Result<ExitCode, Failure> {
    let slot = settings.slot();
    let mut text = match settings.name() {
        "" => format!("ok  config  defaults, there is no {FILE_NAME} here or above\n"),
        name => format!("ok  config  {name}\n"),
    };
    text += &format!("ok  slot    context_engine = {}", slot.configured);
    text += &match slot.reason {
        Some(reason) => format!(" ({reason}; {} serves)\n", slot.engine),
        None => "\n".to_owned(),
    };
    text += &in_the_shadow(settings);
    text += &trusted(settings);
    let shadows = settings.shadows();
    let mut used = stages(&slot.engine);
    for id in shadows.iter().flat_map(|name| stages(name)) {
        if !used.contains(&id) {
            used.push(id);
        }
    }
    let others = settings.plugins.entries.keys().filter(|id| !used.contains(&id.as_str()));
    let others = others.filter(|id| settings.plugins.refusal(id).is_none());
    let in_use = used.iter().map(|id| opened(settings, id));
    let beside = others.map(|id| match opening::find(settings, id)? {
        None => opened(settings, id),
        Some(file) => Ok(read(&file)),
    });
    // One that is not usable hides none of the others.
    let (usable, failures): (Vec<_>, Vec<_>) = in_use.chain(beside).partition(Result::is_ok);
    text.extend(usable.into_iter().flatten());
    output.print(&text)?;
    match failures.into_iter().filter_map(Result::err).reduce(Failure::and) {
        Some(failure) => Err(failure),
        None => Ok(ExitCode::SUCCESS),
    }
}

/// Who runs in the shadow, and who may not.
fn in_the_shadow(settings: &Settings) -> String {
    let refused = settings.plugins.slots.shadow.iter().filter_map(|name| {
        let reason = settings.plugins.shadow_refusal(name)?;
        Some(format!("{name} does not run: {reason}"))
    });
    let (shadows, refused) = (settings.shadows(), refused.collect::<Vec<_>>());
    let names = if shadows.is_empty() { "none".to_owned() } else { shadows.join(", ") };
    match refused.as_slice() {
        [] if shadows.is_empty() => String::new(),
        [] => format!("ok  slot    shadow = {names}\n"),
        refused => format!("ok  slot    shadow = {names} ({})\n", refused.join("; ")),
    }
}

/// What files need, where they need anything.
fn trusted(settings: &Settings) -> String {
    let policy = roster::policy(settings);
    match (policy.trust(), policy.lock()) {
        (Trust::Any, _) => String::new(),
        (Trust::Pinned, None) => "ok  trust   pinned, and the lock cannot be read\n".into(),
        (Trust::Pinned, Some(lock)) => {
            format!("ok  trust   pinned, {} in {LOCK_NAME}\n", lock.pins().count())
        }
    }
}

fn opened(settings: &Settings, id: &str) -> Result<String, Failure> {
    let engine = opening::open(settings, id)?;
    let info = engine.info();
    Ok(format!("ok  engine  {} {} ({})\n", info.id, info.version, engine.source()))
}

/// Loading a library is running it, and one that serves nobody is not run for a check.
fn read(file: &Inspected) -> String {
    let (meta, path) = (&file.meta, file.path.display());
    format!("ok  engine  {} {} ({path}) - read, not loaded\n", meta.id, meta.version)
}

fn show(settings: &Settings, output: &mut Output) -> Result<ExitCode, Failure> {
    let columns = ["setting", "value", "unit", "from", "reason"].map(Column::left);
    let mut grid = Grid::new(columns.to_vec());
    for row in explain(settings) {
        grid.row(vec![row.key, row.value, row.unit, row.source, row.reason], Tone::Plain);
    }
    output.print(&grid.render(output.style()))?;
    Ok(ExitCode::SUCCESS)
}

fn print_schema(output: &mut Output) -> Result<ExitCode, Failure> {
    output.print(&format!("{:#}\n", schema()))?;
    Ok(ExitCode::SUCCESS)
}
