//! Recognizes tool results that clients with a text protocol send as text of the user.

use super::CODE;

/// A form of tool results in user text.
#[derive(Clone, Copy, Debug)]
struct OutputPattern {
    /// The clients that send it.
    client: &'static str,
    /// Where it was seen.
    source: &'static str,
    form: OutputForm,
}

/// How a tool result is found at the start of a text.
#[derive(Clone, Copy, Debug)]
enum OutputForm {
    /// A text with this prefix.
    Prefix(&'static str),
    /// From a prefix up to a line that starts the next request, or to the end.
    Until(&'static str, &'static str),
    /// From a prefix up to a text that must follow.
    Enclosed(&'static str, &'static str),
    /// A first line with this start and end. The result follows it, in this block or in the next one.
    Header(&'static str, &'static str),
}

use OutputForm::{Enclosed, Header, Prefix, Until};

const fn row(client: &'static str, form: OutputForm) -> OutputPattern {
    OutputPattern { client, source: CODE, form }
}

/// The end of smolagents' error messages.
const RETRY: &str = "Now let's retry: take care not to repeat previous errors! If you have retried \
                     several times, try a completely different approach.";

/// All forms, by client. smolagents and Open Interpreter join neighbouring messages of one role, so a request may follow.
const TABLE: &[OutputPattern] = &[
    row("smolagents, LangChain, LlamaIndex", Until("Observation:", "New task:")),
    row("smolagents", Enclosed("Error:\n", RETRY)),
    row("smolagents", Enclosed("Call id: ", RETRY)),
    row("smolagents", Enclosed("Now proceed and carry out this plan.", "")),
    row("LangChain", Prefix("TOOL RESPONSE:")),
    row("SWE-agent", Prefix("OBSERVATION:\n")),
    row("SWE-agent", Prefix("Your command ran successfully and did not produce any output.")),
    row("mini-swe-agent", Prefix("<returncode>")),
    row("OpenHands", Prefix("EXECUTION RESULT of [")),
    row("OpenHands", Prefix("Please continue working on the task on whatever approach you think")),
    row("Cline, Roo Code, Kilo Code", Header("[", "] Result:")),
    row("Cline, Roo Code, Kilo Code", Prefix("[ERROR] You did not use a tool in your previous")),
    row("AutoGen", Header("exitcode: ", " (execution succeeded)")),
    row("AutoGen", Header("exitcode: ", " (execution failed)")),
    row("AutoGPT", Prefix("Determine exactly one command to use")),
    row("aider", Prefix("I ran this command:\n\n")),
    row(
        "Open Interpreter",
        Enclosed("Code output: ", "what's next (if anything, or are we done)?"),
    ),
    row(
        "Open Interpreter",
        Enclosed(
            "The code above was executed on my machine. It produced no text output.",
            "what's next (if anything, or are we done)?",
        ),
    ),
];

/// Tools of Cline and its relatives whose result is an answer of the user.
const USER_TOOLS: [&str; 4] =
    ["ask_followup_question", "attempt_completion", "plan_mode_respond", "new_task"];

/// What a user writes when refusing a tool call of these clients, or beside its result.
const FEEDBACK: &str = "<feedback>";

/// Tool results at the start of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ToolOutput<'a> {
    /// The text after them.
    pub(super) rest: &'a str,
    /// Whether the text is only the line above a result.
    pub(super) is_header: bool,
}

/// The clients with known forms, and their source.
pub(super) fn known_clients() -> impl Iterator<Item = (&'static str, &'static str)> {
    TABLE.iter().map(|row| (row.client, row.source))
}

/// The tool results at the start of a trimmed text; `None` if it starts with something else.
pub(super) fn find(text: &str) -> Option<ToolOutput<'_>> {
    let mut found: Option<ToolOutput<'_>> = None;
    loop {
        let rest = found.map_or(text, |found| found.rest);
        let Some(next) = TABLE.iter().find_map(|row| row.form.find_in(rest)) else { return found };
        found = Some(next);
    }
}

impl OutputForm {
    fn find_in(self, text: &str) -> Option<ToolOutput<'_>> {
        match self {
            Prefix(start) => {
                text.starts_with(start).then_some(ToolOutput { rest: "", is_header: false })
            }
            Until(start, next) => {
                let after = text.strip_prefix(start)?;
                let is_line = |at: &usize| after.get(..*at).is_some_and(|it| it.ends_with('\n'));
                let mut lines = after.match_indices(next).map(|(at, _)| at).filter(is_line);
                let request = lines.next().and_then(|at| after.get(at..));
                Some(ToolOutput { rest: request.unwrap_or_default(), is_header: false })
            }
            Enclosed(start, end) => {
                let (_, rest) = text.strip_prefix(start)?.split_once(end)?;
                Some(ToolOutput { rest: rest.trim(), is_header: false })
            }
            Header(start, end) => {
                let (line, after) = text.split_once('\n').unwrap_or((text, ""));
                let name = line.trim_end().strip_prefix(start)?.strip_suffix(end)?;
                let is_name = name.starts_with(|first: char| {
                    first.is_ascii_lowercase() || first.is_ascii_digit() || first == '-'
                });
                let is_users = USER_TOOLS.iter().any(|tool| name.starts_with(tool));
                let is_result = is_name && !is_users && !after.contains(FEEDBACK);
                let is_header = after.trim().is_empty();
                is_result.then_some(ToolOutput { rest: "", is_header })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::has_request;
    use super::*;

    /// Messages as the clients write them, with our own results in them.
    const OUTPUTS: [&str; 15] = [
        "Observation:\npart 1 says so",
        "Observation: 42",
        "Error:\nno such file\nNow let's retry: take care not to repeat previous errors! If you have retried several times, try a completely different approach.\n",
        "Call id: call_1\nError:\nno such file\nNow let's retry: take care not to repeat previous errors! If you have retried several times, try a completely different approach.\n",
        "TOOL RESPONSE: \n---------------------\n42\n\nUSER'S INPUT\n--------------------\n\nOkay, so what is the response to my last comment?",
        "OBSERVATION:\ntotal 0",
        "Your command ran successfully and did not produce any output.",
        "<returncode>0</returncode>\n<output>\ntotal 0\n</output>",
        "EXECUTION RESULT of [execute_bash]:\n/workspace",
        "[read_file for 'src/lib.rs'] Result:\nfn main() {}",
        "[list_files for 'src'] Result:\nNo files found.\n<environment_details>\n# Open tabs\n</environment_details>",
        "exitcode: 0 (execution succeeded)\nCode output: 42",
        "exitcode: 124 (execution failed)\nCode output: timeout",
        "I ran this command:\n\ncargo test\n\nAnd got this output:\n\nok",
        "Code output: 42\n\nWhat does this output mean / what's next (if anything, or are we done)?",
    ];

    #[test]
    fn tool_results_as_user_text_are_no_requests() {
        for text in OUTPUTS {
            assert!(!has_request([text], false), "{text}");
            assert!(!has_request([text], true), "with an image: {text}");
        }
        // Cline's older form has the result in a block of its own.
        let blocks = ["[read_file for 'src/lib.rs'] Result:", "fn main() {}"];
        assert!(!has_request(blocks, false));
        assert!(has_request([&blocks[..], &["Mend the parser."]].concat(), false));
    }

    #[test]
    fn a_request_behind_a_result_is_one() {
        let retry = OUTPUTS[2].trim();
        for text in [
            "Observation:\ndone 9\nNew task:\nMend the parser.".to_owned(),
            format!("{retry}\nNew task:\nMend the parser."),
            format!("Observation:\ndone 9\n{retry}\nNew task:\nMend the parser."),
            format!("{}\nMend the parser.", OUTPUTS[14]),
        ] {
            let output = find(&text).unwrap();
            assert!(output.rest.ends_with("Mend the parser."), "{output:?}");
            assert!(has_request([&*text], false), "{text}");
        }
    }

    #[test]
    fn text_of_a_user_is_no_tool_result() {
        for text in [
            "Mend the parser.",
            "My observation: the parser is slow.",
            "Error:\nthe parser panics. Mend it.",
            "[ask_followup_question for 'Which file?'] Result:\n<answer>\nsrc/lib.rs\n</answer>",
            "[execute_command for 'rm x'] Result:\nThe user denied this operation.\n<feedback>\nNever delete.\n</feedback>",
            "[1] Result: none",
            "Result:\n42",
            "Code output: why is it 42?",
        ] {
            assert_eq!(find(text), None, "{text}");
            assert!(has_request([text], false), "{text}");
        }
    }

    #[test]
    fn long_results_are_read_in_time() {
        let begun = std::time::Instant::now();
        for part in ["Observation:\n", "New task:", "Error:\n", "[x] Result:\n"] {
            let _ = has_request([&*part.repeat(200_000)], false);
        }
        assert!(begun.elapsed() < std::time::Duration::from_secs(2), "{:?}", begun.elapsed());
    }
}
