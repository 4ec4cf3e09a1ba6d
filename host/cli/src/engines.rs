//! `ctxhost engines`: lists and inspects engines.

mod duplicates;
mod list;

pub(super) use duplicates::duplicate_notes;
pub(super) use list::{EffectiveEngine, chain_unavailable_reason, ended_quarantines};

use std::path::Path;
use std::process::ExitCode;

use self::list::EngineListArgs;
use super::engine_open;
use super::error::CliError;
use super::output::Output;
use super::render::format::one_line;
use ctxhost_agent::engine_options::failure_log;
use ctxhost_agent::engine_registry::{EngineRegistry, EngineRegistryError, RegisteredEngine};
use ctxhost_config::Config;
use ctxhost_engine::{EngineSource, inspect, parse_chain, short_digest, state_folder};

/// List and inspect engines.
#[derive(Debug, clap::Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(super) struct EnginesArgs {
    #[command(subcommand)]
    command: Option<EnginesCommand>,
    #[command(flatten)]
    list: EngineListArgs,
}

#[derive(Debug, clap::Subcommand)]
enum EnginesCommand {
    /// List all engines (bundled, from the config and its engine_dirs), their bytes, and which one
    /// is active.
    List(EngineListArgs),
    /// Load an engine and show its properties.
    Info {
        /// Engine id or library path; a chain as mask+legacy.
        engine: String,
    },
    /// Print the path of an engine's library.
    Path {
        /// Engine id.
        engine: String,
    },
    /// Release an engine from quarantine, in every process.
    #[command(visible_alias = "unquarantine")]
    Release {
        /// Engine id.
        engine: String,
    },
}

impl EnginesArgs {
    pub(super) fn run(
        self,
        config_path: Option<&Path>,
        output: &mut Output,
    ) -> Result<ExitCode, CliError> {
        let config = super::config::load_config(config_path)?;
        match self.command.unwrap_or(EnginesCommand::List(self.list)) {
            EnginesCommand::List(list) => list.run(&config, output),
            EnginesCommand::Path { engine } => path(&config, &engine, output),
            EnginesCommand::Release { engine } => release(&config, &engine, output),
            EnginesCommand::Info { engine } => info(&config, &engine, output),
        }
    }
}

fn path(config: &Config, id: &str, output: &mut Output) -> Result<ExitCode, CliError> {
    let registry = EngineRegistry::load(config);
    let Some(engine) = registry.engine(id) else { return Err(unknown_engine(&registry, id)) };
    match &engine.source {
        EngineSource::File(path) => output.print_unwrapped(&format!("{}\n", path.display()))?,
        EngineSource::Bundled | EngineSource::Linked(_) => {
            // An error, so that a script never passes an empty path on.
            return Err(CliError::user(format!("{id} is bundled and has no file")));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn unknown_engine(registry: &EngineRegistry, id: &str) -> CliError {
    let installed = registry.engines().map(|engine| engine.id.clone()).collect();
    EngineRegistryError::Unknown { name: id.into(), installed }.into()
}

/// New processes use a released engine at once, running ones from their next call.
fn release(config: &Config, id: &str, output: &mut Output) -> Result<ExitCode, CliError> {
    let book = failure_log(config, &state_folder());
    let registry = EngineRegistry::load(config);
    // An engine that was uninstalled may still be in quarantine.
    let is_known =
        registry.engine(id).is_some() || book.records()?.iter().any(|record| record.id == id);
    if !is_known {
        return Err(unknown_engine(&registry, id));
    }
    let records = book.release(id)?;
    if records.is_empty() {
        output.print(&format!("{id} is not in quarantine\n"))?;
        return Ok(ExitCode::SUCCESS);
    }
    for record in records {
        // 64 characters are a digest; bundled engines are recorded by version.
        let build = match record.bytes.len() {
            64 => short_digest(&record.bytes),
            _ => record.bytes.as_str(),
        };
        output.print(&format!("{id} ({build}) released; it had {}\n", record.summary()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Trust state of the loaded bytes, if the registry has them under this id.
fn trust_rows(config: &Config, id: &str, sha256: &str) -> Vec<(&'static str, String)> {
    let registry = EngineRegistry::load(config);
    let serves = |it: &&RegisteredEngine| it.sha256.as_deref() == Some(sha256);
    let Some(engine) = registry.engine(id).filter(serves) else { return Vec::new() };
    let standing = &engine.standing;
    let mut rows = vec![("trust", standing.state.label().to_owned())];
    rows.extend(standing.signer.clone().map(|key| ("signer", key)));
    rows.extend(standing.conformance.clone().map(|verdict| ("conformance", verdict)));
    rows
}

/// Shows an engine, or each engine of a chain.
fn info(config: &Config, name: &str, output: &mut Output) -> Result<ExitCode, CliError> {
    let row = parse_chain(name)
        .map_err(|row| EngineRegistryError::Chain { name: name.into(), error: row })?;
    for (number, name) in row.into_iter().enumerate() {
        if number > 0 {
            output.print("\n")?;
        }
        print_info(config, name, output)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn print_info(config: &Config, name: &str, output: &mut Output) -> Result<(), CliError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| CliError::internal(error.to_string()))?;
    let engine = engine_open::open_engine(config, name)?;
    let status = runtime.block_on(engine.status());
    let info = engine.info();
    let status = status.map_err(|error| {
        CliError::internal(format!("engine {:?} failed in status: {}", info.id, error.message))
    })?;
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
    if let EngineSource::File(path) = engine.source() {
        let file = inspect(path).map_err(|e| CliError::user(e.to_string()))?;
        rows.push(("engine api", file.meta.api));
        rows.push(("compiler", file.meta.rustc));
        rows.extend(trust_rows(config, &info.id, &file.sha256));
        rows.push(("sha256", file.sha256));
    }
    if let Some(sandbox) = engine.sandbox_info() {
        rows.push(("process", sandbox.confinement.applied.join("; ")));
        if !sandbox.confinement.missing.is_empty() {
            rows.push(("missing", sandbox.confinement.missing.join("; ")));
        }
    }
    if !status.summary.is_empty() {
        rows.push(("status", status.summary));
    }
    let lines = rows.iter().map(|(key, value)| format!("{key:<16}{}\n", one_line(value)));
    output.print(&lines.collect::<String>())?;
    // The contract promises engines a `dispose` at the end of a program.
    runtime.block_on(engine.dispose());
    Ok(())
}
