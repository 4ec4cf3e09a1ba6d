//! Where agents keep their sessions on this machine, and the sessions found there.

use std::collections::HashSet;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use super::doctor::UnreadableFile;
use super::doctor::session_part::{has_name_of_part, is_of_sub_agent};
use super::error::CliError;
use super::output::Output;
use super::render::format::format_count;
use ctxhost_engine::state_folder;
use ctxhost_history::LineNumbers;
use ctxhost_import::{DatabaseSession, ImportFormat, ImportedSession};

/// Limit for the entries read of one agent's folders.
const MAX_ENTRIES: usize = 200_000;

/// Characters of the id of a session. The end of a name is random; its beginning is often a time.
const ID_CHARS: usize = 8;

/// Least characters of an id on the command line.
const MIN_ID_CHARS: usize = 4;

/// Characters of a UUID, with which most agents name their sessions.
const UUID_CHARS: usize = 36;

/// The endings of databases, which hold many sessions.
const DATABASES: [&str; 2] = [".db", ".sqlite"];

/// A folder in which an agent keeps sessions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AgentFolder {
    /// The agent, as import formats name it.
    pub(super) agent: &'static str,
    pub(super) path: PathBuf,
    /// The names below it: `*` for any folder, and the endings of the files.
    layout: &'static [&'static str],
}

/// A session file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FoundSession {
    pub(super) path: PathBuf,
    /// When it was last modified, in milliseconds since 1970.
    pub(super) changed_ms: i64,
    pub(super) bytes: u64,
}

/// The sessions of agents, and what could not be listed.
#[derive(Debug, Default)]
pub(super) struct AgentSessions {
    /// The sessions, each with its agent.
    pub(super) sessions: Vec<(&'static str, FoundSession)>,
    /// The folders and files that exist and cannot be read.
    pub(super) unreadable: Vec<UnreadableFile>,
}

/// The folders of all known agents for these variables. They may not exist. Without a home folder only those that a
/// variable names: a relative path would be one below the current folder.
pub(super) fn agent_folders(variable: impl Fn(&str) -> Option<OsString>) -> Vec<AgentFolder> {
    let path = |name: &str| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = path("HOME").unwrap_or_default();
    let config = path("XDG_CONFIG_HOME").unwrap_or_else(|| home.join(".config"));
    let data = path("XDG_DATA_HOME").unwrap_or_else(|| home.join(".local/share"));
    let or_default = |name: &str, default: &[PathBuf]| match path(name) {
        Some(path) => vec![path],
        None => default.iter().filter(|path| path.is_absolute()).cloned().collect(),
    };
    let mut folders = Vec::new();
    let mut add = |agent, roots: Vec<PathBuf>, below: &str, layout| {
        for root in roots {
            folders.push(AgentFolder { agent, path: root.join(below), layout });
        }
    };
    let claude = or_default("CLAUDE_CONFIG_DIR", &[home.join(".claude"), config.join("claude")]);
    add("claude-code", claude, "projects", &["*", ".jsonl"]);
    let codex = or_default("CODEX_HOME", &[home.join(".codex")]);
    add("codex", codex.clone(), "sessions", &["*", "*", "*", ".jsonl", ".jsonl.zst"]);
    add("codex", codex, "archived_sessions", &[".jsonl", ".jsonl.zst"]);
    let pi = or_default("PI_CODING_AGENT_DIR", &[home.join(".pi/agent")]);
    add("pi", pi, "sessions", &["*", ".jsonl"]);
    let openclaw = [".openclaw", ".clawdbot", ".moltbot"].map(|name| home.join(name));
    let openclaw = or_default("OPENCLAW_STATE_DIR", &openclaw);
    add("openclaw", openclaw.clone(), "agents", &["*", "sessions", ".jsonl"]);
    add("openclaw", openclaw, "agents", &["*", "agent", ".sqlite"]);
    let data: Vec<PathBuf> = Some(data).filter(|path| path.is_absolute()).into_iter().collect();
    add("opencode", data.clone(), "opencode", &[".db"]);
    add("opencode", data, "opencode/storage/session", &["*", ".json"]);
    let gemini = or_default("GEMINI_CLI_HOME", &[home]);
    add("gemini-cli", gemini, ".gemini/tmp", &["*", "chats", ".jsonl", ".json"]);
    add("ctxhost", vec![state_folder()], "sessions", &["*", ".jsonl"]);
    add("ctxhost", vec![state_folder()], "gateway/sessions", &["*", ".jsonl"]);
    folders
}

/// The sessions of the folders, each with its agent, without those of sub-agents.
pub(super) fn list_sessions(folders: &[AgentFolder]) -> AgentSessions {
    let mut found = list_all(folders);
    found.sessions.retain(|(agent, session)| !is_of_sub_agent(agent, &session.path));
    found
}

/// The sessions of the folders, each with its agent.
fn list_all(folders: &[AgentFolder]) -> AgentSessions {
    let mut all = AgentSessions::default();
    for folder in folders {
        folder.add_to(&mut all);
    }
    let AgentSessions { mut sessions, mut unreadable } = all;
    // OpenClaw has two layouts in one folder.
    let mut seen = HashSet::new();
    unreadable.retain(|file| seen.insert(file.path.clone()));
    // opencode and OpenClaw copied older sessions from files to their databases.
    let copied: HashSet<(&str, String)> = sessions
        .iter()
        .filter(|(_, session)| session.is_in_database())
        .map(|(agent, session)| (*agent, stem(&session.path)))
        .collect();
    sessions.retain(|(agent, session)| {
        session.is_in_database() || !copied.contains(&(*agent, stem(&session.path)))
    });
    AgentSessions { sessions, unreadable }
}

/// The folders of this machine's agents.
pub(super) fn own_agent_folders() -> Vec<AgentFolder> {
    agent_folders(|name| match name {
        // Without the variable the home folder of the account, as for the state folder.
        "HOME" => std::env::home_dir().map(PathBuf::into_os_string),
        _ => std::env::var_os(name),
    })
}

/// Whether a file is where OpenClaw keeps sessions. Its files have the format of Pi, so only the folder tells.
pub(super) fn is_of_openclaw(file: &Path) -> bool {
    is_below(file, &own_agent_folders(), "openclaw")
}

fn is_below(file: &Path, folders: &[AgentFolder], agent: &str) -> bool {
    let file = real_path(file);
    let mut of_agent = folders.iter().filter(|folder| folder.agent == agent);
    of_agent.any(|folder| file.starts_with(real_path(&folder.path)))
}

/// A path without the links in the part of it that exists: home folders are often links to another disk, and a session
/// in a database has a path that does not exist.
fn real_path(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let found = path.ancestors().find_map(|above| Some((above, above.canonicalize().ok()?)));
    match found.and_then(|(above, real)| Some((real, path.strip_prefix(above).ok()?))) {
        // Joining nothing would add a slash, with which a file cannot be opened.
        Some((real, rest)) if rest.as_os_str().is_empty() => real,
        Some((real, rest)) => real.join(rest),
        None => path,
    }
}

impl FoundSession {
    fn is_in_database(&self) -> bool {
        self.path.parent().is_some_and(is_database_name)
    }
}

impl From<DatabaseSession> for FoundSession {
    fn from(DatabaseSession { path, changed_ms, bytes }: DatabaseSession) -> FoundSession {
        FoundSession { path, changed_ms, bytes }
    }
}

/// Whether a path has the ending of a database.
pub(super) fn is_database_name(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    DATABASES.iter().any(|ending| name.ends_with(ending))
}

/// The sessions of a file: itself, or those that a database holds. A database that cannot be read is one, which fails
/// when it is opened.
pub(super) fn sessions_of_file(path: PathBuf) -> Vec<FoundSession> {
    if is_database_name(&path)
        && let Ok(sessions) = ctxhost_import::list_database(&path)
    {
        return sessions.into_iter().map(FoundSession::from).collect();
    }
    found_session(path).into_iter().collect()
}

impl AgentFolder {
    /// The sessions in it, in no order; empty if the folder does not exist. Links are not followed.
    pub(super) fn list(&self) -> Vec<FoundSession> {
        let mut found = AgentSessions::default();
        self.add_to(&mut found);
        found.sessions.into_iter().map(|(_, session)| session).collect()
    }

    fn add_to(&self, found: &mut AgentSessions) {
        self.add_files(&self.path, self.layout, &mut 0, found);
    }

    fn add_files(
        &self,
        folder: &Path,
        layout: &[&str],
        entries: &mut usize,
        found: &mut AgentSessions,
    ) {
        let listed = match std::fs::read_dir(folder) {
            Ok(listed) => listed,
            Err(error) => return found.unreadable.extend(UnreadableFile::new(folder, &error)),
        };
        let is_last = layout.first().is_some_and(|name| name.starts_with('.'));
        for entry in listed.flatten() {
            *entries += 1;
            if *entries > MAX_ENTRIES {
                return;
            }
            let Ok(kind) = entry.file_type() else { continue };
            let name = entry.file_name().to_string_lossy().into_owned();
            if is_last {
                // The files of Claude Code's sub-agents and of OpenClaw's copies are beside their session.
                let is_session =
                    !has_name_of_part(&name) && layout.iter().any(|ending| name.ends_with(ending));
                if kind.is_file() && is_session {
                    self.add_file(entry.path(), found);
                }
            } else if let Some((expected, rest)) = layout.split_first()
                && kind.is_dir()
                && (*expected == "*" || *expected == name)
            {
                self.add_files(&entry.path(), rest, entries, found);
            }
        }
    }

    fn add_file(&self, path: PathBuf, found: &mut AgentSessions) {
        // A folder may be listed while its files cannot be read.
        if let Err(error) = path.metadata() {
            return found.unreadable.extend(UnreadableFile::new(&path, &error));
        }
        found.sessions.extend(sessions_of_file(path).into_iter().map(|it| (self.agent, it)));
    }
}

/// The file with its size and time; `None` if they cannot be read.
pub(super) fn found_session(path: PathBuf) -> Option<FoundSession> {
    let metadata = path.metadata().ok()?;
    let changed = metadata.modified().ok()?.duration_since(UNIX_EPOCH).unwrap_or_default();
    let changed_ms = i64::try_from(changed.as_millis()).unwrap_or(i64::MAX);
    Some(FoundSession { path, changed_ms, bytes: metadata.len() })
}

/// The id of a session file of an agent: the end of its name, as long as it takes to be unique. The path if the name
/// has other characters than an id, or another folder has a session of this name.
pub(super) fn short_id(path: &Path, others: &[PathBuf]) -> String {
    let stem = stem(path);
    if !can_be_id(&stem) {
        return path.display().to_string();
    }
    let ends_like = |id: &str| {
        others.iter().any(|other| other.as_path() != path && self::stem(other).ends_with(id))
    };
    let chars: Vec<char> = stem.chars().collect();
    for count in ID_CHARS.min(chars.len())..=chars.len() {
        let id: String = chars.get(chars.len() - count..).unwrap_or_default().iter().collect();
        if !ends_like(&id) && !id.starts_with('-') {
            return id;
        }
    }
    // Two folders have a session of this id.
    path.display().to_string()
}

fn stem(path: &Path) -> String {
    let name = path.file_stem().unwrap_or_default().to_string_lossy();
    // Codex compresses older files.
    name.strip_suffix(".jsonl").unwrap_or(&name).to_owned()
}

fn can_be_id(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_')
}

/// The file of a session on the command line: a path, or the id that `ctxhost doctor` prints.
pub(super) fn resolve_session(named: &Path) -> Result<PathBuf, CliError> {
    let mut unreadable = Vec::new();
    let resolved = resolve_in(named, || {
        let found = list_all(&own_agent_folders());
        unreadable = found.unreadable;
        found.sessions
    });
    // The session may be in one of them.
    resolved.map_err(|error| {
        unreadable.iter().map(UnreadableFile::describe).fold(error, CliError::hint)
    })
}

/// [`resolve_session`] among the sessions that `list` returns.
fn resolve_in(
    named: &Path,
    list: impl FnOnce() -> Vec<(&'static str, FoundSession)>,
) -> Result<PathBuf, CliError> {
    let text = named.display().to_string();
    let missing = |what: String| {
        CliError::user(what)
            .hint("`ctxhost doctor` lists the sessions of the agents on this machine")
    };
    // Not for a file that exists and cannot be read, nor for a session in a database: what opens it tells more.
    let is_missing = named.metadata().is_err_and(|error| error.kind() == ErrorKind::NotFound);
    if !is_missing {
        return Ok(named.to_owned());
    }
    if !can_be_id(&text) {
        return Err(missing(format!("no file {text}")));
    }
    let found = list();
    let (verb, matching) = match named_by_end(&found, &text) {
        // What `ctxhost doctor` prints is an end, so that comes first.
        ends if !ends.is_empty() => ("ends in", ends),
        _ => ("begins with", named_by_beginning(&found, &text)),
    };
    match matching.as_slice() {
        [] => Err(missing(format!("no file {text}, and no session of an agent with this id"))),
        [only] => Ok(only.clone()),
        several => {
            let count = several.len();
            let error = CliError::user(format!("{count} sessions have an id that {verb} {text}"));
            let paths = several.iter().map(|path| path.display().to_string());
            Err(paths.fold(error, CliError::hint))
        }
    }
}

fn named_by_end(found: &[(&'static str, FoundSession)], text: &str) -> Vec<PathBuf> {
    let is_short = text.len() < MIN_ID_CHARS;
    named_by(found, |stem| if is_short { stem == text } else { stem.ends_with(text) })
}

fn named_by_beginning(found: &[(&'static str, FoundSession)], text: &str) -> Vec<PathBuf> {
    if text.len() < MIN_ID_CHARS {
        return Vec::new();
    }
    // Codex writes a time in front of the id, Pi as well.
    let id_of = |stem: &str| {
        stem.len().checked_sub(UUID_CHARS).and_then(|at| stem.get(at..).map(str::to_owned))
    };
    named_by(found, |stem| {
        stem.starts_with(text) || id_of(stem).is_some_and(|id| id.starts_with(text))
    })
}

fn named_by(
    found: &[(&'static str, FoundSession)],
    is_named: impl Fn(&str) -> bool,
) -> Vec<PathBuf> {
    let named = found.iter().filter(|(_, session)| is_named(&stem(&session.path)));
    let mut matching = without_sub_agents(named.cloned().collect());
    matching.sort();
    matching.dedup();
    matching
}

/// The paths of sessions without those of sub-agents, unless there are no others: an id of `ctxhost doctor` names one
/// session of the user.
fn without_sub_agents(sessions: Vec<(&'static str, FoundSession)>) -> Vec<PathBuf> {
    let is_own = |(agent, session): &&(&str, FoundSession)| !is_of_sub_agent(agent, &session.path);
    let own: Vec<PathBuf> =
        sessions.iter().filter(is_own).map(|(_, session)| session.path.clone()).collect();
    if own.is_empty() {
        sessions.into_iter().map(|(_, session)| session.path).collect()
    } else {
        own
    }
}

/// Opens a session on the command line: any format, by path or id. Reports what could not be read.
pub(super) fn open_session(named: &Path, output: &mut Output) -> Result<ImportedSession, CliError> {
    let recorded = ctxhost_import::open_file(&resolve_session(named)?)?;
    if let Some(first) = recorded.problems.first() {
        let count = format_count(recorded.problems.len() as u64, "problem");
        output.note(&format!("{count} in {}, such as {first}", named.display()));
    }
    Ok(recorded)
}

/// Whether lines of a session are those of its file: an import has other ones.
pub(super) fn line_numbers(recorded: &ImportedSession) -> LineNumbers {
    let is_pi = recorded.format.starts_with(ImportFormat::Pi.name());
    if is_pi { LineNumbers::OfFile } else { LineNumbers::None }
}

#[cfg(test)]
mod tests;
