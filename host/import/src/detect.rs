//! Detects the format of a recording from its records, not from its file name.

use ctxhost_session::has_session_record_fields;
use serde_json::{Map, Value};

use super::block::kind;
use super::chat::ChatDocument;
use super::json_lines::{JsonRecord, records, strip_bom};
use super::surrogates::replace_halves;
use super::transcript::{ImportError, ImportFormat};

/// Number of record types in an error.
const NAMED_KINDS: usize = 3;
/// Number of field names in an error.
const NAMED_FIELDS: usize = 5;
/// Length of a name in an error. Names come from the file and may be arbitrarily long.
const NAME_CHARS: usize = 40;

/// Detects the format of a recording.
///
/// A list of plain text messages fits both API dialects and counts as [`ImportFormat::OpenAi`]; both read it
/// alike.
pub fn detect(bytes: &[u8]) -> Result<ImportFormat, ImportError> {
    let bytes = &*replace_halves(bytes);
    if strip_bom(bytes).trim_ascii().is_empty() {
        return Err(ImportError::Empty);
    }
    let found = match ChatDocument::document(bytes) {
        Some(chat) => format_of_chat(&chat).or_else(|| format_of_agent_document(&chat)),
        None => format_of_lines(bytes),
    };
    found.ok_or_else(|| ImportError::Unknown { seen: describe(bytes) })
}

fn format_of_lines(bytes: &[u8]) -> Option<ImportFormat> {
    let (mut chat, mut is_foreign) = (None, false);
    for (place, record) in records(bytes).filter_map(Result::ok).enumerate() {
        if place == 0 && is_pi_header(&record) {
            return Some(ImportFormat::Pi);
        }
        // Its messages are like those of an API, but calls and results have other blocks, which an import would lose.
        if is_goose(&record) {
            return None;
        }
        // Another agent writes headers like Pi's, with version 0.
        is_foreign |= place == 0 && is_header_of_version_0(&record);
        // A Pi session with a damaged header: opening it names the command that repairs it.
        if !is_foreign && has_session_record_fields(&record.fields) {
            return Some(ImportFormat::Pi);
        }
        if is_codex(&record) {
            return Some(ImportFormat::Codex);
        }
        if is_claude_code(&record) {
            return Some(ImportFormat::ClaudeCode);
        }
        if is_gemini_control(&record) || is_gemini_message(&record) {
            return Some(ImportFormat::GeminiCli);
        }
        if is_chat_message(&record) {
            if let Some(dialect) = dialect(&record.fields) {
                return Some(dialect);
            }
            // Not returned yet: a later message may have the blocks of another dialect.
            chat = Some(ImportFormat::OpenAi);
        }
    }
    chat
}

fn format_of_chat(chat: &ChatDocument) -> Option<ImportFormat> {
    let messages = chat.messages.iter().flatten().filter(|message| is_chat_message(message));
    let mut messages = messages.peekable();
    messages.peek()?;
    if !chat.system.is_null() || chat.tools.iter().any(|t| t.get("input_schema").is_some()) {
        return Some(ImportFormat::Anthropic);
    }
    Some(messages.find_map(|message| dialect(&message.fields)).unwrap_or(ImportFormat::OpenAi))
}

/// The format of a document with a list of messages that are none of an API.
fn format_of_agent_document(chat: &ChatDocument) -> Option<ImportFormat> {
    chat.messages.iter().flatten().find_map(|message| {
        if is_gemini_message(message) {
            return Some(ImportFormat::GeminiCli);
        }
        let parts = ["info", "parts"].map(|name| message.fields.get(name));
        matches!(parts, [Some(Value::Object(_)), Some(Value::Array(_))])
            .then_some(ImportFormat::OpenCode)
    })
}

/// The first line of a chat, or a change of it.
fn is_gemini_control(record: &JsonRecord) -> bool {
    let is_header = record.text("sessionId").is_some()
        && record.text("projectHash").is_some()
        && record.text("type").is_none();
    is_header || record.fields.contains_key("$set") || record.text("$rewindTo").is_some()
}

fn is_gemini_message(record: &JsonRecord) -> bool {
    matches!(record.text("type"), Some("user" | "gemini" | "qwen"))
        && record.text("id").is_some()
        && record.fields.contains_key("content")
}

/// Version 1 has no version field. Another harness, whose sessions also start with `session`, writes 0.
fn is_pi_header(record: &JsonRecord) -> bool {
    let version = record.fields.get("version").map(Value::as_u64);
    record.text("type") == Some("session")
        && record.text("id").is_some()
        && record.text("timestamp").is_some()
        && version.is_none_or(|version| version >= Some(1))
}

fn is_header_of_version_0(record: &JsonRecord) -> bool {
    let version = record.fields.get("version").and_then(Value::as_u64);
    record.text("type") == Some("session") && version == Some(0)
}

fn is_codex(record: &JsonRecord) -> bool {
    const TYPES: [&str; 5] =
        ["session_meta", "turn_context", "response_item", "event_msg", "compacted"];
    record.text("type").is_some_and(|of| TYPES.contains(&of))
        && record.fields.get("payload").is_some_and(Value::is_object)
}

/// A message with content: in otherwise equal records, Qwen Code writes Gemini's `parts`.
fn is_claude_code(record: &JsonRecord) -> bool {
    matches!(record.text("type"), Some("user" | "assistant"))
        && record.fields.get("message").is_some_and(|message| message.get("content").is_some())
}

/// The first line of a recording of Goose, or one of its messages.
fn is_goose(record: &JsonRecord) -> bool {
    let is_header = record.text("working_dir").is_some() && record.text("description").is_some();
    let blocks = record.fields.get("content").and_then(Value::as_array);
    let is_own = |block: &Value| matches!(kind(block), "toolRequest" | "toolResponse");
    is_header || blocks.is_some_and(|blocks| blocks.iter().any(is_own))
}

fn is_chat_message(record: &JsonRecord) -> bool {
    const ROLES: [&str; 6] = ["system", "developer", "user", "assistant", "tool", "function"];
    const CONTENTS: [&str; 3] = ["content", "tool_calls", "function_call"];
    record.text("role").is_some_and(|role| ROLES.contains(&role))
        && CONTENTS.iter().any(|name| record.fields.contains_key(*name))
        && matches!(record.text("type"), None | Some("message"))
}

/// The API dialect of a message; `None` if it fits both.
fn dialect(message: &Map<String, Value>) -> Option<ImportFormat> {
    const OPENAI: [&str; 4] = ["tool_calls", "function_call", "tool_call_id", "reasoning_content"];
    let role = message.get("role").and_then(Value::as_str);
    let is_openai_role = matches!(role, Some("tool" | "developer" | "function"));
    if is_openai_role || OPENAI.iter().any(|name| message.contains_key(*name)) {
        return Some(ImportFormat::OpenAi);
    }
    message.get("content")?.as_array()?.iter().find_map(|block| match kind(block) {
        "tool_use" | "tool_result" | "thinking" | "redacted_thinking" => {
            Some(ImportFormat::Anthropic)
        }
        "image" | "document" if block.get("source").is_some() => Some(ImportFormat::Anthropic),
        "image_url" | "input_audio" | "file" | "refusal" => Some(ImportFormat::OpenAi),
        _ => None,
    })
}

/// Describes a file that is not a recording.
fn describe(bytes: &[u8]) -> String {
    let found: Vec<JsonRecord> = match ChatDocument::document(bytes) {
        Some(chat) => chat.messages.into_iter().flatten().collect(),
        None => records(bytes).filter_map(Result::ok).collect(),
    };
    let mut types: Vec<&str> = Vec::new();
    for of in found.iter().filter_map(|record| record.text("type")) {
        if types.len() < NAMED_KINDS && !types.contains(&of) {
            types.push(of);
        }
    }
    match found.first() {
        _ if !types.is_empty() => format!("records of type {}", quoted(types)),
        Some(first) => {
            let fields = first.fields.keys().take(NAMED_FIELDS).map(String::as_str);
            format!("records with the fields {}", quoted(fields))
        }
        None => describe_bytes(bytes),
    }
}

fn describe_bytes(bytes: &[u8]) -> String {
    const COMPRESSED: [&[u8]; 2] = [b"\x28\xB5\x2F\xFD", b"\x1F\x8B"];
    if COMPRESSED.iter().any(|magic| bytes.starts_with(magic)) {
        return "compressed data; decompress it first".into();
    }
    let bytes = strip_bom(bytes);
    match serde_json::from_slice::<Value>(bytes) {
        Err(error) if matches!(bytes.trim_ascii().first(), Some(b'[' | b'{')) => {
            format!("JSON with an error at line {} column {}", error.line(), error.column())
        }
        _ => "no JSON records".into(),
    }
}

fn quoted<'a>(names: impl IntoIterator<Item = &'a str>) -> String {
    let quote = |name: &str| format!("{:?}", name.chars().take(NAME_CHARS).collect::<String>());
    names.into_iter().map(quote).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> &'static str {
        detect(text.as_bytes()).map_or("unknown", ImportFormat::name)
    }

    fn error(bytes: &[u8]) -> String {
        detect(bytes).unwrap_err().to_string()
    }

    #[test]
    fn each_format_by_one_line() {
        let cases = [
            (r#"{"type":"session","id":"a","timestamp":"2026-01-01T00:00:00Z","cwd":"/"}"#, "pi"),
            (r#"{"type":"session","version":4,"id":"a","timestamp":"t"}"#, "pi"),
            (r#"{"type":"session","version":0,"id":"a","timestamp":"t"}"#, "unknown"),
            (r#"{"type":"session","version":"3","id":"a","timestamp":"t"}"#, "unknown"),
            (r#"{"type":"session_meta","payload":{}}"#, "codex"),
            (r#"{"type":"session_meta"}"#, "unknown"),
            (r#"{"type":"user","message":{"role":"user","content":"hi"}}"#, "claude-code"),
            (r#"{"type":"user","message":"hi"}"#, "unknown"),
            // Qwen Code and Goose.
            (r#"{"type":"user","message":{"role":"user","parts":[{"text":"hi"}]}}"#, "unknown"),
            (
                r#"{"role":"assistant","content":[{"type":"toolRequest","id":"1","toolCall":{}}]}"#,
                "unknown",
            ),
            (
                "{\"working_dir\":\"/w\",\"description\":\"d\"}\n{\"role\":\"user\",\"content\":[]}",
                "unknown",
            ),
            (r#"{"role":"user","content":"hi"}"#, "openai"),
            (r#"[{"role":"user","content":"hi"}]"#, "openai"),
            (r#"{"sessionId":"s","projectHash":"h","startTime":"t"}"#, "gemini-cli"),
            (r#"{"id":"a","type":"user","content":"hi"}"#, "gemini-cli"),
            (
                r#"{"sessionId":"s","messages":[{"id":"a","type":"gemini","content":""}]}"#,
                "gemini-cli",
            ),
            (
                r#"{"info":{"id":"ses_1"},"messages":[{"info":{"role":"user"},"parts":[]}]}"#,
                "opencode",
            ),
            (r#"[{"role":"user"}]"#, "unknown"),
            (r#"[{"role":"robot","content":"hi"}]"#, "unknown"),
            (r#"{"model":"m","messages":[{"role":"user","content":"hi"}]}"#, "openai"),
            (r#"{"system":"s","messages":[{"role":"user","content":"hi"}]}"#, "anthropic"),
            ("[]", "unknown"),
            ("[1]", "unknown"),
        ];
        for (text, expected) in cases {
            assert_eq!(name(text), expected, "{text}");
        }
    }

    #[test]
    fn the_first_trait_of_a_dialect_decides() {
        let cases = [
            (r#"{"role":"developer","content":"x"}"#, "openai"),
            (r#"{"role":"tool","tool_call_id":"c","content":"x"}"#, "openai"),
            (r#"{"role":"assistant","content":null,"tool_calls":[]}"#, "openai"),
            (
                r#"{"role":"user","content":[{"type":"image_url","image_url":{"url":"u"}}]}"#,
                "openai",
            ),
            (
                r#"{"role":"user","content":[{"type":"tool_result","tool_use_id":"c"}]}"#,
                "anthropic",
            ),
            (r#"{"role":"assistant","content":[{"type":"thinking","thinking":"t"}]}"#, "anthropic"),
            (r#"{"role":"user","content":[{"type":"image","source":{}}]}"#, "anthropic"),
            (r#"{"role":"user","content":[{"type":"text","text":"t"}]}"#, "openai"),
        ];
        for (message, expected) in cases {
            let plain = r#"{"role":"user","content":"hi"}"#;
            assert_eq!(name(&format!("[{plain},{message}]")), expected, "list: {message}");
            assert_eq!(name(&format!("{plain}\n{message}\n")), expected, "lines: {message}");
        }
    }

    #[test]
    fn records_of_the_agent_may_precede_the_first_message() {
        let text = "{\"type\":\"summary\",\"summary\":\"s\"}\nnonsense\n\
                    {\"type\":\"user\",\"message\":{\"role\":\"user\",\"content\":\"hi\"}}";
        assert_eq!(name(text), "claude-code");
    }

    #[test]
    fn errors_name_the_found_and_the_known_formats() {
        assert!(error(b" \n").contains("empty"));
        assert!(error(b"hello").contains("no JSON records"));
        assert!(error(b"[{\"role\":\n\"user\"").contains("an error at line 2"));
        assert!(error(b"\x28\xB5\x2F\xFD\0\0").contains("compressed"));
        assert!(error(b"{\"a\":1,\"b\":2}").contains(r#"with the fields "a", "b""#));
        let seen = error(b"{\"type\":\"x\"}\n{\"type\":\"y\"}\n{\"type\":\"x\"}");
        assert!(seen.contains(r#"records of type "x", "y";"#), "{seen}");
        assert!(
            seen.ends_with("pi, claude-code, codex, gemini-cli, opencode, openai, anthropic"),
            "{seen}"
        );
    }
}
