//! Recognizes files that are no session of the user: those of sub-agents, copies of a session, and traces.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use serde_json::Value;

use ctxhost_files::ZstdReader;

/// Bytes of JSON lines that are read to find out what they are: the first line may hold the instructions of an agent.
const LINES_HEAD_BYTES: u64 = 256 << 10;
/// Bytes of the document that states a session of opencode.
const DOCUMENT_BYTES: u64 = 1 << 20;

/// Whether a file has the name of a sub-agent of Claude Code, or of what OpenClaw writes beside a session: a copy before
/// a compaction (`ID.checkpoint.UUID.jsonl`) or a trace (`ID.trajectory.jsonl`).
pub(in super::super) fn has_name_of_part(name: &str) -> bool {
    name.starts_with("agent-") || is_beside_session(name)
}

/// Whether a file has the name of what OpenClaw writes beside a session.
pub(super) fn is_beside_session(name: &str) -> bool {
    let Some(stem) = name.strip_suffix(".jsonl") else { return false };
    let copied = stem.split_once(".checkpoint.");
    copied.is_some_and(|(id, copy)| !id.is_empty() && !copy.is_empty())
        || stem.strip_suffix(".trajectory").is_some_and(|id| !id.is_empty())
}

/// Whether a session file in the folder of an agent is one of a sub-agent.
pub(in super::super) fn is_of_sub_agent(agent: &str, path: &Path) -> bool {
    match agent {
        "codex" => lines_head(path).is_ok_and(|head| is_codex_sub_agent(&head)),
        "opencode" => is_opencode_sub_agent(path),
        _ => false,
    }
}

/// Whether the first line of a rollout says that another session began it. One that the user copied has the user's
/// source.
pub(super) fn is_codex_sub_agent(head: &[u8]) -> bool {
    let first = head.split(|byte| *byte == b'\n').next().unwrap_or_default();
    let Ok(record) = serde_json::from_slice::<Value>(first) else { return false };
    let Some(meta) = record.get("payload") else { return false };
    let is_started = meta.get("source").is_some_and(|source| source.get("subagent").is_some());
    let is_of_thread = meta.get("thread_source").and_then(Value::as_str) == Some("subagent");
    record.get("type").and_then(Value::as_str) == Some("session_meta")
        && (is_started || is_of_thread)
}

/// Whether the file of a session in opencode's storage names a parent.
pub(super) fn is_opencode_sub_agent(path: &Path) -> bool {
    if path.extension().is_none_or(|ending| ending != "json") {
        return false;
    }
    let info = read_head(path, DOCUMENT_BYTES).ok();
    let info = info.and_then(|bytes| serde_json::from_slice::<Value>(&bytes).ok());
    info.is_some_and(|info| {
        let parent = info.get("parentID").and_then(Value::as_str);
        parent.is_some_and(|parent| !parent.is_empty())
    })
}

/// The first lines of a file, decompressed.
pub(super) fn lines_head(path: &Path) -> std::io::Result<Vec<u8>> {
    let head = read_head(path, LINES_HEAD_BYTES)?;
    let is_compressed = path.extension().is_some_and(|ending| ending == "zst");
    Ok(if is_compressed { decompress_head(&head) } else { head })
}

/// The beginning of the content of compressed data. It ends early, since the data is only the beginning of a file.
fn decompress_head(compressed: &[u8]) -> Vec<u8> {
    let mut head = Vec::new();
    // What was read before the end stays in the buffer; damage is reported when the session is read.
    let _ = ZstdReader::new(compressed).take(LINES_HEAD_BYTES).read_to_end(&mut head);
    head
}

pub(super) fn read_head(path: &Path, length: u64) -> std::io::Result<Vec<u8>> {
    let mut head = Vec::new();
    let file: File = ctxhost_files::open(path)?;
    file.take(length).read_to_end(&mut head)?;
    Ok(head)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_parts_and_of_sessions() {
        for name in [
            "agent-two.jsonl",
            "1-2.checkpoint.3-4.jsonl",
            "1-2.trajectory.jsonl",
            "1-2-topic-7.trajectory.jsonl",
        ] {
            assert!(has_name_of_part(name), "{name}");
        }
        for name in
            ["1-2.jsonl", "1-2-topic-7.jsonl", "trajectory.jsonl", ".checkpoint.jsonl", "a.json"]
        {
            assert!(!has_name_of_part(name), "{name}");
        }
    }

    #[test]
    fn rollouts_of_sub_agents_name_their_source() {
        let meta = |fields: &str| {
            let line = format!(r#"{{"type":"session_meta","payload":{{"id":"a",{fields}}}}}"#);
            is_codex_sub_agent(format!("{line}\n{{\"type\":\"event_msg\"}}\n").as_bytes())
        };
        assert!(meta(r#""source":{"subagent":{"thread_spawn":{"parent_thread_id":"p"}}}"#));
        assert!(meta(r#""source":{"subagent":"review"}"#));
        assert!(meta(r#""source":"cli","thread_source":"subagent""#));
        assert!(!meta(r#""source":"cli","forked_from_id":"p""#), "a copy that the user made");
        assert!(!meta(r#""source":"exec","thread_source":"user""#));
        assert!(!is_codex_sub_agent(b"{\"type\":\"session_meta\"}"));
        assert!(!is_codex_sub_agent(b"torn"));
    }

    #[test]
    fn files_of_agents_name_their_parent() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| {
            let path = folder.path().join(name);
            std::fs::write(&path, text).unwrap();
            path
        };
        let rollout = r#"{"type":"session_meta","payload":{"source":{"subagent":"review"}}}"#;
        let rollout = write("rollout.jsonl", rollout);
        assert!(is_of_sub_agent("codex", &rollout));
        assert!(!is_of_sub_agent("pi", &rollout));
        let child = r#"{"id":"ses_2","projectID":"p","directory":"/","parentID":"ses_1"}"#;
        assert!(is_of_sub_agent("opencode", &write("ses_2.json", child)));
        let own = r#"{"id":"ses_1","projectID":"p","directory":"/"}"#;
        assert!(!is_of_sub_agent("opencode", &write("ses_1.json", own)));
        assert!(!is_of_sub_agent("opencode", &folder.path().join("gone.json")));
    }
}
