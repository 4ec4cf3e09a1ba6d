//! Errors that an output prints without an exit code or a flag.

use std::sync::LazyLock;

use ctxhost_engine_api::{Entry, Role};
use regex::Regex;

use crate::files::FileOperation;
use ctxhost_text::redact::redact;
use ctxhost_text::truncate::{clip, head_and_tail, one_line};

/// Weighted characters read at each end of an output.
const READ_CHARS: u64 = 8_000;

/// A line that states an error: by its first word, or by a level that logs have for nothing else.
const ERROR_PATTERN: &str = concat!(
    r"(?m)^(?i:error|fatal|panic|exception|fehler|erreur|ошибка|错误|錯誤|エラー|오류)\b[^\n]*|^[A-Z]\w*(?:Error|Exception): [^\n]*",
    r"|^[^\n]*\b(?:FATAL|PANIC|CRITICAL)\b[^\n]*|^[\w./-]+: [^\n]*(?:[Pp]ermission denied|[Nn]o such file or directory|command not found|[Cc]onnection refused)[^\n]*",
);

static ERROR: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(ERROR_PATTERN).ok());

/// The first error in the output of a command, on one line of at most `limit_chars` weighted characters. A file that
/// was read or changed has words of errors as its content.
pub fn error_line(result: &Entry<'_>, limit_chars: u64) -> Option<String> {
    let tool = result.tool_result().filter(|_| result.role() == Role::Tool)?.tool;
    if FileOperation::of_tool(&tool).is_some() {
        return None;
    }
    let text = head_and_tail(result.text(), READ_CHARS, READ_CHARS, "\n\n");
    let line = ERROR.as_ref()?.find(&text)?.as_str();
    let line = clip(&one_line(&redact(line)), limit_chars).into_owned();
    Some(if tool.is_empty() { line } else { format!("{}: {line}", redact(&tool)) })
}

#[cfg(test)]
mod tests {
    use ctxhost_engine_api::testing::TranscriptBuilder;

    use super::*;

    fn line_of(tool: &str, text: &str) -> Option<String> {
        let mut talk = TranscriptBuilder::new();
        talk.user("go").calls(&[("1", tool, "{}")]).result("1", tool, text);
        let transcript = talk.transcript();
        let result = transcript.get(2)?;
        error_line(&result, 120)
    }

    #[test]
    fn an_error_in_an_output_is_a_line() {
        for (text, line) in [
            (
                "Error from server (Forbidden): no jobs\n",
                "bash: Error from server (Forbidden): no jobs",
            ),
            (
                "09:11 INFO ok\n09:12 ERROR svc FATAL: no slots\n",
                "bash: 09:12 ERROR svc FATAL: no slots",
            ),
            ("Traceback:\nValueError: 12 is odd", "bash: ValueError: 12 is odd"),
            (
                "cat: a.txt: No such file or directory",
                "bash: cat: a.txt: No such file or directory",
            ),
        ] {
            assert_eq!(line_of("bash", text).as_deref(), Some(line));
        }
    }

    #[test]
    fn a_file_and_an_output_that_speaks_of_errors_have_none() {
        assert_eq!(line_of("read", "Error: this is a string of the file"), None);
        assert_eq!(
            line_of("bash", "0 errors\n    raise ValueError: no\nerrors_test.py PASSED"),
            None
        );
    }
}
