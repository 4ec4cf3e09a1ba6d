//! `ctxhost config`: the config file checked and explained.

use std::path::Path;
use std::process::ExitCode;

use super::failure::Failure;
use super::output::Output;
use super::render::grid::{Column, Grid};
use super::render::paint::Tone;
use crate::config::{Config as Settings, explain};
use crate::engine::{Clock, Environment, LiveEngine, OpenError};
use crate::runtime::roster::Roster;

/// The config file: checked, explained.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Config {
    /// Check every key and value, and open the engine of the slot with its settings.
    Check,
    /// Show every setting with its value, its unit, its reason and where it comes from.
    Explain,
}

impl Config {
    pub(super) fn run(
        self,
        config_path: Option<&Path>,
        output: &mut Output,
    ) -> Result<ExitCode, Failure> {
        let settings = load(config_path)?;
        match self {
            Config::Check => check(&settings, output),
            Config::Explain => show(&settings, output),
        }
    }
}

/// The config that was named, else the nearest one, else the defaults.
pub(super) fn load(given: Option<&Path>) -> Result<Settings, Failure> {
    let found = || std::env::current_dir().ok().and_then(Settings::discover);
    match given.map(Path::to_owned).or_else(found) {
        Some(path) => Ok(Settings::load(path)?),
        None => Ok(Settings::default()),
    }
}

/// Opens the engine that the slot names, and shows a setting that it refuses at its line.
pub(super) fn prove(settings: &Settings) -> Result<LiveEngine, Failure> {
    let slot = settings.slot();
    let spec = Roster::of(settings).spec(settings, &slot.engine)?;
    let environment = Environment::new(settings.timeouts.clone(), Clock::default());
    LiveEngine::open(&spec, &environment).map_err(|error| match &error {
        OpenError::Create { id, error: refusal } => {
            match refusal.detail.get("key").and_then(serde_json::Value::as_str) {
                Some(key) => {
                    let message = &refusal.message;
                    crate::config::ConfigError::engine_setting(settings, id, key, message).into()
                }
                None => Failure::from(error),
            }
        }
        _ => Failure::from(error),
    })
}

fn check(settings: &Settings, output: &mut Output) -> Result<ExitCode, Failure> {
    let slot = settings.slot();
    let engine = prove(settings)?;
    let info = engine.info();
    let mut text = format!("ok  config  {}\n", settings.name());
    text += &format!("ok  slot    context_engine = {}", slot.configured);
    text += &match slot.reason {
        Some(reason) => format!(" ({reason}; {} serves)\n", slot.engine),
        None => "\n".to_owned(),
    };
    text += &format!("ok  engine  {} {} ({})\n", info.id, info.version, engine.source());
    output.print(&text)?;
    Ok(ExitCode::SUCCESS)
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
