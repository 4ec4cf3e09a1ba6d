//! `ctxhost store`: manages the session database.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use super::agent_folders::resolve_session;
use super::chat::sessions_root;
use super::config::load_config;
use super::error::CliError;
use super::output::Output;
use super::render::format::{format_count, group_digits};
use super::run_setup;
use ctxhost_config::Config;
use ctxhost_session::Session;
use ctxhost_store::{CopyReport, StoreKind, StoreSettings, copy_sessions, migrate, open};

/// Manage the session database of `[store]`.
#[derive(Debug, clap::Subcommand)]
pub(super) enum StoreCommand {
    /// Create or upgrade the tables, and copy session files into the database.
    ///
    /// Safe to repeat: existing sessions are skipped. The files are kept.
    Migrate {
        /// URL of the database; by default that of [store] in ctxhost.toml.
        #[arg(long, value_name = "URL")]
        to: Option<String>,
        /// Copy the session files in this folder and below.
        #[arg(long, value_name = "FOLDER")]
        from: Option<PathBuf>,
    },
}

impl StoreCommand {
    pub(super) fn run(
        self,
        config_path: Option<&Path>,
        output: &mut Output,
    ) -> Result<ExitCode, CliError> {
        let StoreCommand::Migrate { to, from } = self;
        let config =
            run_setup::find_session_config(config_path, &std::env::current_dir()?, output)?;
        let settings = settings(&config, to);
        let (found, newest) = migrate(&settings)?;
        output.print(&schema_line(&settings.schema, found, newest))?;
        let Some(folder) = from else { return Ok(ExitCode::SUCCESS) };
        let files = session_files(&folder)?;
        let store = open(&settings, &sessions_root())?;
        let sessions =
            files.into_iter().map(|path| (path.display().to_string(), Session::read(&path)));
        let copied = copy_sessions(sessions, &*store);
        output.print(&copied_lines(&copied))?;
        // A difference is a failure too: one of the two copies would be lost later.
        let is_whole = copied.failed.is_empty() && copied.different.is_empty();
        Ok(if is_whole { ExitCode::SUCCESS } else { ExitCode::from(1) })
    }
}

/// The file of a session on the command line. Its error says where the sessions are, if that is a database.
pub(super) fn find_session(named: &Path, config_path: Option<&Path>) -> Result<PathBuf, CliError> {
    resolve_session(named).map_err(|error| stored_hint(error, named, config_path))
}

/// Adds to the error of a session that is not a file where the config keeps sessions, if that is a database.
pub(super) fn stored_hint(error: CliError, named: &Path, config_path: Option<&Path>) -> CliError {
    // The error stays as it is if the config has one of its own.
    let is_stored = || load_config(config_path).is_ok_and(|config| is_database(&config));
    if named.exists() || !is_stored() {
        return error;
    }
    error.hint(
        "[store] keeps the sessions of `chat` in PostgreSQL, and this command reads files only; `ctxhost sessions list` \
         lists them, `ctxhost sessions show ID` prints one",
    )
}

/// Whether sessions are in a database.
pub(super) fn is_database(config: &Config) -> bool {
    config.store.kind == StoreKind::Postgres
}

fn settings(config: &Config, to: Option<String>) -> StoreSettings {
    let configured = StoreSettings { kind: StoreKind::Postgres, ..config.store.clone() };
    match to {
        // The flag replaces both ways of naming the database.
        Some(url) => StoreSettings { url: Some(url), url_env: None, ..configured },
        None => configured,
    }
}

fn schema_line(schema: &str, found: i32, newest: i32) -> String {
    match found {
        0 => format!("schema {schema}: created, version {newest}\n"),
        found if found == newest => format!("schema {schema}: already at version {newest}\n"),
        found => format!("schema {schema}: upgraded from version {found} to {newest}\n"),
    }
}

/// The session files in a folder and below, sorted.
fn session_files(folder: &Path) -> Result<Vec<PathBuf>, CliError> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let unreadable =
            |error| CliError::user(format!("cannot read {}: {error}", folder.display()));
        for entry in std::fs::read_dir(&folder).map_err(unreadable)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "jsonl") {
                found.push(path);
            }
        }
    }
    found.sort();
    Ok(found)
}

fn copied_lines(copied: &CopyReport) -> String {
    let mut lines = format!(
        "{} copied ({}), {} already present\n",
        format_count(copied.copied as u64, "session"),
        format_count(copied.lines as u64, "line"),
        group_digits(copied.present as u64)
    );
    for name in &copied.different {
        lines += &format!("differs in the database, not changed: {name}\n");
    }
    for (name, reason) in &copied.failed {
        lines += &format!("not copied: {name}: {reason}\n");
    }
    lines
}
