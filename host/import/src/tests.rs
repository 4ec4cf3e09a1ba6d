//! The recordings as wholes: the fixtures, what no format holds, and bytes that were damaged.

mod compactions;
mod pi_sessions;

use std::path::{Path, PathBuf};

use ctxhost_engine_api::{Flags, Message, Role};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{ImportError, ImportFormat, ImportedTranscript, detect, import_messages};

pub(super) const CLAUDE_CODE: &str = concat!(
    r#"{"type":"user","uuid":"u1","parentUuid":null,"sessionId":"s1","cwd":"/p","timestamp":"2026-01-01T00:00:00Z","message":{"role":"user","content":"read it"}}"#,
    "\n",
    r#"{"type":"assistant","uuid":"a1","parentUuid":"u1","timestamp":"2026-01-01T00:00:01Z","message":{"id":"m1","role":"assistant","model":"claude-x","content":[{"type":"thinking","thinking":"hm","signature":"sig"}],"stop_reason":null,"usage":{"input_tokens":1,"output_tokens":1}}}"#,
    "\n",
    r#"{"type":"assistant","uuid":"a2","parentUuid":"a1","timestamp":"2026-01-01T00:00:02Z","message":{"id":"m1","role":"assistant","model":"claude-x","content":[{"type":"tool_use","id":"c1","name":"Read","input":{"path":"a"}}],"stop_reason":"tool_use","usage":{"input_tokens":5,"output_tokens":7,"cache_read_input_tokens":11,"cache_creation_input_tokens":13}}}"#,
    "\n",
    r#"{"type":"user","uuid":"u2","parentUuid":"a2","timestamp":"2026-01-01T00:00:03Z","message":{"role":"user","content":[{"type":"tool_result","tool_use_id":"c1","content":"text of a"}]}}"#,
    "\n",
);

pub(super) const CODEX: &str = concat!(
    r#"{"timestamp":"2026-01-01T00:00:00.000Z","ordinal":0,"type":"session_meta","payload":{"id":"t1","cwd":"/p","model_provider":"openai","base_instructions":{"text":"be brief"}}}"#,
    "\n",
    r#"{"timestamp":"2026-01-01T00:00:01.000Z","ordinal":1,"type":"turn_context","payload":{"turn_id":"1","cwd":"/p","model":"gpt-x"}}"#,
    "\n",
    r#"{"timestamp":"2026-01-01T00:00:02.000Z","ordinal":2,"type":"response_item","payload":{"type":"message","role":"user","content":[{"type":"input_text","text":"list it"}]}}"#,
    "\n",
    r#"{"timestamp":"2026-01-01T00:00:02.000Z","ordinal":3,"type":"event_msg","payload":{"type":"user_message","message":"list it"}}"#,
    "\n",
    r#"{"timestamp":"2026-01-01T00:00:03.000Z","ordinal":4,"type":"response_item","payload":{"type":"reasoning","summary":[{"type":"summary_text","text":"think"}],"encrypted_content":"enc"}}"#,
    "\n",
    r#"{"timestamp":"2026-01-01T00:00:04.000Z","ordinal":5,"type":"response_item","payload":{"type":"function_call","name":"shell","arguments":"{\"command\":[\"ls\"]}","call_id":"c1"}}"#,
    "\n",
    r#"{"timestamp":"2026-01-01T00:00:05.000Z","ordinal":6,"type":"response_item","payload":{"type":"function_call_output","call_id":"c1","output":"a b"}}"#,
    "\n",
);

pub(super) const OPENAI: &str = r#"{"model":"gpt-x","tools":[{"type":"function","function":{"name":"ls","parameters":{"type":"object"}}}],
"messages":[
{"role":"developer","content":"be brief"},
{"role":"user","content":[{"type":"text","text":"list it"},{"type":"image_url","image_url":{"url":"data:image/png;base64,AAAA"}}]},
{"role":"assistant","content":null,"reasoning_content":"think","tool_calls":[{"id":"c1","type":"function","function":{"name":"ls","arguments":"{\"path\":\"a\"}"}}]},
{"role":"tool","tool_call_id":"c1","content":"a b"},
{"role":"assistant","content":"two files"}]}"#;

pub(super) const ANTHROPIC: &str = r#"{"model":"claude-x","system":[{"type":"text","text":"be"},{"type":"text","text":"brief"}],"tools":[{"name":"Read","input_schema":{"type":"object"}}],
"messages":[
{"role":"user","content":"read it"},
{"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"sig"},{"type":"tool_use","id":"c1","name":"Read","input":{"path":"a"}}]},
{"role":"user","content":[{"type":"tool_result","tool_use_id":"c1","is_error":true,"content":[{"type":"text","text":"no such file"}]},{"type":"text","text":"and?"}]}]}"#;

const SAMPLES: [&str; 4] = [CLAUDE_CODE, CODEX, OPENAI, ANTHROPIC];

/// The messages of an import, as JSON.
pub(super) fn messages(imported: &ImportedTranscript) -> Vec<Value> {
    imported.messages.iter().map(|imported| imported.message.clone()).collect()
}

/// The roles of an import, in one line.
pub(super) fn roles(imported: &ImportedTranscript) -> String {
    let role = |message: &Value| message["role"].as_str().unwrap_or("?").to_owned();
    messages(imported).iter().map(role).collect::<Vec<_>>().join(" ")
}

/// The text of each message.
pub(super) fn texts(imported: &ImportedTranscript) -> Vec<String> {
    let text = |message: &Value| super::block::joined_text(&message["content"]);
    messages(imported).iter().map(text).collect()
}

fn read(bytes: &[u8]) -> Result<ImportedTranscript, ImportError> {
    import_messages(detect(bytes)?, bytes)
}

/// The folder of the fixtures; `None`, with a message, if it is missing.
#[allow(clippy::print_stderr, reason = "a test that is skipped must be seen to be")]
fn fixtures() -> Option<PathBuf> {
    let beside = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/fixtures");
    let folder = std::env::var_os("CTXHOST_FIXTURES").map_or_else(beside, PathBuf::from);
    if !folder.is_dir() {
        eprintln!("SKIPPED: no fixtures at {}; set CTXHOST_FIXTURES", folder.display());
        return None;
    }
    Some(folder)
}

fn files(folder: PathBuf) -> Vec<(String, Vec<u8>)> {
    let entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = entries
        .map(|path| (path.file_name().unwrap().display().to_string(), std::fs::read(path).unwrap()))
        .collect();
    files.sort();
    files
}

/// Every call has an id, a name and arguments; every result names a call; every reply an end.
fn assert_is_pi(imported: &ImportedTranscript) {
    for (message, timestamp_ms) in
        messages(imported).iter().zip(imported.messages.iter().map(|m| m.timestamp_ms))
    {
        assert_eq!(message["timestamp"], json!(timestamp_ms));
        match message["role"].as_str() {
            Some("system") => assert!(message["content"].is_string()),
            Some("user") => assert!(!message["content"].as_array().unwrap().is_empty()),
            Some("assistant") => {
                assert!(!message["content"].as_array().unwrap().is_empty());
                for name in ["api", "provider", "model", "stopReason"] {
                    assert!(message[name].is_string(), "{name} in {message}");
                }
            }
            Some("toolResult") => {
                assert!(!message["content"].as_array().unwrap().is_empty());
                assert!(message["toolCallId"].is_string() && message["toolName"].is_string());
                assert!(message["isError"].is_boolean());
            }
            role => panic!("a message of role {role:?}"),
        }
        let raw = message.to_string();
        let parsed = Message::parse(&raw, "no message");
        assert_eq!(parsed.role, message["role"].as_str().unwrap());
        assert_eq!(parsed.blocks.len(), message["content"].as_array().map_or(1, Vec::len));
        for block in message["content"].as_array().into_iter().flatten() {
            if block["type"] == "toolCall" {
                assert!(block["id"].is_string() && block["name"].is_string());
                assert!(block["arguments"].is_object());
            }
        }
    }
}

#[test]
fn each_sample_is_detected_and_imported() {
    let expected = [
        ImportFormat::ClaudeCode,
        ImportFormat::Codex,
        ImportFormat::OpenAi,
        ImportFormat::Anthropic,
    ];
    for (sample, format) in SAMPLES.into_iter().zip(expected) {
        assert_eq!(detect(sample.as_bytes()), Ok(format));
        let imported = import_messages(format, sample.as_bytes()).unwrap();
        assert_eq!(imported.problems, [], "{format}");
        assert_is_pi(&imported);
    }
}

#[test]
fn an_import_error_names_the_reason() {
    assert_eq!(import_messages(ImportFormat::Pi, b"{}"), Err(ImportError::Pi));
    for format in [
        ImportFormat::ClaudeCode,
        ImportFormat::Codex,
        ImportFormat::OpenAi,
        ImportFormat::Anthropic,
    ] {
        for bytes in [b"".as_slice(), b"{}", b"[]", b"nonsense\n{\n", b"\xFF"] {
            let error = import_messages(format, bytes).unwrap_err();
            assert!(error.to_string().contains(format.name()), "{error}");
        }
    }
    let error = import_messages(ImportFormat::Codex, b"\n7\n8\n").unwrap_err().to_string();
    assert!(error.contains("line 2: a number where a record belongs (and 1 more)"), "{error}");
}

#[test]
fn a_prompt_without_talk_is_no_recording() {
    let bytes = br#"[{"role":"system","content":"be brief"}]"#;
    assert!(matches!(read(bytes), Err(ImportError::NoMessage { .. })));
}

#[test]
fn times_that_are_missing_follow_the_message_before() {
    let text = r#"[{"role":"user","content":"a"},{"role":"user","content":"b"},
        {"role":"user","content":"c","timestamp":"1970-01-01T01:00:00Z"},{"role":"user","content":"d"}]"#;
    let imported = read(text.as_bytes()).unwrap();
    let times: Vec<i64> = imported.messages.iter().map(|m| m.timestamp_ms).collect();
    assert_eq!(times, [0, 1_000, 3_600_000, 3_601_000]);
}

#[test]
fn a_compressed_recording_is_read() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let level = ruzstd::encoding::CompressionLevel::Fastest;
    let compressed = ruzstd::encoding::compress_to_vec(CODEX.as_bytes(), level);
    std::fs::write(file.path(), &compressed).unwrap();
    let opened = super::open_file(file.path()).unwrap();
    assert_eq!((opened.format.as_str(), opened.session.branch().len()), ("codex", 5));
    std::fs::write(file.path(), &compressed[..compressed.len() / 2]).unwrap();
    let error = super::open_file(file.path()).unwrap_err().to_string();
    assert!(error.contains("ends early"), "{error}");
    // As `cat` of two files or a parallel compressor writes it.
    let (head, tail) = CODEX.split_at(CODEX.len() / 2);
    let frames = [head, tail].map(|part| ruzstd::encoding::compress_to_vec(part.as_bytes(), level));
    std::fs::write(file.path(), frames.concat()).unwrap();
    assert_eq!(super::open_file(file.path()).unwrap().session.branch().len(), 5);
}

#[test]
fn a_pi_session_with_a_byte_order_mark_is_read() {
    let header =
        r#"{"type":"session","version":3,"id":"s","timestamp":"2026-11-21T01:41:21.054Z"}"#;
    let record = r#"{"type":"message","id":"a","parentId":null,"timestamp":"2026-11-21T01:41:21.054Z","message":{"role":"user","content":"hi"}}"#;
    let text = format!("\u{FEFF}{header}\n{record}\n");
    let opened = super::open_bytes("s", text.as_bytes()).unwrap();
    assert_eq!((opened.session.live(0).len(), opened.problems), (1, vec![]));
}

#[test]
fn fixtures_of_pi_are_detected() {
    let Some(folder) = fixtures() else { return };
    for (name, bytes) in files(folder.join("pi")) {
        assert_eq!(detect(&bytes), Ok(ImportFormat::Pi), "{name}");
    }
}

#[test]
fn fixtures_of_claude_code_are_imported() {
    let Some(folder) = fixtures() else { return };
    let expected = [
        ("ccl_edge_cases.jsonl", "edge_cases", 11, [10, 11, 13, 14, 15, 16, 18, 18].as_slice()),
        ("ccl_representative_messages.jsonl", "test_session", 11, &[]),
        ("ccl_session_b.jsonl", "session_b", 3, &[]),
        ("ccl_todowrite_examples.jsonl", "todowrite_session", 11, &[]),
    ];
    for ((name, bytes), (file, id, count, problems)) in
        files(folder.join("small/claude-code-log")).into_iter().zip(expected)
    {
        assert_eq!(name, file);
        assert_eq!(detect(&bytes), Ok(ImportFormat::ClaudeCode), "{name}");
        let imported = import_messages(ImportFormat::ClaudeCode, &bytes).unwrap();
        assert_is_pi(&imported);
        assert_eq!((imported.id.as_str(), imported.cwd.as_str()), (id, "/tmp"), "{name}");
        let lines: Vec<u64> = imported.problems.iter().map(|problem| problem.line).collect();
        assert_eq!(lines, problems, "{name}: {:?}", imported.problems);
        assert_eq!(imported.messages.len(), count, "{name}: {}", roles(&imported));
    }
}

#[test]
fn the_edge_cases_keep_their_call_without_result() {
    let Some(folder) = fixtures() else { return };
    let path = folder.join("small/claude-code-log/ccl_edge_cases.jsonl");
    let imported = read(&std::fs::read(path).unwrap()).unwrap();
    let messages = messages(&imported);
    let calls = messages.iter().flat_map(|m| m["content"].as_array().into_iter().flatten());
    let calls: Vec<&Value> =
        calls.filter(|block| block["type"] == "toolCall").map(|block| &block["id"]).collect();
    assert_eq!(calls, ["tool_edge_001", "tool_edge_002", "toolu_todowrite_002"]);
    let results: Vec<&Value> = messages.iter().filter(|m| m["role"] == "toolResult").collect();
    assert_eq!(results.len(), 1);
    assert_eq!(results[0]["toolCallId"], "tool_edge_001");
    assert_eq!(results[0]["toolName"], "FailingTool");
    assert_eq!(results[0]["isError"], true);
}

#[test]
fn fixtures_of_other_agents_are_refused_by_name() {
    let Some(folder) = fixtures() else { return };
    for (agent, seen) in [("openhands", r#""timestamp", "source""#), ("dsh", r#"type "session", "#)]
    {
        for (name, bytes) in files(folder.join("small").join(agent)) {
            let error = detect(&bytes).unwrap_err();
            assert!(matches!(error, ImportError::Unknown { .. }), "{name}");
            let message = error.to_string();
            assert!(message.contains(seen) && message.contains("claude-code"), "{name}: {message}");
        }
    }
}

/// One way in which a recording is damaged. Places are taken modulo what is there.
#[derive(Clone, Debug)]
enum Damage {
    Truncate(usize),
    Flip(usize, u8),
    DeleteLine(usize),
    RepeatLine(usize),
    Swap(usize, usize),
}

impl Damage {
    fn apply(&self, bytes: &mut Vec<u8>) {
        let length = bytes.len().max(1);
        match *self {
            Damage::Truncate(at) => bytes.truncate(at % length),
            Damage::Flip(at, bits) => {
                bytes.iter_mut().skip(at % length).take(1).for_each(|b| *b ^= bits)
            }
            Damage::DeleteLine(at) => of_lines(bytes, |lines| {
                lines.remove(at % lines.len());
            }),
            Damage::RepeatLine(at) => of_lines(bytes, |lines| {
                lines.push(lines[at % lines.len()].clone());
            }),
            Damage::Swap(one, other) => of_lines(bytes, |lines| {
                let count = lines.len();
                lines.swap(one % count, other % count);
            }),
        }
    }
}

fn of_lines(bytes: &mut Vec<u8>, change: impl FnOnce(&mut Vec<Vec<u8>>)) {
    let mut lines: Vec<Vec<u8>> = bytes.split(|b| *b == b'\n').map(<[u8]>::to_vec).collect();
    change(&mut lines);
    *bytes = lines.join(&b'\n');
}

fn damage() -> impl Strategy<Value = Damage> {
    let at = any::<usize>;
    prop_oneof![
        1 => at().prop_map(Damage::Truncate),
        4 => (at(), 1..=255_u8).prop_map(|(at, bits)| Damage::Flip(at, bits)),
        2 => at().prop_map(Damage::DeleteLine),
        2 => at().prop_map(Damage::RepeatLine),
        2 => (at(), at()).prop_map(|(one, other)| Damage::Swap(one, other)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn damage_is_a_problem_and_never_a_panic(
        sample in prop::sample::select(SAMPLES.as_slice()),
        damages in prop::collection::vec(damage(), 1..6),
    ) {
        let mut bytes = sample.as_bytes().to_vec();
        damages.iter().for_each(|damage| damage.apply(&mut bytes));
        let _ = detect(&bytes);
        let lines = bytes.split(|b| *b == b'\n').count() as u64;
        for format in ImportFormat::ALL {
            if let Ok(imported) = import_messages(format, &bytes) {
                assert_is_pi(&imported);
                prop_assert!(imported.problems.iter().all(|p| (1..=lines).contains(&p.line)));
            }
        }
    }

    #[test]
    fn a_broken_line_costs_only_itself(at in 0_usize..5, junk in "[a-z{\\[\"]{1,12}") {
        let mut lines: Vec<&str> = CLAUDE_CODE.lines().collect();
        lines.insert(at.min(lines.len()), &junk);
        let text = lines.join("\n");
        let whole = import_messages(ImportFormat::ClaudeCode, CLAUDE_CODE.as_bytes()).unwrap();
        let imported = import_messages(ImportFormat::ClaudeCode, text.as_bytes()).unwrap();
        prop_assert_eq!(imported.messages, whole.messages);
        prop_assert_eq!(imported.problems.len(), 1);
        prop_assert_eq!(imported.problems[0].line, at.min(4) as u64 + 1);
    }
}

/// What is pinned of a recording, as its text.
fn pinned(recording: &str) -> Vec<String> {
    let recorded = super::open_bytes("a recording", recording.as_bytes()).unwrap();
    let live = recorded.session.live(0).snapshot();
    let pinned = live.iter().filter(|entry| entry.role() == Role::User && entry.has(Flags::PINNED));
    pinned.map(|entry| entry.text().to_owned()).collect()
}

#[test]
fn the_first_request_is_pinned_and_not_inserted_text() {
    let codex = |texts: &[&str]| {
        let content: Vec<Value> =
            texts.iter().map(|text| json!({ "type": "input_text", "text": text })).collect();
        let item = json!({ "type": "message", "role": "user", "content": content });
        json!({ "type": "response_item", "payload": item }).to_string()
    };
    let environment = "<environment_context>\n<cwd>/w</cwd>\n</environment_context>";
    let rules = "# AGENTS.md instructions for /w\n\n<INSTRUCTIONS>\nTabs.\n</INSTRUCTIONS>";
    let items = [codex(&[rules, environment]), codex(&[environment]), codex(&["Mend the parser."])];
    assert_eq!(pinned(&items.join("\n")), ["Mend the parser."]);
    let both = [codex(&[environment, "Mend the parser."]), codex(&["And the lexer."])];
    assert!(pinned(&both.join("\n")).concat().ends_with("Mend the parser."));
    let claude = |uuid: &str, parent: Value, text: &str| {
        let message = json!({ "role": "user", "content": text });
        json!({ "type": "user", "uuid": uuid, "parentUuid": parent, "sessionId": "s", "cwd": "/w",
                "version": "2.1", "timestamp": "2026-01-01T00:00:00Z", "message": message })
        .to_string()
    };
    let reminder = "<system-reminder>\nToday is Sunday.\n</system-reminder>";
    let lines = [claude("a", Value::Null, reminder), claude("b", json!("a"), "Mend the parser.")];
    assert_eq!(pinned(&lines.join("\n")), ["Mend the parser."]);
}

#[test]
fn half_of_a_surrogate_pair_costs_only_itself() {
    for sample in SAMPLES {
        let cut =
            sample.replace("read it", r"read it \ud83d").replace("list it", r"list it \ud83d");
        let cut = cut.replace("be brief", r"be \udE00 brief");
        let (format, whole) = (detect(sample.as_bytes()).unwrap(), sample.as_bytes());
        assert_eq!(detect(cut.as_bytes()).unwrap(), format);
        let (whole, cut) =
            (import_messages(format, whole), import_messages(format, cut.as_bytes()));
        let (whole, cut) = (whole.unwrap(), cut.unwrap());
        assert_eq!(cut.problems, whole.problems, "{format:?}");
        assert_eq!(cut.messages.len(), whole.messages.len());
        let texts = serde_json::to_string(&messages(&cut)).unwrap();
        assert!(texts.contains("it \u{fffd}"), "{format:?}: {texts}");
    }
}
