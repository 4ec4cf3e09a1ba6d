//! `ctxhost doctor`: finds the sessions of the agents on this machine and shows what compactions lost.

mod find;
pub(super) mod measure;
mod permission;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::builder::NonEmptyStringValueParser;
use serde::Serialize;

use self::find::{FoundSessions, LeftOut};
use self::measure::SessionMeasure;
use self::permission::Permission;
use super::agent_folders::own_agent_folders;
use super::clock::now_ms;
use super::config::load_config;
use super::error::CliError;
use super::output::Output;
use super::render;
use ctxhost_config::EmbedderSettings;

/// Default number of sessions that are read: about two weeks of work, in about ten seconds.
pub(super) const SESSIONS: usize = 20;

/// The engine to compare with by default: it needs no model.
pub(super) const ENGINE: &str = "recall";

/// Find the sessions of your agents and what their compactions lost.
///
/// Reads the newest sessions of Claude Code, Codex, Pi, OpenClaw, opencode, Gemini CLI and ctxhost,
/// and ranks them by what is gone. Asks before it reads outside the current folder, changes nothing
/// and sends nothing. Each session with compactions is replayed with the engines, which get nine
/// tenths of the context at which the agent compacted.
#[derive(Debug, clap::Args)]
pub(super) struct DoctorArgs {
    /// Read these files and folders only.
    #[arg(long, value_name = "DIR|FILE")]
    path: Vec<PathBuf>,
    /// Read the folders of the agents without asking.
    #[arg(long)]
    yes: bool,
    /// Sessions to read, newest first.
    #[arg(long, value_name = "N", default_value_t = SESSIONS)]
    limit: usize,
    /// Engines to compare with, by id or library path.
    #[arg(
        long,
        value_name = "ID|PATH,…",
        value_delimiter = ',',
        default_value = ENGINE,
        value_parser = NonEmptyStringValueParser::new()
    )]
    engines: Vec<String>,
    /// Print the report as JSON.
    #[arg(long)]
    json: bool,
}

impl Default for DoctorArgs {
    fn default() -> Self {
        let engines = vec![ENGINE.to_owned()];
        DoctorArgs { path: Vec::new(), yes: false, limit: SESSIONS, engines, json: false }
    }
}

/// What was found.
#[derive(Debug, Serialize)]
pub(super) struct DoctorReport {
    /// The sessions with compactions, the greatest loss first.
    pub(super) compacted: Vec<SessionMeasure>,
    /// The sessions without, newest first.
    pub(super) whole: Vec<SessionMeasure>,
    /// What was not read.
    pub(super) left_out: LeftOut,
    /// The folders and files that were searched.
    pub(super) searched: Vec<PathBuf>,
    /// Whether the folders of agents may be read with `--yes` and were not.
    #[serde(skip)]
    pub(super) is_denied: bool,
    /// The time of the report, in milliseconds since 1970.
    #[serde(skip)]
    pub(super) now_ms: i64,
}

impl DoctorArgs {
    pub(super) fn run(
        self,
        config_path: Option<&Path>,
        output: &mut Output,
    ) -> Result<ExitCode, CliError> {
        let mut config = load_config(config_path)?;
        // Nothing is sent: engines are compared as they are without a model.
        (config.summariser, config.embedder) = (None, EmbedderSettings::default());
        let (found, permission) = self.find(output)?;
        let unreadable = found.left_out.unreadable_paths;
        let mut report = DoctorReport {
            compacted: Vec::new(),
            whole: Vec::new(),
            searched: found.searched,
            left_out: found.left_out,
            is_denied: permission == Permission::Denied,
            now_ms: now_ms(),
        };
        let bar = output.progress_bar("reading");
        bar.set_length(found.sessions.len() as u64);
        for session in &found.sessions {
            bar.inc(1);
            match measure::measure_session(session, &config, &self.engines)? {
                Ok(measured) if measured.loss.is_some() => report.compacted.push(measured),
                Ok(measured) => report.whole.push(measured),
                Err(unread) => report.left_out.add_unread(unread),
            }
        }
        bar.finish_and_clear();
        report.compacted.sort_by(SessionMeasure::compare_loss);
        if self.json {
            output.print_json(&report)?;
        } else {
            output.print(&render::doctor::render(&report, output.style()))?;
        }
        Ok(if unreadable == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    /// The sessions to read: of the given paths, or of the current folder and, if allowed, of the agents.
    fn find(&self, output: &mut Output) -> Result<(FoundSessions, Permission), CliError> {
        if !self.path.is_empty() {
            let found = find::find_in_paths(&self.path, self.limit, output);
            return Ok((found, Permission::Denied));
        }
        let here = std::env::current_dir()?;
        let (inside, outside): (Vec<_>, Vec<_>) =
            own_agent_folders().into_iter().partition(|folder| folder.path.starts_with(&here));
        let mut folders = inside;
        let permission = Permission::ask(&outside, self.yes, output)?;
        if permission == Permission::Granted {
            folders.extend(outside);
        }
        Ok((find::find_in_folders(&here, &folders, self.limit), permission))
    }
}
