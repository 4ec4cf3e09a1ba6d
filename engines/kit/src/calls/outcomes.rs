//! How a call ended: its exit code, by its details, by an output in JSON, or by its text.

use std::borrow::Cow;
use std::sync::LazyLock;

use ctxhost_engine_api::{Entry, EntryKind, Flags, Role};
use regex::Regex;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use ctxhost_text::truncate::{prefix, suffix};

/// The ends of an output that are searched for an exit code, in weighted characters.
const EXIT_CODE_CHARS: u64 = 400;
/// The line after which Codex prints the output; the exit code is before it.
const OUTPUT: &str = "\nOutput:";

static EXIT_CODE: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(r"(?i)\bexit(?:ed)?(?: with)?(?: code| status)?:? (\d{1,3})\b").ok()
});

/// Whether an entry is the result of a failed call: flagged, or with an exit code other than 0.
pub fn has_failed(entry: &Entry<'_>) -> bool {
    let is_result = entry.role() == Role::Tool || entry.kind() == EntryKind::Bash;
    let names_failure = || {
        let outcome = TextOutcome::of(entry);
        outcome.is_error || outcome.exit_code.is_some_and(|code| code != "0")
    };
    is_result && (entry.has(Flags::ERROR) || names_failure())
}

/// How a call or command failed: `exit 101`, `failed`, `cancelled`; `None` if it did not.
pub fn failure_status(entry: &Entry<'_>) -> Option<String> {
    let details = ExitDetails::of(entry);
    let text = TextOutcome::of(entry);
    // Structured details are more reliable than the text.
    let code = details.exit_code().or(text.exit_code);
    match code.filter(|code| code != "0") {
        Some(code) => Some(format!("exit {code}")),
        None if details.is_cancelled() => Some("cancelled".into()),
        None if text.is_error || entry.has(Flags::ERROR) => Some("failed".into()),
        None => None,
    }
}

/// The outcome as a line of an old result names it: `exit code 101`, `error`, `ok`.
pub(super) fn outcome(entry: &Entry<'_>) -> String {
    let text = TextOutcome::of(entry);
    match text.exit_code {
        Some(code) => format!("exit code {code}"),
        None if text.is_error || entry.has(Flags::ERROR) => "error".into(),
        None => "ok".into(),
    }
}

/// What a call printed: of an output in JSON, as Codex returns it, the text in it.
pub fn printed_text<'a>(entry: &Entry<'a>) -> Cow<'a, str> {
    let output = JsonOutput::parse(entry.text()).filter(JsonOutput::has_outcome);
    match output.and_then(|output| output.output?.as_str().map(str::to_owned)) {
        Some(output) => Cow::Owned(output),
        None => Cow::Borrowed(entry.text()),
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
        code(self.exit_code.as_ref()).or_else(|| code(self.status.as_ref()))
    }

    fn is_cancelled(&self) -> bool {
        let status = self.status.as_ref().and_then(Value::as_str).unwrap_or("");
        let words = ["cancelled", "canceled", "aborted", "timeout"];
        self.cancelled == Some(true) || words.contains(&status.to_lowercase().as_str())
    }
}

/// An outcome read from the text of a result.
#[derive(Debug, Default)]
struct TextOutcome {
    exit_code: Option<String>,
    is_error: bool,
}

impl TextOutcome {
    fn of(entry: &Entry<'_>) -> TextOutcome {
        match JsonOutput::parse(entry.text()).filter(JsonOutput::has_outcome) {
            Some(json) => TextOutcome { exit_code: json.exit_code(), is_error: json.is_error() },
            None => TextOutcome { exit_code: exit_code(entry.text()), is_error: false },
        }
    }
}

/// An output in JSON: `{"output": "...", "metadata": {"exit_code": 101}}`.
// A value of another type is an output that only looks alike, so every field takes any value.
#[derive(Default, Deserialize)]
struct JsonOutput {
    output: Option<Value>,
    #[serde(alias = "exitCode")]
    exit_code: Option<Value>,
    #[serde(alias = "isError")]
    is_error: Option<Value>,
    metadata: Option<Value>,
}

impl JsonOutput {
    fn parse(text: &str) -> Option<JsonOutput> {
        let text = text.trim();
        // Most outputs are no JSON and cost no parsing.
        let names_outcome = || {
            let fields = ["exit_code\"", "exitCode\"", "is_error\"", "isError\""];
            fields.iter().any(|field| text.contains(field))
        };
        let is_object = text.starts_with('{') && text.ends_with('}');
        (is_object && names_outcome()).then(|| serde_json::from_str(text).ok()).flatten()
    }

    fn has_outcome(&self) -> bool {
        self.exit_code().is_some() || self.is_error.as_ref().is_some_and(Value::is_boolean)
    }

    fn exit_code(&self) -> Option<String> {
        let in_metadata = self.metadata.as_ref().and_then(|metadata| {
            ["exit_code", "exitCode"].iter().find_map(|name| metadata.get(*name))
        });
        code(self.exit_code.as_ref()).or_else(|| code(in_metadata))
    }

    fn is_error(&self) -> bool {
        self.is_error.as_ref().and_then(Value::as_bool).unwrap_or(false)
    }
}

/// An exit code; a negative one stands for a signal.
fn code(value: Option<&Value>) -> Option<String> {
    value.and_then(Value::as_i64).map(|code| code.to_string())
}

fn exit_code(text: &str) -> Option<String> {
    // Shell tools append the exit code, or print it before the output; searching all of it would
    // match quoted text.
    let head = prefix(text, EXIT_CODE_CHARS, 1).split_once(OUTPUT).map(|(head, _)| head);
    let searched = [head, Some(suffix(text, EXIT_CODE_CHARS, 1))];
    searched.into_iter().flatten().find_map(|part| {
        let found = EXIT_CODE.as_ref()?.captures_iter(part).last()?;
        Some(found.get(1)?.as_str().to_owned())
    })
}

#[cfg(test)]
mod tests {
    use ctxhost_engine_api::testing::TranscriptBuilder;

    use super::*;

    fn status(text: &str) -> (bool, Option<String>) {
        let mut talk = TranscriptBuilder::new();
        talk.calls(&[("a", "shell", "{}")]).result("a", "shell", text);
        let transcript = talk.transcript();
        let entry = transcript.get(1).unwrap();
        (has_failed(&entry), failure_status(&entry))
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
    }

    #[test]
    fn an_exit_code_in_json_or_before_the_output_counts() {
        let long = "x ".repeat(2_000);
        let header = format!("Exit code: 101\nWall time: 1 seconds\nOutput:\n{long}");
        let quoting = "Process exited with code 0\nOutput:\nsee exit code 3";
        for (text, expected) in [
            (
                r#"{"output":"no","metadata":{"exit_code":101,"duration_seconds":0.1}}"#,
                Some("exit 101"),
            ),
            (r#"{"output":"exit code 3","metadata":{"exit_code":0}}"#, None),
            (r#"{"stdout":"no","exit_code":1}"#, Some("exit 1")),
            (r#" {"exitCode":-9} "#, Some("exit -9")),
            (r#"{"is_error":true,"output":"no"}"#, Some("failed")),
            (r#"{"isError":false,"content":[]}"#, None),
            (r#"{"metadata":"exit_code\""}"#, None),
            (r#"{"metadata":["a"],"exit_code":null}"#, None),
            (r#"{"name":"exit_code"}"#, None),
            (header.as_str(), Some("exit 101")),
            (quoting, None),
        ] {
            let found = status(text);
            assert_eq!(found.1.as_deref(), expected, "{text}");
            assert_eq!(found.0, expected.is_some(), "{text}");
        }
    }

    #[test]
    fn the_printed_text_is_that_in_the_json() {
        for (text, printed) in [
            (r#"{"output":"a\nb","metadata":{"exit_code":1}}"#, "a\nb"),
            (r#"{"output":"a"}"#, r#"{"output":"a"}"#),
            ("plain", "plain"),
        ] {
            let mut talk = TranscriptBuilder::new();
            talk.calls(&[("a", "shell", "{}")]).result("a", "shell", text);
            assert_eq!(printed_text(&talk.transcript().get(1).unwrap()), printed);
        }
    }
}
