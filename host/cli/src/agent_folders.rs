//! Where agents keep their sessions on this machine, and the sessions found there.

use std::collections::HashSet;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

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

/// The folders of all known agents for these variables. They may not exist.
pub(super) fn agent_folders(variable: impl Fn(&str) -> Option<OsString>) -> Vec<AgentFolder> {
    let path = |name: &str| variable(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let home = path("HOME").unwrap_or_default();
    let config = path("XDG_CONFIG_HOME").unwrap_or_else(|| home.join(".config"));
    let data = path("XDG_DATA_HOME").unwrap_or_else(|| home.join(".local/share"));
    let or_default = |name: &str, default: &[PathBuf]| match path(name) {
        Some(path) => vec![path],
        None => default.to_vec(),
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
    add("opencode", vec![data.clone()], "opencode", &[".db"]);
    add("opencode", vec![data], "opencode/storage/session", &["*", ".json"]);
    let gemini = or_default("GEMINI_CLI_HOME", &[home]);
    add("gemini-cli", gemini, ".gemini/tmp", &["*", "chats", ".jsonl", ".json"]);
    add("ctxhost", vec![state_folder()], "sessions", &["*", ".jsonl"]);
    add("ctxhost", vec![state_folder()], "gateway/sessions", &["*", ".jsonl"]);
    folders
}

/// The sessions of the folders, each with its agent, without those of sub-agents.
pub(super) fn list_sessions(folders: &[AgentFolder]) -> Vec<(&'static str, FoundSession)> {
    let mut sessions = list_all(folders);
    sessions.retain(|(agent, session)| !is_of_sub_agent(agent, &session.path));
    sessions
}

/// The sessions of the folders, each with its agent.
fn list_all(folders: &[AgentFolder]) -> Vec<(&'static str, FoundSession)> {
    let listed = folders
        .iter()
        .flat_map(|folder| folder.list().into_iter().map(|session| (folder.agent, session)));
    let mut sessions: Vec<_> = listed.collect();
    // opencode and OpenClaw copied older sessions from files to their databases.
    let copied: HashSet<(&str, String)> = sessions
        .iter()
        .filter(|(_, session)| session.is_in_database())
        .map(|(agent, session)| (*agent, stem(&session.path)))
        .collect();
    sessions.retain(|(agent, session)| {
        session.is_in_database() || !copied.contains(&(*agent, stem(&session.path)))
    });
    sessions
}

/// The folders of this machine's agents.
pub(super) fn own_agent_folders() -> Vec<AgentFolder> {
    agent_folders(|name| std::env::var_os(name))
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
    /// The sessions in it, in no order; empty if there is no folder. Links are not followed.
    pub(super) fn list(&self) -> Vec<FoundSession> {
        let mut found = Vec::new();
        let mut entries = 0;
        add_files(&self.path, self.layout, &mut entries, &mut found);
        found
    }
}

fn add_files(folder: &Path, layout: &[&str], entries: &mut usize, found: &mut Vec<FoundSession>) {
    let Ok(listed) = std::fs::read_dir(folder) else { return };
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
                found.extend(sessions_of_file(entry.path()));
            }
        } else if let Some((expected, rest)) = layout.split_first()
            && kind.is_dir()
            && (*expected == "*" || *expected == name)
        {
            add_files(&entry.path(), rest, entries, found);
        }
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
    resolve_in(named, || list_all(&own_agent_folders()))
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
mod tests {
    use super::*;

    fn folders(variables: &[(&str, &str)]) -> Vec<String> {
        let find = |name: &str| {
            let found = variables.iter().find(|(known, _)| *known == name);
            found.map(|(_, value)| OsString::from(value))
        };
        let all = agent_folders(find).into_iter().filter(|folder| folder.agent != "ctxhost");
        all.map(|folder| format!("{} {}", folder.agent, folder.path.display())).collect()
    }

    #[test]
    fn each_agent_has_its_folder() {
        assert_eq!(
            folders(&[("HOME", "/h")]),
            [
                "claude-code /h/.claude/projects",
                "claude-code /h/.config/claude/projects",
                "codex /h/.codex/sessions",
                "codex /h/.codex/archived_sessions",
                "pi /h/.pi/agent/sessions",
                "openclaw /h/.openclaw/agents",
                "openclaw /h/.clawdbot/agents",
                "openclaw /h/.moltbot/agents",
                "openclaw /h/.openclaw/agents",
                "openclaw /h/.clawdbot/agents",
                "openclaw /h/.moltbot/agents",
                "opencode /h/.local/share/opencode",
                "opencode /h/.local/share/opencode/storage/session",
                "gemini-cli /h/.gemini/tmp",
            ]
        );
        let moved = folders(&[
            ("HOME", "/h"),
            ("CODEX_HOME", "/x"),
            ("CLAUDE_CONFIG_DIR", "/c"),
            ("XDG_DATA_HOME", "/d"),
        ]);
        for expected in
            ["claude-code /c/projects", "codex /x/sessions", "opencode /d/opencode/storage/session"]
        {
            assert!(moved.iter().any(|folder| folder == expected), "{expected}: {moved:?}");
        }
    }

    #[test]
    fn ids_are_as_long_as_it_takes() {
        let paths =
            ["/a/11-22223333.jsonl", "/b/44-22223333.jsonl", "/c/short.jsonl"].map(PathBuf::from);
        let ids = paths.each_ref().map(|path| short_id(path, &paths));
        assert_eq!(ids, ["1-22223333", "4-22223333", "short"]);
        assert_eq!(short_id(&paths[0], &paths[..1]), "22223333");
        let copies = ["/a/11-22223333.jsonl", "/b/11-22223333.jsonl"].map(PathBuf::from);
        assert_eq!(
            short_id(&copies[1], &copies),
            "/b/11-22223333.jsonl",
            "no command would find it"
        );
        let odd = Path::new("/d/two words.jsonl");
        assert_eq!(short_id(odd, &paths), "/d/two words.jsonl", "no argument that is an id");
    }

    #[test]
    fn a_session_is_named_by_either_end_of_its_id() {
        let first = "/c/rollout-2026-11-20T10-00-00-019aa1b2-0000-7000-8000-00000000abcd.jsonl";
        let second = "/c/rollout-2026-11-21T10-00-00-019aa1ff-0000-7000-8000-00000000beef.jsonl";
        let found = || {
            let session = |path: &str| FoundSession { path: path.into(), changed_ms: 0, bytes: 0 };
            vec![("codex", session(first)), ("codex", session(second))]
        };
        let resolve = |text: &str| resolve_in(Path::new(text), found).map_err(|e| e.to_string());
        for text in
            ["0000abcd", "019aa1b2", "rollout-2026-11-20", "019aa1b2-0000-7000-8000-00000000abcd"]
        {
            assert_eq!(resolve(text), Ok(first.into()), "{text}");
        }
        let several = resolve("019aa1").unwrap_err();
        assert!(several.contains("2 sessions have an id that begins with 019aa1"), "{several}");
        assert!(several.contains(first) && several.contains(second), "{several}");
        for text in ["019aa2b2", "no/session.jsonl", "session.jsonl"] {
            let missing = resolve(text).unwrap_err();
            assert!(missing.contains(&format!("no file {text}")), "{missing}");
            assert!(missing.contains("`ctxhost doctor` lists the sessions"), "{missing}");
        }
    }

    #[test]
    fn files_of_sub_agents_and_links_are_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let project = folder.path().join("p");
        std::fs::create_dir(&project).unwrap();
        let beside = ["one.checkpoint.1-2.jsonl", "one.trajectory.jsonl"];
        for name in ["one.jsonl", "agent-two.jsonl", "notes.txt"].into_iter().chain(beside) {
            std::fs::write(project.join(name), "").unwrap();
        }
        std::os::unix::fs::symlink(&project, folder.path().join("q")).unwrap();
        let claude = AgentFolder {
            agent: "claude-code",
            path: folder.path().into(),
            layout: &["*", ".jsonl"],
        };
        let found: Vec<PathBuf> = claude.list().into_iter().map(|session| session.path).collect();
        assert_eq!(found, [project.join("one.jsonl")]);
    }

    #[test]
    fn sessions_of_sub_agents_are_named_by_their_id_only() {
        let folder = tempfile::tempdir().unwrap();
        for (name, source) in [("a", r#""cli""#), ("b", r#"{"subagent":"review"}"#)] {
            let text =
                format!(r#"{{"type":"session_meta","payload":{{"id":"a","source":{source}}}}}"#);
            std::fs::write(folder.path().join(format!("{name}-0001.jsonl")), text).unwrap();
        }
        let codex = AgentFolder { agent: "codex", path: folder.path().into(), layout: &[".jsonl"] };
        let (own, other) = (folder.path().join("a-0001.jsonl"), folder.path().join("b-0001.jsonl"));
        let listed = list_sessions(std::slice::from_ref(&codex));
        let listed: Vec<PathBuf> = listed.into_iter().map(|(_, session)| session.path).collect();
        assert_eq!(listed, std::slice::from_ref(&own));
        let mut found = list_all(&[codex]);
        assert_eq!(without_sub_agents(found.clone()), [own]);
        found.retain(|(_, session)| session.path == other);
        assert_eq!(without_sub_agents(found), [other]);
    }

    #[test]
    fn sessions_in_a_database_replace_their_files() {
        let folder = tempfile::tempdir().unwrap();
        let sessions = folder.path().join("main/sessions");
        std::fs::create_dir_all(&sessions).unwrap();
        let database = folder.path().join("main/agent/openclaw-agent.sqlite");
        std::fs::create_dir_all(database.parent().unwrap()).unwrap();
        std::fs::write(sessions.join("s.jsonl"), "").unwrap();
        std::fs::write(&database, "no database").unwrap();
        let folders = [&["*", "sessions", ".jsonl"][..], &["*", "agent", ".sqlite"]]
            .map(|layout| AgentFolder { agent: "openclaw", path: folder.path().into(), layout });
        let paths: Vec<PathBuf> =
            list_sessions(&folders).into_iter().map(|(_, session)| session.path).collect();
        assert_eq!(paths, [sessions.join("s.jsonl"), database.clone()], "it cannot be read");
        let session = |path: PathBuf| FoundSession { path, changed_ms: 0, bytes: 0 };
        assert!(session(database.join("s")).is_in_database());
        assert!(!session(database).is_in_database());
    }
}
