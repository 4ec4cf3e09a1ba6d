//! Recognizes tool results that clients with a text protocol send as text of the user.

use super::patterns::CODE;

/// A form of tool results in user text.
#[derive(Clone, Copy, Debug)]
struct OutputPattern {
    /// The clients that send it.
    client: &'static str,
    /// Where it was seen.
    source: &'static str,
    form: OutputForm,
}

/// How a tool result is found at the start of a text. Each form is as much of the client's own frame as it takes to tell
/// a result from a text of the user.
#[derive(Clone, Copy, Debug)]
enum OutputForm {
    /// A text with this prefix.
    Prefix(&'static str),
    /// A text with this prefix, and this text after it.
    Framed(&'static str, &'static str),
    /// From a prefix up to a line that starts the next request, or to the end.
    Until(&'static str, &'static str),
    /// From a prefix up to a text that must follow.
    Enclosed(&'static str, &'static str),
    /// A line with this text, and the lines behind it that begin with one of these.
    Lines(&'static str, &'static [&'static str]),
    /// Elements with these names, the first one first.
    Elements(&'static [&'static str]),
    /// A first line with this start and end around a name or number. The result follows it, in this block or in the next one.
    Header(&'static str, &'static str),
    /// The same around a call of a tool.
    CallHeader(&'static str, &'static str),
}

use OutputForm::{CallHeader, Elements, Enclosed, Framed, Header, Lines, Prefix, Until};

const fn row(client: &'static str, form: OutputForm) -> OutputPattern {
    OutputPattern { client, source: CODE, form }
}

/// The end of smolagents' error messages.
const RETRY: &str = "Now let's retry: take care not to repeat previous errors! If you have retried \
                     several times, try a completely different approach.";

/// What people begin a message with as well: only behind an answer that called a tool it is a result.
const OBSERVATION: &str = "Observation:";
const SWE_OBSERVATION: &str = "OBSERVATION:\n";

/// How answers of text protocols call a tool, at the beginning of a line.
const TEXT_CALLS: [&str; 5] = ["Action:", "Action Input:", "Calling tools:", "Code:", "<code>"];
/// The same in SWE-agent's.
const SWE_CALL: &str = "```";

/// All forms, by client. smolagents and Open Interpreter join neighbouring messages of one role, so a request may follow.
const TABLE: &[OutputPattern] = &[
    row("smolagents, LangChain, LlamaIndex", Until(OBSERVATION, "New task:")),
    row("smolagents", Enclosed("Error:\n", RETRY)),
    row("smolagents", Enclosed("Call id: ", RETRY)),
    row("smolagents", Enclosed("Now proceed and carry out this plan.", "")),
    row("LangChain", Framed("TOOL RESPONSE:", "\nUSER'S INPUT\n-----")),
    row("SWE-agent", Prefix(SWE_OBSERVATION)),
    row(
        "SWE-agent",
        Lines(
            "Your command ran successfully and did not produce any output.",
            &["(Open file: ", "(Current directory: ", "bash-$"],
        ),
    ),
    row(
        "mini-swe-agent",
        Elements(&[
            "returncode",
            "exception",
            "warning",
            "output",
            "output_head",
            "elided_chars",
            "output_tail",
        ]),
    ),
    row("OpenHands", Header("EXECUTION RESULT of [", "]:")),
    row(
        "OpenHands",
        Prefix(concat!(
            "Please continue working on the task on whatever approach you think is suitable.\n",
            "If you think you have ",
        )),
    ),
    row(
        "OpenHands",
        Prefix(concat!(
            "Please continue working on the task on whatever approach you think is suitable.\n",
            "When you think you have ",
        )),
    ),
    row("Cline, Roo Code, Kilo Code", CallHeader("[", "] Result:")),
    row(
        "Cline, Roo Code, Kilo Code",
        Enclosed(
            "[ERROR] You did not use a tool in your previous response!",
            "(This is an automated message, so do not respond to it conversationally.)",
        ),
    ),
    row("AutoGen", Header("exitcode: ", " (execution succeeded)")),
    row("AutoGen", Header("exitcode: ", " (execution failed)")),
    row("AutoGPT", Enclosed("Determine exactly one command to use", "specified previously:")),
    row("AutoGPT", Enclosed("Determine exactly one command to use", "specified above:")),
    row("aider", Framed("I ran this command:\n\n", "\n\nAnd got this output:")),
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

/// Whether a text with tool results is one of the user unless an answer before it [called a tool](calls_in_text).
pub fn needs_answer(text: &str) -> bool {
    let text = super::user_text(text);
    text.starts_with(OBSERVATION) || text.starts_with(SWE_OBSERVATION)
}

/// Whether an answer calls the tool whose result a text is.
pub fn calls_in_text(answer: &str, result: &str) -> bool {
    let is_swe = super::user_text(result).starts_with(SWE_OBSERVATION);
    answer.lines().map(str::trim_start).any(|line| {
        TEXT_CALLS.iter().any(|call| line.starts_with(call)) || is_swe && line.starts_with(SWE_CALL)
    })
}

impl OutputForm {
    fn find_in(self, text: &str) -> Option<ToolOutput<'_>> {
        match self {
            Prefix(start) => {
                text.starts_with(start).then_some(ToolOutput { rest: "", is_header: false })
            }
            Framed(start, end) => {
                let is_framed = text.strip_prefix(start).is_some_and(|after| after.contains(end));
                is_framed.then_some(ToolOutput { rest: "", is_header: false })
            }
            Lines(first, starts) => {
                let mut rest = text.strip_prefix(first)?.trim_start();
                while starts.iter().any(|start| rest.starts_with(start)) {
                    rest = rest.split_once('\n').map_or("", |(_, rest)| rest).trim_start();
                }
                Some(ToolOutput { rest, is_header: false })
            }
            Elements(names) => {
                let mut rest = without_element(text, names.first()?)?;
                while let Some(next) = names.iter().find_map(|name| without_element(rest, name)) {
                    rest = next;
                }
                Some(ToolOutput { rest, is_header: false })
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
            Header(start, end) => find_header(text, start, end, |name| {
                name.starts_with(|first: char| {
                    first.is_ascii_lowercase() || first.is_ascii_digit() || first == '-'
                })
            }),
            CallHeader(start, end) => find_header(text, start, end, |call| {
                let tool = call.split(' ').next().unwrap_or_default();
                let is_tool = tool.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
                let is_users = USER_TOOLS.contains(&tool);
                is_tool && !is_users && (tool.contains('_') || call.contains(" for '"))
            })
            .filter(|_| !text.contains(FEEDBACK)),
        }
    }
}

/// A result below a line with a name.
fn find_header<'a>(
    text: &'a str,
    start: &str,
    end: &str,
    is_name: impl Fn(&str) -> bool,
) -> Option<ToolOutput<'a>> {
    let (line, after) = text.split_once('\n').unwrap_or((text, ""));
    let name = line.trim_end().strip_prefix(start)?.strip_suffix(end)?;
    is_name(name).then(|| ToolOutput { rest: "", is_header: after.trim().is_empty() })
}

/// The text behind an element at the start of a text.
fn without_element<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let after = text.strip_prefix('<')?.strip_prefix(name)?.strip_prefix('>')?;
    // The last end: the result may have another one in it.
    let (_, rest) = after.rsplit_once(&format!("</{name}>"))?;
    Some(rest.trim_start())
}

#[cfg(test)]
mod tests {
    use super::super::has_request;
    use super::*;

    /// Messages as the clients write them, with our own results in them.
    const OUTPUTS: [&str; 18] = [
        "Observation:\npart 1 says so",
        "Your command ran successfully and did not produce any output.\n(Open file: n/a)\n(Current directory: /w)\nbash-$",
        "<returncode>0</returncode>\n<warning>\nlong\n</warning><output_head>\na</output>\n</output_head>\n<elided_chars>\n9 characters elided\n</elided_chars>\n<output_tail>\nb\n</output_tail>",
        "[use_mcp_tool for 'search'] Result:\nnone",
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
        let retry = OUTPUTS[5].trim();
        for text in [
            "Observation:\ndone 9\nNew task:\nMend the parser.".to_owned(),
            format!("{retry}\nNew task:\nMend the parser."),
            format!("Observation:\ndone 9\n{retry}\nNew task:\nMend the parser."),
            format!("{}\nMend the parser.", OUTPUTS[17]),
            format!("{}\nMend the parser.", OUTPUTS[1]),
            format!("{}\nMend the parser.", OUTPUTS[2]),
            "Now proceed and carry out this plan. Mend the parser.".to_owned(),
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
            "I ran this command:\n\nmake test\n\nand it works. Always use port 5433.",
            "[note] Result:\nAlways use port 5433.",
            "TOOL RESPONSE: shorten it to one line, always.",
            "<returncode> should be an element. Always write it.",
            "EXECUTION RESULT of [1]: never trust it.",
            "Please continue working on the task on whatever approach you think is best, but use port 5433.",
            "Determine exactly one command to use for the migration. Never restart db-3.",
            "[ERROR] You did not use a tool in your previous answer. Always use port 5433.",
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
