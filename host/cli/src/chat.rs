//! `ctxhost chat`: an agent in the terminal, for one message or a conversation.

mod command;
mod event_printer;
mod piped_input;
mod repl;

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use self::event_printer::EventPrinter;
use super::config::watched_config;
use super::error::{CliError, disk_hint, is_failed_disk};
use super::output::Output;
use super::run_setup;
use super::session_arg::shell_quote;
use super::session_file::open_to_change;
use super::window::parse_tokens;
use ctxhost_agent::engine_options::failure_log;
use ctxhost_agent::{Runtime, RuntimeBuilder, SessionId, TurnError, TurnReply};
use ctxhost_blobs::BlobDirs;
use ctxhost_config::Config;
use ctxhost_dialects::message::StopReason;
use ctxhost_engine::{HostClock, state_folder};
use ctxhost_session::{
    LineFault, Session, SessionError, SessionFolder, SessionHeader, SessionLineProblem,
    remove_unused,
};
use ctxhost_store::{self as store, SessionStore, StoreKind};

/// The exit code after Ctrl-C: that of a process that the signal ends, as shells report it.
const INTERRUPTED: u8 = 130;

/// Damaged lines that are named in a warning.
const SHOWN_LINES: usize = 5;

/// Talk to a model that works in this folder with tools.
///
/// The conversation is a session file that Pi can open. The model is [agent] model of ctxhost.toml,
/// or --model.
#[derive(Debug, clap::Args)]
pub(super) struct ChatArgs {
    /// Send this message, and the text that is piped to standard input; print the answer and exit.
    #[arg(short, long, value_name = "TEXT")]
    prompt: Option<String>,
    /// Session to continue: a file, or an id if [store] keeps sessions in a database. It is created
    /// if it does not exist.
    #[arg(long, value_name = "FILE|ID", conflicts_with = "resume")]
    session: Option<PathBuf>,
    /// Continue the newest session of this folder.
    #[arg(short = 'c', long = "continue")]
    resume: bool,
    /// Model, as provider/id.
    #[arg(long, value_name = "MODEL")]
    model: Option<String>,
    /// Context window of the model, such as 32k.
    #[arg(long, value_name = "TOKENS", value_parser = parse_tokens)]
    window: Option<u64>,
    /// Engine, by id or library path, or a chain such as mask+legacy; by default the active engine.
    #[arg(long, value_name = "ID|PATH")]
    engine: Option<String>,
}

impl ChatArgs {
    pub(super) fn run(
        self,
        config_path: Option<&Path>,
        output: &mut Output,
    ) -> Result<ExitCode, CliError> {
        // A model would be asked, and paid, for an answer to nothing: `-p "$(cat missing)"`.
        if self.prompt.as_ref().is_some_and(|text| text.trim().is_empty()) {
            return Err(CliError::user("the message of -p is empty"));
        }
        let cwd = std::env::current_dir()?;
        let config = run_setup::find_config(config_path, &cwd, output)?;
        let prompt = self.prompt.as_deref();
        let prompt = prompt.map(|text| piped_input::with_piped_input(text, output)).transpose()?;
        let threads = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        threads.block_on(async {
            let store = store::open(&config.store, &sessions_root())?;
            // Before the session: a chat that cannot start leaves no empty one for --continue.
            let runtime = self.runtime(&config, store.clone(), &cwd).await?;
            if !self.has_model(&config) {
                return Err(TurnError::NoModel.into());
            }
            let ChatSession { session, new_file } = self.session(&config, &*store, &cwd)?;
            if let Some(warning) = damage_warning(&session) {
                output.note(&warning);
            }
            let session = runtime.adopt_session(session)?;
            let held = runtime.quarantine().map(|held| held.reason);
            if let Some(reason) = &held {
                output.note(&format!("using engine {}: {reason}", runtime.engine()));
            }
            let show = EventPrinter::start(&runtime, output.style(), held);
            let outcome = match &prompt {
                Some(text) => send_once(&runtime, &session, text).await,
                None => repl::run_repl(&runtime, &session, &config, output).await,
            };
            // Waits for background work, such as a compaction, before the events stop being
            // printed.
            let closing = async {
                runtime.shutdown().await;
                if let Some(path) = new_file {
                    runtime.close_session(&session).await;
                    remove_if_unused(&path);
                }
            };
            tokio::select! {
                () = closing => {}
                _ = tokio::signal::ctrl_c() => {}
            }
            let printed = show.finish().await;
            let code = outcome?;
            printed.map_err(unprinted_error)?;
            Ok(code)
        })
    }

    /// Whether a model is named: without one every message would fail.
    fn has_model(&self, config: &Config) -> bool {
        let agent = &config.agent;
        self.model.is_some() || agent.model.is_some() || !agent.fallbacks.is_empty()
    }

    async fn runtime(
        &self,
        config: &Config,
        store: Arc<dyn SessionStore>,
        cwd: &Path,
    ) -> Result<Runtime, CliError> {
        let folder = state_folder().join("store");
        let builder = RuntimeBuilder::from_config(config).store_folder(folder).store(store);
        let builder = builder.failure_log(failure_log(config, &state_folder()));
        let mut builder = builder.blob_dirs(blob_dirs()).workspace(cwd).query_windows();
        if let Some(model) = &self.model {
            builder = builder.model(model);
        }
        if let Some(window_tokens) = self.window {
            builder = builder.window_tokens(window_tokens);
        }
        if let Some(engine) = &self.engine {
            builder = builder.engine(engine);
        }
        builder = builder.watch_config(watched_config(config), state_folder());
        Ok(builder.build().await?)
    }

    fn session(
        &self,
        config: &Config,
        store: &dyn SessionStore,
        cwd: &Path,
    ) -> Result<ChatSession, CliError> {
        let is_stored = config.store.kind != StoreKind::Files;
        match &self.session {
            Some(named) => match session_id_arg(named).filter(|_| is_stored) {
                Some(id) => Ok(match store.open(id) {
                    // A given id that does not exist is created, so that scripts need not check first.
                    Err(SessionError::NotFound { .. }) => store.create(header(Some(id), cwd))?,
                    opened => opened?,
                }
                .into()),
                None => open_or_create(named, cwd),
            },
            None if is_stored => {
                let newest = if self.resume { newest_stored(store, cwd)? } else { None };
                Ok(match newest {
                    Some(session) => session,
                    None => store.create(header(None, cwd))?,
                }
                .into())
            }
            None => {
                let folder = session_folder(cwd);
                let newest = if self.resume {
                    folder.newest_of(cwd).map_err(CliError::unlisted)?
                } else {
                    None
                };
                Ok(match newest {
                    Some(kept) => Session::open(&kept.path)?.into(),
                    None => ChatSession::created(folder.start_session(cwd)?),
                })
            }
        }
    }
}

/// The session of a chat.
struct ChatSession {
    session: Session,
    /// Its file, if this chat created it.
    new_file: Option<PathBuf>,
}

impl ChatSession {
    fn created(session: Session) -> ChatSession {
        ChatSession { new_file: session.path().map(Path::to_owned), session }
    }
}

impl From<Session> for ChatSession {
    fn from(session: Session) -> ChatSession {
        ChatSession { session, new_file: None }
    }
}

/// Opens a session file. One that does not exist is created, and one without a byte becomes a session.
fn open_or_create(path: &Path, cwd: &Path) -> Result<ChatSession, CliError> {
    let create = || Session::in_memory(header(None, cwd)).into_file(path);
    // Of the name itself: a session is not written through a link.
    match path.symlink_metadata() {
        Ok(found) if found.is_file() && found.len() == 0 => {
            std::fs::remove_file(path).map_err(|error| {
                let path = path.display();
                CliError::internal(format!("cannot replace the empty file {path}: {error}"))
            })?;
            Ok(create()?.into())
        }
        Ok(_) => Ok(open_to_change(path, path)?.into()),
        Err(_) => Ok(ChatSession::created(create()?)),
    }
}

/// The newest session of a working folder in a database that has a message.
fn newest_stored(store: &dyn SessionStore, cwd: &Path) -> Result<Option<Session>, CliError> {
    for kept in store.list(Some(cwd))? {
        let session = store.open(&kept.id)?;
        if has_message(&session) {
            return Ok(Some(session));
        }
    }
    Ok(None)
}

fn has_message(session: &Session) -> bool {
    // One that no turn has delivered waits in the queue of the database.
    let is_queued = || session.inbox()?.claim().ok().map(|queued| !queued.is_empty());
    session.records().iter().any(|record| record.to_entry().is_some())
        || is_queued().unwrap_or_default()
}

/// Removes the file of a chat that ended without a message, which `--continue` would take for the newest conversation.
fn remove_if_unused(path: &Path) {
    if let Err(error) = remove_unused(path) {
        tracing::debug!(%error, "cannot remove the session of a chat without a message");
    }
}

/// The folder with the sessions of a working folder.
pub(super) fn session_folder(cwd: &Path) -> SessionFolder {
    SessionFolder::for_cwd(&sessions_root(), cwd)
}

/// The folder with all sessions, one folder for each working folder.
pub(super) fn sessions_root() -> PathBuf {
    state_folder().join("sessions")
}

/// The blob folders, which hold large results and images of sessions.
pub(super) fn blob_dirs() -> BlobDirs {
    BlobDirs::from_state_dir(&state_folder())
}

/// Reads an argument as a session id, unless it names a file.
pub(super) fn session_id_arg(argument: &Path) -> Option<&str> {
    // A file that does not exist yet is recognised by its extension.
    let is_file =
        argument.extension().is_some_and(|extension| extension == "jsonl") || argument.exists();
    if is_file { None } else { argument.to_str() }
}

fn header(id: Option<&str>, cwd: &Path) -> SessionHeader {
    SessionHeader::for_cwd(id, cwd, HostClock::default().now_ms())
}

async fn send_once(
    runtime: &Runtime,
    session: &SessionId,
    text: &str,
) -> Result<ExitCode, CliError> {
    // Without this, Ctrl-C would end the process before the answer so far is recorded.
    tokio::select! {
        outcome = runtime.send(session, text) => {
            Ok(ExitCode::from(u8::from(!is_whole(&outcome.map_err(turn_error)?))))
        }
        _ = tokio::signal::ctrl_c() => Ok(ExitCode::from(INTERRUPTED)),
    }
}

/// The error of a turn. A user who sends the message again would send it twice.
fn turn_error(error: TurnError) -> CliError {
    match &error {
        TurnError::Session(SessionError::Io { source, .. }) if is_failed_disk(source) => {
            CliError::internal(error.to_string()).hint(format!(
                "ctxhost kept the message; {}, then send \"continue\"",
                disk_hint(source)
            ))
        }
        _ => error.into(),
    }
}

/// Whether the provider did not end the answer before its end.
fn is_whole(reply: &TurnReply) -> bool {
    reply.message.stop_reason != StopReason::Error
}

fn unprinted_error(error: std::io::Error) -> CliError {
    CliError::internal(format!("cannot write the answer to standard output: {error}"))
        .hint("the session keeps the answer: `ctxhost sessions list` names it")
}

/// A warning about lines of a session that cannot be read and are not a part of the conversation.
fn damage_warning(session: &Session) -> Option<String> {
    let path = session.path()?;
    let problems = session.problems();
    let first = problems.first()?;
    let lines: Vec<String> =
        problems.iter().take(SHOWN_LINES).map(|problem| problem.line.to_string()).collect();
    let more = if problems.len() > SHOWN_LINES { ", ..." } else { "" };
    let noun = if problems.len() == 1 { "line" } else { "lines" };
    let is_unread = |problem: &SessionLineProblem| problem.fault == LineFault::UnreadMessage;
    let finding = if problems.iter().all(is_unread) {
        "ctxhost leaves out messages of the session"
    } else {
        "the session is damaged"
    };
    Some(format!(
        "! {finding} in {noun} {}{more}; line {}: {}; run `ctxhost fsck {}`",
        lines.join(", "),
        first.line,
        first.message,
        shell_quote(path)
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_empty_file_becomes_a_session_and_only_a_new_file_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let (empty, new) = (folder.path().join("e.jsonl"), folder.path().join("n.jsonl"));
        std::fs::write(&empty, "").unwrap();
        for (path, is_new) in [(&empty, false), (&new, true)] {
            let opened = open_or_create(path, folder.path()).unwrap();
            assert_eq!(opened.new_file.is_some(), is_new);
            assert!(opened.session.header().is_of(folder.path()));
        }
        remove_if_unused(&new);
        assert!(empty.metadata().unwrap().len() > 0 && !new.exists());
        assert!(open_or_create(&empty, folder.path()).unwrap().new_file.is_none());
    }
}
