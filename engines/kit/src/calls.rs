//! Tool calls and their results: matching, one-line descriptions, failures and shortened arguments.

mod arguments;
mod commands;
mod failures;
mod line;
mod outcomes;

use ctxhost_engine_api::{Entry, ToolCall, Transcript};

pub use arguments::{SHORT_ARGUMENT_BYTES, for_each_argument_text, shorten_arguments};
pub use commands::command_argument;
pub use failures::{OpenFailure, open_failures, render_failure_line};
pub use line::{describe_call, render_result_line};
pub use outcomes::{failure_status, has_failed, printed_text};

/// Returns the call that a result answers.
pub fn find_call<'a>(transcript: &'a Transcript, result: &Entry<'_>) -> Option<ToolCall<'a>> {
    let id = result.tool_result()?.call_id;
    let mut earlier = transcript.range(result.frame()..result.seq()).rev();
    let (caller, mut calls) = earlier.find_map(|entry| {
        let mut calls = entry.tool_calls();
        calls.retain(|call| call.id == id);
        (!calls.is_empty()).then_some((entry.seq(), calls))
    })?;
    if calls.len() == 1 {
        return calls.pop();
    }
    // A model has used an id twice in one message: its results come in the order of its calls.
    let nth = transcript.range(caller..result.seq()).filter(|entry| answers(entry, &id)).count();
    calls.into_iter().nth(nth)
}

/// Returns the result that answers a call of an entry.
pub fn find_result<'a>(
    transcript: &'a Transcript,
    entry: &Entry<'_>,
    call: &ToolCall<'_>,
) -> Option<Entry<'a>> {
    let after = entry.seq() + 1;
    let calls = entry.tool_calls().into_iter().filter(|other| other.id == call.id);
    let nth = calls.take_while(|other| other != call).count();
    let results = transcript.range(after..transcript.cut_at_or_after(after));
    results.filter(|result| answers(result, &call.id)).nth(nth)
}

fn answers(entry: &Entry<'_>, call_id: &str) -> bool {
    entry.tool_result().is_some_and(|result| result.call_id == call_id)
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

    #[test]
    fn calls_of_one_id_have_its_results_in_order() {
        let mut talk = TranscriptBuilder::new();
        talk.calls(&[("a", "read", "{}"), ("a", "ls", "{}"), ("a", "read", "{}")]);
        talk.result("a", "read", "text").result("a", "ls", "files");
        let transcript = talk.transcript();
        let at = |seq| transcript.get(seq).unwrap();
        assert_eq!(find_call(&transcript, &at(1)).unwrap().name, "read");
        assert_eq!(find_call(&transcript, &at(2)).unwrap().name, "ls");
        let calls = at(0).tool_calls();
        let found = |nth: usize| find_result(&transcript, &at(0), &calls[nth]).map(|r| r.seq());
        assert_eq!([found(0), found(1)], [Some(1), Some(2)]);
    }
}
