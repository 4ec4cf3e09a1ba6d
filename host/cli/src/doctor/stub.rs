//! Recognizes files of Claude Code without a message: a title, or a queue that was never sent.

use std::path::Path;

use serde_json::Value;

/// Types of records that Claude Code writes beside messages.
const TYPES: [&str; 8] = [
    "summary",
    "queue-operation",
    "file-history-snapshot",
    "custom-title",
    "ai-title",
    "last-prompt",
    "agent-name",
    "pr-link",
];
/// Fields of which each has one. Logs of other programs may have the same types.
const IDS: [&str; 3] = ["leafUuid", "sessionId", "messageId"];

/// Whether every record of a file is one that Claude Code writes beside messages.
pub(super) fn is_stub(path: &Path) -> bool {
    let Ok(lines) = ctxhost_files::read_lines(path) else { return false };
    let mut lines = lines.bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    let mut count = 0;
    let is_only = lines.all(|line| {
        count += 1;
        serde_json::from_slice::<Value>(line).is_ok_and(|record| is_beside_messages(&record))
    });
    is_only && count > 0
}

fn is_beside_messages(record: &Value) -> bool {
    let has_type = record.get("type").and_then(Value::as_str).is_some_and(|it| TYPES.contains(&it));
    has_type && IDS.iter().any(|id| record.get(id).is_some_and(Value::is_string))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_stub_text(text: &str) -> bool {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("s.jsonl");
        std::fs::write(&path, text).unwrap();
        is_stub(&path)
    }

    #[test]
    fn records_without_messages_are_a_stub() {
        let title = r#"{"type":"summary","summary":"Mend the parser","leafUuid":"u"}"#;
        let queued = r#"{"type":"queue-operation","operation":"enqueue","sessionId":"s"}"#;
        assert!(is_stub_text(&format!("{title}\n{queued}\r\n\n")));
        for other in [
            "",
            "\n",
            r#"{"type":"summary","summary":"of a log"}"#,
            r#"{"type":"user","sessionId":"s","message":{"parts":[]}}"#,
            "{\"level\":\"info\"}",
            "no JSON",
        ] {
            assert!(!is_stub_text(other), "{other}");
            assert!(
                other.is_empty() || other == "\n" || !is_stub_text(&format!("{title}\n{other}"))
            );
        }
    }
}
