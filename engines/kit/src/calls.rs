//! Tool calls and their results: matching, one-line descriptions, failures and shortened arguments.

mod arguments;
mod failures;
mod line;

use ctxhost_engine_api::{Entry, ToolCall, Transcript};

pub use arguments::{SHORT_ARGUMENT_BYTES, for_each_argument_text, shorten_arguments};
pub use failures::{OpenFailure, open_failures, render_failure_line};
pub use line::{command_argument, describe_call, failure_status, has_failed, render_result_line};

/// Returns the call that a result answers.
pub fn find_call<'a>(transcript: &'a Transcript, result: &Entry<'_>) -> Option<ToolCall<'a>> {
    let head = result.tool_result()?;
    let earlier = transcript.range(result.frame()..result.seq()).rev();
    earlier.flat_map(|entry| entry.tool_calls()).find(|call| call.id == head.call_id)
}

/// Returns the result that answers a call of an entry.
pub fn find_result<'a>(
    transcript: &'a Transcript,
    entry: &Entry<'_>,
    call: &ToolCall<'_>,
) -> Option<Entry<'a>> {
    let after = entry.seq() + 1;
    let answers =
        |result: &Entry<'_>| result.tool_result().is_some_and(|head| head.call_id == call.id);
    transcript.range(after..transcript.cut_at_or_after(after)).find(answers)
}

#[cfg(test)]
mod tests {
    use ctxhost_engine_api::testing::TranscriptBuilder;

    use super::*;

    #[test]
    fn calls_and_results_find_each_other() {
        let mut talk = TranscriptBuilder::new();
        talk.user("go").calls(&[("a", "read", "{}"), ("b", "ls", "{}")]);
        talk.result("b", "ls", "files").calls(&[("c", "ls", "{}")]).result("unknown", "ls", "lost");
        let transcript = talk.transcript();
        let at = |seq| transcript.get(seq).unwrap();
        assert_eq!(find_call(&transcript, &at(2)).unwrap().id, "b");
        let calls = at(1).tool_calls();
        assert!(find_result(&transcript, &at(1), &calls[0]).is_none());
        assert_eq!(find_result(&transcript, &at(1), &calls[1]).unwrap().seq(), 2);
        assert!(find_call(&transcript, &at(4)).is_none());
    }
}
