//! Finds session files: in the folders of agents, in the current folder, and in given paths.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use serde::Serialize;

use super::super::agent_folders::{
    AgentFolder, AgentSessions, FoundSession, list_sessions, sessions_of_file, short_id,
};
use super::super::output::Output;
use super::super::render::format::one_line;
use super::UnreadableFile;
use super::measure::UnreadSession;
use super::session_part::{
    has_name_of_part, is_beside_session, is_codex_sub_agent, is_opencode_sub_agent, lines_head,
    read_head,
};
use ctxhost_import::{ImportFormat, detect};

/// Largest session that is read unless it is named: reading needs several times as much memory.
const MAX_SESSION_BYTES: u64 = 64 << 20;
/// Bytes of a JSON document, whose first fields tell.
const DOCUMENT_HEAD_BYTES: u64 = 4 << 10;
/// Folders below one that is searched.
const MAX_DEPTH: usize = 8;
/// Folders below the current one.
const MAX_DEPTH_HERE: usize = 3;
/// Entries of folders that are looked at.
const MAX_ENTRIES: usize = 20_000;
/// Folders without sessions that have many files.
const SKIPPED: [&str; 3] = ["node_modules", "target", "__pycache__"];

/// The sessions to read, newest first.
pub(super) struct FoundSessions {
    pub(super) sessions: Vec<SessionToRead>,
    /// Folders, and files of agents, that cannot be read.
    pub(super) unreadable: Vec<UnreadableFile>,
    pub(super) left_out: LeftOut,
    pub(super) searched: Vec<PathBuf>,
}

/// A session to read.
pub(super) struct SessionToRead {
    pub(super) path: PathBuf,
    /// What to write on a command line: a short id, or the path.
    pub(super) name: String,
    /// The same with all bytes of a path.
    pub(super) argument: PathBuf,
    /// The agent, if it is in the folder of one.
    pub(super) agent: Option<&'static str>,
    /// When it was last modified, in milliseconds since 1970.
    pub(super) changed_ms: i64,
}

/// What was not read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(in super::super) struct LeftOut {
    /// Sessions beyond the limit.
    pub(in super::super) older: usize,
    /// Sessions that are too large.
    pub(in super::super) large: usize,
    /// Files in the folders of agents that are no sessions of a known format.
    pub(in super::super) unknown: usize,
    /// Sessions without a message.
    pub(in super::super) empty: usize,
    /// Databases that cannot be read, each with the reason.
    pub(in super::super) databases: Vec<String>,
    /// Given paths that cannot be read.
    pub(in super::super) unreadable_paths: usize,
}

impl LeftOut {
    pub(super) fn add_unread(&mut self, unread: UnreadSession) {
        match unread {
            UnreadSession::Unknown => self.unknown += 1,
            UnreadSession::Empty => self.empty += 1,
            UnreadSession::Database(reason) => self.databases.push(reason),
        }
    }
}

/// A file of which folder it is known.
struct Candidate {
    session: FoundSession,
    agent: Option<&'static str>,
    /// Whether the user named it, so that no limit of size applies.
    is_named: bool,
}

/// The sessions of the current folder and of the folders of agents.
pub(super) fn find_in_folders(here: &Path, folders: &[AgentFolder], limit: usize) -> FoundSessions {
    let AgentSessions { sessions, mut unreadable } = list_sessions(folders);
    let sessions = sessions.into_iter();
    let mut candidates: Vec<Candidate> = sessions
        .map(|(agent, session)| Candidate { session, agent: Some(agent), is_named: false })
        .collect();
    let mut search = FolderSearch::new(MAX_DEPTH_HERE);
    search.add(here, 0);
    unreadable.append(&mut search.unreadable);
    let is_known = |path: &Path| folders.iter().any(|folder| path.starts_with(&folder.path));
    let here_found = search.found.into_iter().filter(|session| !is_known(&session.path));
    candidates.extend(here_found.map(|session| {
        // Relative paths are shorter to read and to type.
        let path = session.path.strip_prefix(here).map(Path::to_owned).unwrap_or(session.path);
        Candidate { session: FoundSession { path, ..session }, agent: None, is_named: false }
    }));
    let mut searched = vec![here.to_owned()];
    for folder in folders {
        // OpenClaw has files and databases in one folder.
        if !searched.contains(&folder.path) {
            searched.push(folder.path.clone());
        }
    }
    FoundSessions { unreadable, ..select(candidates, limit, LeftOut::default(), searched) }
}

/// The sessions of given files and folders.
pub(super) fn find_in_paths(paths: &[PathBuf], limit: usize, output: &mut Output) -> FoundSessions {
    let mut candidates = Vec::new();
    let mut left_out = LeftOut::default();
    let mut unreadable = Vec::new();
    for path in paths {
        let is_readable = if path.is_dir() {
            std::fs::read_dir(path).map(drop)
        } else {
            ctxhost_files::open(path).map(drop)
        };
        if let Err(error) = is_readable {
            output.note(&format!("cannot read {}: {error}", one_line(&path.display().to_string())));
            left_out.unreadable_paths += 1;
            continue;
        }
        let mut search = FolderSearch { has_unreadable: true, ..FolderSearch::new(MAX_DEPTH) };
        let is_named = !path.is_dir();
        if is_named {
            search.found.extend(sessions_of_file(path.clone()));
        } else {
            search.add(path, 0);
        }
        unreadable.append(&mut search.unreadable);
        let found = search.found.into_iter();
        candidates.extend(found.map(|session| Candidate { session, agent: None, is_named }));
    }
    FoundSessions { unreadable, ..select(candidates, limit, left_out, paths.to_vec()) }
}

/// The newest sessions within the limits, each with its name on a command line.
fn select(
    mut candidates: Vec<Candidate>,
    limit: usize,
    mut left_out: LeftOut,
    searched: Vec<PathBuf>,
) -> FoundSessions {
    candidates.sort_by(|a, b| {
        let newest_first = b.session.changed_ms.cmp(&a.session.changed_ms);
        newest_first.then_with(|| a.session.path.cmp(&b.session.path))
    });
    // Folders of agents may lie in each other or in a folder of `--path`, and may be links to each other.
    let mut seen = HashSet::new();
    candidates.retain(|candidate| seen.insert(real_path(&candidate.session.path)));
    let is_large =
        |candidate: &Candidate| !candidate.is_named && candidate.session.bytes > MAX_SESSION_BYTES;
    left_out.large = candidates.iter().filter(|candidate| is_large(candidate)).count();
    // All paths, since an id that is unique among the read sessions only would not be found again.
    let of_agents = candidates.iter().filter(|candidate| candidate.agent.is_some());
    let paths: Vec<PathBuf> = of_agents.map(|candidate| candidate.session.path.clone()).collect();
    candidates.retain(|candidate| !is_large(candidate));
    left_out.older = candidates.len().saturating_sub(limit);
    candidates.truncate(limit);
    let sessions = candidates.into_iter().map(|candidate| {
        let Candidate { session: FoundSession { path, changed_ms, .. }, agent, .. } = candidate;
        let shown = path.display().to_string();
        let id = agent.map(|_| short_id(&path, &paths)).filter(|id| *id != shown);
        let argument = id.as_ref().map_or_else(|| path.clone(), PathBuf::from);
        let name = id.unwrap_or(shown);
        SessionToRead { path, name, argument, agent, changed_ms }
    });
    FoundSessions { sessions: sessions.collect(), unreadable: Vec::new(), left_out, searched }
}

/// The path without links. A session in a database is named below it, as if that were a folder.
fn real_path(path: &Path) -> PathBuf {
    let in_parent = || Some(path.parent()?.canonicalize().ok()?.join(path.file_name()?));
    path.canonicalize().ok().or_else(in_parent).unwrap_or_else(|| path.to_owned())
}

/// A search below a folder, whose files may be anything.
struct FolderSearch {
    depth: usize,
    entries: usize,
    found: Vec<FoundSession>,
    /// Whether files that may be sessions and cannot be read are among those found, and folders named.
    has_unreadable: bool,
    /// Folders that cannot be read.
    unreadable: Vec<UnreadableFile>,
}

impl FolderSearch {
    fn new(depth: usize) -> FolderSearch {
        FolderSearch {
            depth,
            entries: 0,
            found: Vec::new(),
            has_unreadable: false,
            unreadable: Vec::new(),
        }
    }

    /// Adds the sessions of a folder. Links are not followed.
    fn add(&mut self, folder: &Path, depth: usize) {
        let listed = match std::fs::read_dir(folder) {
            Ok(listed) => listed,
            Err(error) => {
                // Below the current folder, such as `/`, may be folders of other users.
                if self.has_unreadable || depth == 0 {
                    self.unreadable.extend(UnreadableFile::new(folder, &error));
                }
                return;
            }
        };
        let mut paths: Vec<PathBuf> = listed.flatten().map(|entry| entry.path()).collect();
        // In a fixed order, because the number of entries is limited.
        paths.sort();
        for path in paths {
            self.entries += 1;
            if self.entries > MAX_ENTRIES {
                return;
            }
            // Links are not followed: they may lead to a place that was not allowed, or in a circle.
            let Ok(kind) = path.symlink_metadata().map(|metadata| metadata.file_type()) else {
                continue;
            };
            if kind.is_dir() && depth < self.depth && !is_skipped(&path) {
                self.add(&path, depth + 1);
            } else if kind.is_file() && self.is_found(&path) {
                self.found.extend(sessions_of_file(path));
            }
        }
    }

    fn is_found(&self, path: &Path) -> bool {
        is_database(path) || is_session(path).unwrap_or(self.has_unreadable)
    }
}

fn is_skipped(folder: &Path) -> bool {
    let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let own = name(folder);
    // The messages of opencode are read with their session.
    let is_of_opencode = ["message", "part"].contains(&own.as_str())
        && folder.parent().is_some_and(|parent| name(parent) == "storage");
    // Claude Code has the files of sub-agents in a folder beside their session: ID.jsonl and ID/subagents.
    let has_session = |parent: &Path| parent.with_file_name(name(parent) + ".jsonl").is_file();
    let is_of_claude_code = own == "subagents" && folder.parent().is_some_and(has_session);
    SKIPPED.contains(&own.as_str()) || own == ".git" || is_of_opencode || is_of_claude_code
}

/// Whether a file has the name of a database of opencode or OpenClaw.
fn is_database(path: &Path) -> bool {
    is_opencode_database(path) || path.file_name().is_some_and(|it| it == "openclaw-agent.sqlite")
}

/// Whether a file has the name of a database of opencode.
pub(super) fn is_opencode_database(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    name.starts_with("opencode") && name.ends_with(".db")
}

/// Whether a file is a session of an agent, by its name and its first lines; `None` if it may be one, and cannot be
/// read.
fn is_session(path: &Path) -> Option<bool> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    if is_beside_session(&name) {
        return Some(false);
    }
    if name.ends_with(".jsonl") || name.ends_with(".jsonl.zst") {
        return lines_head(path).ok().map(|head| is_session_head(path, &head));
    }
    Some(name.ends_with(".json") && is_session_document(path))
}

fn is_session_head(path: &Path, head: &[u8]) -> bool {
    let is_agent = |format: ImportFormat| match format {
        // Lists of messages are data sets more often than sessions, and have no compactions.
        ImportFormat::OpenAi | ImportFormat::Anthropic => false,
        ImportFormat::ClaudeCode => {
            !has_name_of_part(&path.file_name().unwrap_or_default().to_string_lossy())
        }
        ImportFormat::Codex => !is_codex_sub_agent(head),
        _ => true,
    };
    let lines = head.iter().rposition(|byte| *byte == b'\n');
    let whole = head.get(..lines.unwrap_or(head.len())).unwrap_or_default();
    detect(whole).is_ok_and(is_agent)
}

/// Whether a JSON document is a session of an agent.
fn is_session_document(path: &Path) -> bool {
    let Ok(head) = read_head(path, DOCUMENT_HEAD_BYTES) else { return false };
    // A document cannot be parsed from its head: its fields have to tell.
    let text = String::from_utf8_lossy(&head);
    let has = |names: &[&str]| names.iter().all(|name| text.contains(&format!("\"{name}\"")));
    has(&["sessionId", "messages"])
        || has(&["projectID", "directory"]) && !is_opencode_sub_agent(path)
        || has(&["info", "messages"])
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLAUDE_CODE: &str = r#"{"type":"user","uuid":"u","parentUuid":null,"sessionId":"s","message":{"role":"user","content":"go"}}"#;

    fn found(folder: &Path) -> Vec<String> {
        let mut search = FolderSearch::new(MAX_DEPTH);
        search.add(folder, 0);
        let paths = search.found.into_iter().map(|session| session.path);
        paths.map(|path| path.strip_prefix(folder).unwrap().display().to_string()).collect()
    }

    #[test]
    fn files_of_sub_agents_are_no_sessions() {
        let folder = tempfile::tempdir().unwrap();
        let sub_agents = folder.path().join("one/subagents/workflows");
        std::fs::create_dir_all(&sub_agents).unwrap();
        for path in ["one.jsonl", "agent-two.jsonl", "one/subagents/workflows/three.jsonl"] {
            std::fs::write(folder.path().join(path), CLAUDE_CODE).unwrap();
        }
        // The name alone tells nothing: other agents have other files.
        let codex = r#"{"type":"session_meta","payload":{}}"#;
        std::fs::write(folder.path().join("agent-codex.jsonl"), codex).unwrap();
        assert_eq!(found(folder.path()), ["agent-codex.jsonl", "one.jsonl"]);
    }

    #[test]
    fn copies_and_sub_agents_of_other_agents_are_no_sessions() {
        let folder = tempfile::tempdir().unwrap();
        let pi = r#"{"type":"session","version":3,"id":"a","timestamp":"t","cwd":"/"}"#;
        let codex = r#"{"type":"session_meta","payload":{"id":"a","source":"cli"}}"#;
        let sub_agent = r#"{"type":"session_meta","payload":{"source":{"subagent":"review"}}}"#;
        let opencode = r#"{"id":"ses_1","projectID":"p","directory":"/"}"#;
        let child = r#"{"id":"ses_2","projectID":"p","directory":"/","parentID":"ses_1"}"#;
        for (name, text) in [
            ("1.jsonl", pi),
            ("1.checkpoint.2.jsonl", pi),
            ("1.trajectory.jsonl", pi),
            ("codex.jsonl", codex),
            ("sub-agent.jsonl", sub_agent),
            ("ses_1.json", opencode),
            ("ses_2.json", child),
        ] {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        assert_eq!(found(folder.path()), ["1.jsonl", "codex.jsonl", "ses_1.json"]);
    }

    #[test]
    fn files_that_cannot_be_read_are_found_below_a_given_folder_only() {
        let gone = Path::new("/none/gone.jsonl");
        assert!(!FolderSearch::new(1).is_found(gone));
        assert!(FolderSearch { has_unreadable: true, ..FolderSearch::new(1) }.is_found(gone));
        let other = Path::new("/none/gone.txt");
        assert!(!FolderSearch { has_unreadable: true, ..FolderSearch::new(1) }.is_found(other));
    }

    #[test]
    fn compressed_sessions_are_found() {
        let folder = tempfile::tempdir().unwrap();
        // A frame whose content is the session in a block without compression.
        let content = format!("{CLAUDE_CODE}\n");
        let length = u32::try_from(content.len()).unwrap();
        let block = (length << 3 | 1).to_le_bytes();
        let mut frame = vec![0x28, 0xB5, 0x2F, 0xFD, 0x00, 0x58];
        frame.extend_from_slice(&block[..3]);
        frame.extend_from_slice(content.as_bytes());
        std::fs::write(folder.path().join("old.jsonl.zst"), &frame).unwrap();
        // Data sets are not sessions.
        std::fs::write(folder.path().join("data.jsonl.zst"), &frame[..20]).unwrap();
        assert_eq!(found(folder.path()), ["old.jsonl.zst"]);
    }
}
