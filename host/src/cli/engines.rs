//! `ctxhost engines`: what can fill the slot, and what one of them is.

use std::path::Path;
use std::process::ExitCode;

use super::failure::Failure;
use super::opening;
use super::output::Output;
use super::render::grid::{Column, Grid};
use super::render::paint::Tone;
use crate::config::Config;
use crate::engine::{Source, inspect, stages};
use crate::runtime::roster::Roster;

/// The engines that can fill the slot.
#[derive(Debug, clap::Subcommand)]
pub(super) enum Engines {
    /// List the engines: bundled, named in the config, found in its engine_dirs.
    List,
    /// Load an engine and show what it says of itself.
    Info {
        /// Its id, or the path of its library.
        engine: String,
    },
}

impl Engines {
    pub(super) fn run(
        self,
        config_path: Option<&Path>,
        output: &mut Output,
    ) -> Result<ExitCode, Failure> {
        let config = super::config::load(config_path)?;
        match self {
            Engines::List => list(&config, output),
            Engines::Info { engine } => info(&config, &engine, output),
        }
    }
}

fn list(config: &Config, output: &mut Output) -> Result<ExitCode, Failure> {
    let slot = config.slot();
    let columns = ["", "engine", "version", "source", "state"].map(Column::left);
    let mut grid = Grid::new(columns.to_vec());
    let row = stages(&slot.engine);
    let shadows = config.shadows();
    for engine in Roster::of(config).engines() {
        let stage = row.iter().position(|id| *id == engine.id);
        let mark = if stage.is_some() { "*" } else { " " };
        let is_shadow = shadows.iter().any(|name| stages(name).contains(&engine.id.as_str()));
        let note = match (&engine.problem, stage) {
            (Some(problem), _) => problem.clone(),
            (None, Some(stage)) if row.len() > 1 => {
                format!("effective, stage {} of {}", stage + 1, row.len())
            }
            (None, Some(_)) => "effective".into(),
            (None, None) if is_shadow => "in the shadow".into(),
            (None, None) => String::new(),
        };
        let tone = if engine.problem.is_some() { Tone::Warning } else { Tone::Plain };
        let cells = [mark, &engine.id, &engine.version, &engine.source.to_string(), &note];
        grid.row(cells.map(str::to_owned).to_vec(), tone);
    }
    output.print(&grid.render(output.style()))?;
    if let Some(reason) = slot.reason {
        output.remark(&format!("the slot says {:?}, but {reason}", slot.configured));
    }
    Ok(ExitCode::SUCCESS)
}

fn info(config: &Config, name: &str, output: &mut Output) -> Result<ExitCode, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::internal(error.to_string()))?;
    let engine = opening::open(config, name)?;
    let status = runtime.block_on(engine.status()).map_err(|e| Failure::internal(e.message))?;
    let info = engine.info();
    let mut rows = vec![
        ("id", info.id.clone()),
        ("name", info.name.clone()),
        ("version", info.version.clone()),
        ("source", engine.source().to_string()),
        ("owns compaction", if info.owns_compaction { "yes" } else { "no" }.into()),
        (
            "needs",
            if info.requires.is_empty() { "nothing".into() } else { info.requires.join(", ") },
        ),
    ];
    if let Source::File(path) = engine.source() {
        let file = inspect(path).map_err(|e| Failure::caller(e.to_string()))?;
        rows.push(("engine api", file.meta.api));
        rows.push(("compiler", file.meta.rustc));
        rows.push(("sha256", file.sha256));
    }
    if let Some(worker) = engine.worker() {
        rows.push(("process", worker.confinement.applied.join("; ")));
        if !worker.confinement.missing.is_empty() {
            rows.push(("not here", worker.confinement.missing.join("; ")));
        }
    }
    if !status.summary.is_empty() {
        rows.push(("status", status.summary));
    }
    let lines = rows.iter().map(|(key, value)| format!("{key:<16}{value}\n"));
    output.print(&lines.collect::<String>())?;
    runtime.block_on(engine.dispose());
    Ok(ExitCode::SUCCESS)
}
