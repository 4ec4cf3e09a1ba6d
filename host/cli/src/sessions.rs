//! `ctxhost sessions`: lists and shows stored sessions.

mod du;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ctxhost_engine_api::Role;

use super::agent_folders::resolve_session;
use super::chat::{blob_dirs, session_folder, session_id_arg, sessions_root};
use super::error::CliError;
use super::output::Output;
use super::render::format::format_count;
use super::run_setup;
use super::session_file::read_session;
use ctxhost_history::{compactions, turns};
use ctxhost_retention::KnownSecrets;
use ctxhost_session::{Record, Session, SessionError, SessionFile, SessionFolder};
use ctxhost_store::{self as store, SessionStore, StoreKind};

pub(super) use du::total_bytes;

/// List, show and measure chat sessions.
#[derive(Debug, clap::Subcommand)]
pub(super) enum SessionsCommand {
    /// List the sessions of this folder, newest first.
    List {
        /// Working folder; by default the current one.
        #[arg(long, value_name = "FOLDER")]
        cwd: Option<PathBuf>,
    },
    /// Show a session turn by turn, with its compactions.
    Show {
        /// Session file, or an id if [store] keeps sessions in a database.
        #[arg(value_name = "FILE|ID")]
        session: PathBuf,
    },
    Du(du::DuArgs),
}

impl SessionsCommand {
    pub(super) fn run(
        self,
        config_path: Option<&Path>,
        output: &mut Output,
    ) -> Result<ExitCode, CliError> {
        let here = std::env::current_dir()?;
        let config = run_setup::find_session_config(config_path, &here, output)?;
        // Opened only for PostgreSQL: listing files must work without a connection.
        let database = match config.store.kind {
            StoreKind::Files => None,
            StoreKind::Postgres => Some(store::open(&config.store, &sessions_root())?),
        };
        let text = match (self, database) {
            (SessionsCommand::List { cwd }, None) => list(&cwd.unwrap_or(here))?,
            (SessionsCommand::List { cwd }, Some(store)) => {
                list_stored(&*store, &cwd.unwrap_or(here))?
            }
            (SessionsCommand::Show { session }, Some(store)) => match session_id_arg(&session) {
                Some(id) => show(&store.read(id)?),
                None => show(&read_session(&session, &resolve_session(&session)?)?),
            },
            (SessionsCommand::Show { session }, None) => {
                show(&read_session(&session, &resolve_session(&session)?)?)
            }
            (SessionsCommand::Du(usage), _) => return usage.run(output),
        };
        output.print(&text)?;
        Ok(ExitCode::SUCCESS)
    }
}

fn list(cwd: &Path) -> Result<String, CliError> {
    let kept = session_folder(cwd).try_list().map_err(CliError::unlisted)?;
    // Without its header nothing tells the working folder of a session: it is listed, so that it can be repaired.
    let is_listed = |kept: &&SessionFile| kept.header().is_none_or(|header| header.is_of(cwd));
    let listed: String = kept.iter().filter(is_listed).map(session_line).collect();
    Ok(if listed.is_empty() { no_sessions() } else { listed })
}

fn list_stored(store: &dyn SessionStore, cwd: &Path) -> Result<String, CliError> {
    let kept = store.list(Some(cwd))?;
    if kept.is_empty() {
        return Ok(no_sessions());
    }
    Ok(kept.iter().map(|kept| summary(&kept.id, store.read(&kept.id))).collect())
}

/// What is printed without sessions. Those of the gateway have no working folder, so no list of a folder has them.
fn no_sessions() -> String {
    let text = "no sessions in this folder; start one with `ctxhost chat`\n";
    let Some(folder) = blob_dirs().client_sessions_dir() else { return text.into() };
    let keys = std::fs::read_dir(&folder).into_iter().flatten().flatten();
    let sessions: usize = keys.map(|key| SessionFolder::from_path(&key.path()).list().len()).sum();
    if sessions == 0 {
        return text.into();
    }
    let folder = folder.display();
    let sessions = format_count(sessions as u64, "session");
    format!(
        "{text}the gateway has {sessions} in {folder}: list them with `ctxhost sessions du {folder}`, show one with \
         `ctxhost sessions show FILE`\n"
    )
}

/// A session in two lines: its file, its size, its first message.
fn session_line(kept: &SessionFile) -> String {
    summary(&kept.path.display().to_string(), Session::read(&kept.path))
}

fn summary(path: &str, session: Result<Session, SessionError>) -> String {
    match session {
        Ok(session) => {
            let view = session.live(0).snapshot();
            // The first user message identifies a session better than its id or date.
            let task = view.iter().find(|entry| entry.role() == Role::User);
            let began = task
                .map(|entry| first_line(entry.text(), &KnownSecrets::default()))
                .unwrap_or_default();
            let entries = format_count(view.len() as u64, "entry");
            let tokens = format_count(view.total_tokens(), "token");
            format!("{path}\n  {entries}, {tokens}: {began}\n")
        }
        // An unreadable session stays in the list, so that it can be repaired.
        Err(error) => format!("{path}\n  {error}\n"),
    }
}

/// The messages turn by turn, with the compactions between them.
fn show(session: &Session) -> String {
    let compactions = compactions(session);
    let mut text = String::new();
    let mut secrets = KnownSecrets::default();
    for turn in turns(session) {
        text.push_str(&format!("turn {}\n", turn.number));
        for record in turn.records {
            match compactions.iter().find(|compaction| compaction.id == record.id()) {
                Some(compaction) => text.push_str(&format!("{} {compaction}\n", record.id())),
                None => text.push_str(&message_line(record, &mut secrets).unwrap_or_default()),
            }
        }
    }
    text
}

fn message_line(record: &Record, secrets: &mut KnownSecrets) -> Option<String> {
    let entry = record.to_entry()?;
    if entry.role == Role::User {
        secrets.learn(&entry.text);
    }
    let calls = entry.calls.len();
    let text = match calls {
        0 => entry.text,
        _ => format!("{} [{}]", entry.text, format_count(calls as u64, "tool call")),
    };
    Some(format!("{} {} {}\n", entry.id, entry.role.name(), first_line(text.trim(), secrets)))
}

/// The beginning of a text, without secrets: lists are printed and passed on.
fn first_line(text: &str, secrets: &KnownSecrets) -> String {
    const MOST_CHARS: usize = 100;
    secrets.excerpt(text.lines().next().unwrap_or_default(), MOST_CHARS)
}
