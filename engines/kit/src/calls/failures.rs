//! Calls that failed and did not succeed in a later attempt.

use std::ops::Range;

use ctxhost_engine_api::transcript::open_calls::OpenCalls;
use ctxhost_engine_api::{Entry, Transcript};

use super::{describe_call, failure_status, has_failed, printed_text};
use ctxhost_text::redact::redact;
use ctxhost_text::truncate::{clip, one_line, prefix};

/// Weighted characters read of an output.
// Redaction time grows with the length, and only one line is rendered.
const READ_CHARS: u64 = 4_000;

/// A failure without a later success.
#[derive(Clone, Debug)]
pub struct OpenFailure<'a> {
    /// The call, as rendered by [`describe_call`].
    pub call: String,
    /// Its result.
    pub result: Entry<'a>,
}

/// The open failures of ranges, oldest first; of equal calls only the newest.
pub fn open_failures<'a>(
    transcript: &'a Transcript,
    ranges: &[Range<u64>],
) -> Vec<OpenFailure<'a>> {
    let mut calls = OpenCalls::default();
    let mut open: Vec<OpenFailure<'a>> = Vec::new();
    for entry in ranges.iter().flat_map(|range| transcript.range(range.clone())) {
        // Call ids may repeat in later turns, so only the calls of the current frame count.
        if entry.is_cut_point() {
            calls = OpenCalls::default();
            let called = entry.tool_calls().into_iter();
            calls.open(called.map(|call| (call.id.to_string(), describe_call(&call))));
        }
        let Some(result) = entry.tool_result() else { continue };
        let Some(call) = calls.take(&result.call_id) else { continue };
        // The same call was tried again: only its newest outcome counts.
        open.retain(|earlier| earlier.call != call);
        if has_failed(&entry) {
            open.push(OpenFailure { call, result: entry });
        }
    }
    open
}

/// Renders a failure on one line: the call, its exit code if known, and at most `limit_chars`
/// weighted characters of redacted output.
pub fn render_failure_line(call: &str, result: &Entry<'_>, limit_chars: u64) -> String {
    // A bare `failed` repeats the heading under which failures are listed.
    let status = failure_status(result).filter(|status| status != "failed");
    failure(call, status.as_deref(), &printed_text(result), limit_chars)
}

fn failure(call: &str, status: Option<&str>, text: &str, limit_chars: u64) -> String {
    let call = if call.trim().is_empty() { "tool" } else { call.trim() };
    let call = status.map_or(call.to_owned(), |status| format!("{call} ({status})"));
    let text = one_line(&redact(prefix(text, READ_CHARS, 1)));
    let text = if text.is_empty() { "failed (no output)".into() } else { text };
    format!("{}: {}", redact(&call), clip(&text, limit_chars))
}

#[cfg(test)]
mod tests {
    use ctxhost_engine_api::testing::TranscriptBuilder;

    use super::*;

    #[test]
    fn what_succeeded_later_is_no_failure_any_more() {
        let mut talk = TranscriptBuilder::new();
        let test = ("bash", r#"{"command":"cargo test"}"#);
        let lint = ("bash", r#"{"command":"lint"}"#);
        talk.user("go").calls(&[("a", test.0, test.1), ("b", lint.0, lint.1)]);
        talk.failure("a", "bash", "2 failed").failure("b", "bash", "first");
        talk.calls(&[("c", test.0, test.1), ("d", lint.0, lint.1)]);
        talk.result("c", "bash", "ok").failure("d", "bash", "second");
        let transcript = talk.transcript();
        let open = open_failures(&transcript, &[0..talk.len()]);
        let lines: Vec<_> =
            open.iter().map(|open| (open.call.as_str(), open.result.text())).collect();
        assert_eq!(lines, [("bash lint", "second")]);
        assert_eq!(open_failures(&transcript, &[0..4]).len(), 2);
    }

    #[test]
    fn a_command_in_a_list_that_failed_in_json_is_open() {
        let mut talk = TranscriptBuilder::new();
        talk.user("go").calls(&[("a", "shell", r#"{"command":["bash","-lc","cargo test"]}"#)]);
        talk.result("a", "shell", r#"{"output":"2 failed\nof 3","metadata":{"exit_code":101}}"#);
        let transcript = talk.transcript();
        let open = open_failures(&transcript, &[0..talk.len()]);
        let line = |open: &OpenFailure<'_>| render_failure_line(&open.call, &open.result, 80);
        let lines: Vec<_> = open.iter().map(line).collect();
        assert_eq!(lines, ["shell cargo test (exit 101): 2 failed of 3"]);
    }

    #[test]
    fn a_failure_is_rendered_on_one_line_without_secrets() {
        assert_eq!(failure("ls ", None, "no\nsuch file", 40), "ls: no such file");
        assert_eq!(failure("", Some("exit 2"), " \n", 40), "tool (exit 2): failed (no output)");
        let line = failure("login password=hunter2hunter2", None, "token=abcdef123456 went", 21);
        assert_eq!(line, "login password=[redacted:credential]: token=[redacted:cred…");
    }
}
