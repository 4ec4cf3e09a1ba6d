//! `ctxhost config import`: imports settings of OpenClaw or Hermes.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::error::CliError;
use crate::output::Output;
use ctxhost_config::ConfigError;
use ctxhost_config::import::{self, SourceAgent};

/// Import compaction, pruning and slot settings of another agent.
///
/// Prints a ctxhost.toml, and on standard error the settings without a counterpart, with the
/// reason.
#[derive(Debug, clap::Args)]
pub(crate) struct ImportArgs {
    /// openclaw.json of OpenClaw, or config.yaml of Hermes Agent.
    file: PathBuf,
    /// Add the settings to this file instead of printing them. Existing values are kept.
    #[arg(long, value_name = "FILE")]
    write: Option<PathBuf>,
}

impl ImportArgs {
    pub(super) fn run(self, output: &mut Output) -> Result<ExitCode, CliError> {
        let import = open(&self.file)?;
        match &self.write {
            None => output.print(&import::render(&import))?,
            Some(path) => write(&import, path, output)?,
        }
        for left_out in &import.skipped {
            // On standard error: standard output is the new ctxhost.toml.
            output.note(&format!("skipped  {}: {}", left_out.key, left_out.reason));
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn open(path: &Path) -> Result<import::SettingsImport, CliError> {
    let agent = SourceAgent::detect(path).ok_or_else(|| {
        CliError::user(format!("{} has neither a JSON nor a YAML extension", path.display()))
            .hint("pass openclaw.json of OpenClaw, or config.yaml of Hermes Agent")
    })?;
    let text = ctxhost_files::read_text(path, ctxhost_files::SMALL_FILE_BYTES)
        .map_err(|cause| ConfigError::Unreadable { path: path.to_owned(), cause })?;
    Ok(import::import(agent, &path.display().to_string(), &text)?)
}

fn write(
    import: &import::SettingsImport,
    path: &Path,
    output: &mut Output,
) -> Result<(), CliError> {
    let merged = import::merge(import, path)?;
    let name = path.display();
    let mut text =
        format!("{name}: {} written, {} already there\n", merged.written, merged.unchanged);
    for (key, there, imported) in &merged.conflicts {
        text += &format!("kept  {key} = {there}  (imported: {imported})\n");
    }
    Ok(output.print(&text)?)
}
