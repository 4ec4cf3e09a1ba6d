//! One-line descriptions of calls and old results.

use ctxhost_engine_api::transcript::tokens::group_thousands;
use ctxhost_engine_api::{Entry, Flags, ToolCall, Transcript};

use super::commands::command_argument;
use super::find_call;
use super::outcomes::outcome;
use ctxhost_text::truncate::{clip, one_line};

/// Length of one argument in a line, in weighted characters: a path or a command.
const ARGUMENT_CHARS: u64 = 100;

// Argument names differ between agents. A line lists patterns, then commands, then places.
const PATTERNS: [&str; 3] = ["pattern", "query", "regex"];
const PLACES: [&str; 4] = ["path", "file_path", "filePath", "url"];

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
    let mut add = |value: Option<String>, quote: &str| {
        let value = value.map(|value| one_line(&value)).filter(|value| !value.is_empty());
        words.extend(value.map(|value| format!("{quote}{}{quote}", clip(&value, ARGUMENT_CHARS))));
    };
    add(call.string_argument(&PATTERNS), "\"");
    add(command_argument(call), "");
    add(call.string_argument(&PLACES), "");
    let offset = call.arguments_value().get("offset").and_then(|value| value.as_u64());
    words.extend(offset.filter(|offset| *offset > 1).map(|offset| format!("from line {offset}")));
    words.join(" ")
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
    fn a_line_names_tool_subject_outcome_and_size() {
        let grep = ("grep", r#"{"path":"src","pattern":"fn main"}"#);
        check(grep, "a\nb\n", false, r#"grep "fn main" src -> ok, 2 lines, 4 chars"#);
        let read = ("read", r#"{"path":"a.rs","offset":40,"limit":9}"#);
        check(read, "x", false, "read a.rs from line 40 -> ok, 1 line, 1 chars");
        let bash = ("bash", r#"{"command":"cargo  test\n-q"}"#);
        let shell = ("shell", r#"{"command":["bash","-lc","make"]}"#);
        let json = r#"{"output":"no","metadata":{"exit_code":2}}"#;
        check(shell, json, false, "shell make -> exit code 2, 1 line, 42 chars");
        let text = "error\n\nCommand exited with code 101";
        check(bash, text, true, "bash cargo test -q -> exit code 101, 3 lines, 35 chars");
        check(("edit", "{}"), "no match", true, "edit -> error, 1 line, 8 chars");
    }
}
