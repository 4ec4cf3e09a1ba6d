//! One-line descriptions of calls and old results.

use std::sync::LazyLock;

use ctxhost_engine_api::transcript::tokens::group_thousands;
use ctxhost_engine_api::{Entry, EntryKind, Flags, Role, ToolCall, Transcript};
use regex::Regex;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::find_call;
use crate::text::{clip, one_line, suffix};

/// Length of one argument in a line, in weighted characters: a path or a command.
const ARGUMENT_CHARS: u64 = 100;
/// The end of an output that is searched for an exit code, in weighted characters.
const EXIT_CODE_CHARS: u64 = 400;

// Argument names differ between agents. A line lists patterns, then commands, then places.
const PATTERNS: [&str; 3] = ["pattern", "query", "regex"];
const COMMANDS: [&str; 3] = ["command", "cmd", "script"];
const PLACES: [&str; 4] = ["path", "file_path", "filePath", "url"];

static EXIT_CODE: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r"(?i)\bexit(?:ed)?(?: with)?(?: code| status)?:? (\d{1,3})\b").ok()
});

/// `[old output left out: bash cargo test -> exit code 101, 48 lines, 12,408 chars]`
pub fn render_result_line(transcript: &Transcript, entry: &Entry<'_>, is_repeated: bool) -> String {
    let call = call(transcript, entry);
    if is_repeated {
        return format!("[old output left out: {call}; the same was printed again later]");
    }
    let text = entry.text();
    let lines = text.lines().count();
    let plural = if lines == 1 { "" } else { "s" };
    let chars = group_thousands(text.chars().count() as u64);
    let image = if entry.has(Flags::IMAGES) { ", with an image" } else { "" };
    let outcome = outcome(entry);
    format!(
        "[old output left out: {call} -> {outcome}, {} line{plural}, {chars} chars{image}]",
        group_thousands(lines as u64)
    )
}

/// The tool and its arguments.
fn call(transcript: &Transcript, entry: &Entry<'_>) -> String {
    let tool = || entry.tool_result().map(|result| result.tool.into_owned());
    match find_call(transcript, entry) {
        Some(call) => describe_call(&call),
        // The call was compacted or never recorded; the result still names its tool.
        None => tool().filter(|tool| !tool.is_empty()).unwrap_or_else(|| "a tool".into()),
    }
}

/// Describes a call by its main arguments: `grep "fn main" src`.
pub fn describe_call(call: &ToolCall<'_>) -> String {
    let mut words = vec![call.name.to_string()];
    let mut add = |names: &[&str], quote: &str| {
        let value = call.string_argument(names).map(|value| one_line(&value));
        let value = value.filter(|value| !value.is_empty());
        words.extend(value.map(|value| format!("{quote}{}{quote}", clip(&value, ARGUMENT_CHARS))));
    };
    add(&PATTERNS, "\"");
    add(&COMMANDS, "");
    add(&PLACES, "");
    let offset = call.arguments_value().get("offset").and_then(|value| value.as_u64());
    words.extend(offset.filter(|offset| *offset > 1).map(|offset| format!("from line {offset}")));
    words.join(" ")
}

/// The command of a call, if it runs one.
pub fn command_argument(call: &ToolCall<'_>) -> Option<String> {
    call.string_argument(&COMMANDS)
}

/// Whether an entry is the result of a failed call: flagged, or with an exit code other than 0.
pub fn has_failed(entry: &Entry<'_>) -> bool {
    let is_result = entry.role() == Role::Tool || entry.kind() == EntryKind::Bash;
    let names_failure = || exit_code(entry).is_some_and(|code| code != "0");
    is_result && (entry.has(Flags::ERROR) || names_failure())
}

/// How a call or command failed: `exit 101`, `failed`, `cancelled`; `None` if it did not.
pub fn failure_status(entry: &Entry<'_>) -> Option<String> {
    let details = ExitDetails::of(entry);
    // Structured details are more reliable than the text.
    let code = details.exit_code().or_else(|| exit_code(entry).map(str::to_owned));
    match code.filter(|code| code != "0") {
        Some(code) => Some(format!("exit {code}")),
        None if details.is_cancelled() => Some("cancelled".into()),
        None if entry.has(Flags::ERROR) => Some("failed".into()),
        None => None,
    }
}

/// Outcome fields beside an output: Pi's `details` of a result, or the fields of a user's command.
#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct ExitDetails {
    exit_code: Option<Value>,
    status: Option<Value>,
    cancelled: Option<bool>,
    details: Option<Box<RawValue>>,
}

impl ExitDetails {
    fn of(entry: &Entry<'_>) -> ExitDetails {
        let outer: ExitDetails = serde_json::from_str(entry.raw()).unwrap_or_default();
        let inner = outer.details.as_ref().and_then(|raw| serde_json::from_str(raw.get()).ok());
        // Pi nests the fields in `details`; its bash entries have them at the top level.
        inner.unwrap_or(outer)
    }

    fn exit_code(&self) -> Option<String> {
        let code = |value: &Option<Value>| value.as_ref().and_then(Value::as_i64);
        code(&self.exit_code).or_else(|| code(&self.status)).map(|code| code.to_string())
    }

    fn is_cancelled(&self) -> bool {
        let status = self.status.as_ref().and_then(Value::as_str).unwrap_or("");
        let words = ["cancelled", "canceled", "aborted", "timeout"];
        self.cancelled == Some(true) || words.contains(&status.to_lowercase().as_str())
    }
}

fn outcome(entry: &Entry<'_>) -> String {
    match exit_code(entry) {
        Some(code) => format!("exit code {code}"),
        None if entry.has(Flags::ERROR) => "error".into(),
        None => "ok".into(),
    }
}

fn exit_code<'a>(entry: &Entry<'a>) -> Option<&'a str> {
    // Shell tools append the exit code; searching the whole output would match quoted text.
    let end = suffix(entry.text(), EXIT_CODE_CHARS, 1);
    let found = EXIT_CODE.as_ref()?.captures_iter(end).last()?;
    found.get(1).map(|code| code.as_str())
}

#[cfg(test)]
mod tests {
    use ctxhost_engine_api::testing::TranscriptBuilder;

    use super::*;

    fn check(call: (&str, &str), text: &str, failed: bool, expected: &str) {
        let mut talk = TranscriptBuilder::new();
        talk.calls(&[("a", call.0, call.1)]);
        if failed {
            talk.failure("a", call.0, text)
        } else {
            talk.result("a", call.0, text)
        };
        let transcript = talk.transcript();
        let line = render_result_line(&transcript, &transcript.get(1).unwrap(), false);
        assert_eq!(line, format!("[old output left out: {expected}]"));
    }

    #[test]
    fn the_pattern_compiles() {
        assert!(EXIT_CODE.is_some());
    }

    #[test]
    fn a_failure_has_a_flag_or_an_exit_code() {
        let mut talk = TranscriptBuilder::new();
        talk.calls(&[("a", "bash", r#"{"cmd":"ls"}"#), ("b", "bash", "{}"), ("c", "bash", "{}")]);
        talk.failure("a", "bash", "no").result("b", "bash", "2 failed\nexit code 101");
        talk.result("c", "bash", "done, exit code 0").assistant("exit code 1");
        let transcript = talk.transcript();
        let failed: Vec<bool> = transcript.iter().map(|entry| has_failed(&entry)).collect();
        assert_eq!(failed, [false, true, true, false, false]);
        let calls = transcript.get(0).unwrap().tool_calls();
        let commands: Vec<_> = calls.iter().map(command_argument).collect();
        assert_eq!(commands, [Some("ls".into()), None, None]);
    }

    #[test]
    fn a_line_names_tool_subject_outcome_and_size() {
        let grep = ("grep", r#"{"path":"src","pattern":"fn main"}"#);
        check(grep, "a\nb\n", false, r#"grep "fn main" src -> ok, 2 lines, 4 chars"#);
        let read = ("read", r#"{"path":"a.rs","offset":40,"limit":9}"#);
        check(read, "x", false, "read a.rs from line 40 -> ok, 1 line, 1 chars");
        let bash = ("bash", r#"{"command":"cargo  test\n-q"}"#);
        let text = "error\n\nCommand exited with code 101";
        check(bash, text, true, "bash cargo test -q -> exit code 101, 3 lines, 35 chars");
        check(("edit", "{}"), "no match", true, "edit -> error, 1 line, 8 chars");
    }
}
