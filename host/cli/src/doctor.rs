//! `ctxhost doctor`: finds the sessions of the agents on this machine and shows what compactions lost.

mod find;
pub(super) mod measure;
mod permission;
pub(super) mod session_part;
mod stub;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::builder::{NonEmptyStringValueParser, RangedU64ValueParser};
use serde::Serialize;

use self::find::FoundSessions;
pub(super) use self::find::LeftOut;
use self::measure::{MeasuredFile, SessionMeasure, UnreadSession};
use self::permission::Permission;
use super::agent_folders::own_agent_folders;
use super::clock::now_ms;
use super::config::load_config;
use super::error::CliError;
use super::output::Output;
use super::render;
use super::render::format::one_line;
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
    #[arg(
        long,
        value_name = "N",
        default_value_t = SESSIONS,
        value_parser = RangedU64ValueParser::<usize>::new().range(1..)
    )]
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
    /// Files that cannot be read.
    pub(super) unreadable: Vec<UnreadableFile>,
    /// The folders and files that were searched.
    #[serde(serialize_with = "super::json_path::serialize_list")]
    pub(super) searched: Vec<PathBuf>,
    /// Whether the folders of agents may be read with `--yes` and were not.
    #[serde(skip)]
    pub(super) is_denied: bool,
    /// The number of sessions to read.
    #[serde(skip)]
    pub(super) limit: usize,
    /// The time of the report, in milliseconds since 1970.
    #[serde(skip)]
    pub(super) now_ms: i64,
}

/// A file or folder that cannot be read.
#[derive(Debug, Serialize)]
pub(super) struct UnreadableFile {
    #[serde(serialize_with = "super::json_path::serialize")]
    pub(super) path: PathBuf,
    pub(super) reason: String,
}

impl UnreadableFile {
    /// `None` for one that does not exist.
    pub(super) fn new(path: &Path, error: &std::io::Error) -> Option<UnreadableFile> {
        let is_missing = error.kind() == std::io::ErrorKind::NotFound;
        let (path, reason) = (path.to_owned(), error.to_string());
        (!is_missing).then_some(UnreadableFile { path, reason })
    }

    /// `PATH cannot be read: REASON`.
    pub(super) fn describe(&self) -> String {
        let path = one_line(&render::doctor::short_path(&self.path));
        format!("{path} cannot be read: {}", one_line(&self.reason))
    }
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
        let mut is_failed = found.left_out.unreadable_paths > 0;
        let mut report = DoctorReport {
            compacted: Vec::new(),
            whole: Vec::new(),
            searched: found.searched,
            left_out: found.left_out,
            unreadable: found.unreadable,
            limit: self.limit,
            is_denied: permission == Permission::Denied,
            now_ms: now_ms(),
        };
        let bar = output.progress_bar("reading");
        bar.set_length(found.sessions.len() as u64);
        for session in &found.sessions {
            bar.inc(1);
            match measure::measure_session(session, &config, &self.engines)? {
                MeasuredFile::Session(measured) if measured.loss.is_some() => {
                    report.compacted.push(*measured);
                }
                MeasuredFile::Session(measured) => report.whole.push(*measured),
                MeasuredFile::LeftOut(unread) => {
                    let is_empty = matches!(unread, UnreadSession::Empty);
                    is_failed |= !is_empty && self.is_named(&session.path);
                    report.left_out.add_unread(unread);
                }
                MeasuredFile::Unreadable(reason) => {
                    is_failed |= self.is_named(&session.path);
                    report.unreadable.push(UnreadableFile { path: session.path.clone(), reason });
                }
            }
        }
        bar.finish_and_clear();
        report.compacted.sort_by(SessionMeasure::compare_loss);
        if self.json {
            output.print_json(&report)?;
        } else {
            output.print(&render::doctor::render(&report, output.style()))?;
        }
        Ok(if is_failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
    }

    /// Whether the user named a file, or the database that a session is in.
    fn is_named(&self, path: &Path) -> bool {
        self.path.iter().any(|named| !named.is_dir() && path.starts_with(named))
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

#[cfg(test)]
mod tests {
    use clap::ColorChoice;

    use super::*;

    #[test]
    fn a_named_file_that_cannot_be_read_is_a_failure() {
        let folder = tempfile::tempdir().unwrap();
        let exit = |name: &str, bytes: &[u8]| {
            let path = folder.path().join(name);
            std::fs::write(&path, bytes).unwrap();
            let args = DoctorArgs { path: vec![path], ..DoctorArgs::default() };
            args.run(None, &mut Output::new(ColorChoice::Never)).unwrap()
        };
        assert_eq!(exit("s.jsonl.zst", b"\x28\xB5\x2F\xFD\x04"), ExitCode::FAILURE);
        assert_eq!(exit("opencode.db", b"no database"), ExitCode::FAILURE);
        assert_eq!(exit("log.jsonl", b"{\"level\":\"info\"}"), ExitCode::FAILURE);
        let title = br#"{"type":"summary","summary":"Mend it","leafUuid":"u"}"#;
        assert_eq!(exit("title.jsonl", title), ExitCode::SUCCESS);
        // A folder may hold anything.
        let args = DoctorArgs { path: vec![folder.path().to_owned()], ..DoctorArgs::default() };
        let code = args.run(None, &mut Output::new(ColorChoice::Never)).unwrap();
        assert_eq!(code, ExitCode::SUCCESS);
    }
}
