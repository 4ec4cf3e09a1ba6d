//! Recognizes text in user messages that is not the user's: clients insert some, and some send tool results in it.
//!
//! A user message without any other text is not a request of the user: it is not pinned as the task and starts
//! no turn. A message with inserted text beside the user's is a request.

mod request_text;
pub mod tool_output;

use std::borrow::Cow;
use std::sync::LazyLock;

use aho_corasick::AhoCorasick;
use ctxhost_engine_api::{ContentBlock, Message};
use memchr::memmem;

pub use request_text::request_text;

/// A pattern of inserted text.
#[derive(Clone, Copy, Debug)]
struct InjectedPattern {
    /// The client that inserts it.
    client: &'static str,
    /// Where it was seen.
    source: &'static str,
    form: PatternForm,
}

/// How inserted text is found in a text block.
#[derive(Clone, Copy, Debug)]
enum PatternForm {
    /// From a start to an end marker, or to the end of the block.
    Between(&'static str, &'static str),
    /// An element with this name: `<name ...>` to `</name>`.
    Element(&'static str),
    /// A line with this prefix.
    Line(&'static str),
    /// An element with this name, if the block has another text of the client.
    // People use such names as well.
    ElementBeside(&'static str, &'static [&'static str]),
    /// A block with this prefix; the client's words after it have no fixed end.
    Opening(&'static str),
    /// This text at the start of a block.
    Sentence(&'static str),
    /// From a start of a block to a text that must follow.
    Enclosed(&'static str, &'static str),
    /// A block with exactly this text.
    Whole(&'static str),
    /// From this line to the end of the block.
    Tail(&'static str),
}

use PatternForm::{
    Between, Element, ElementBeside, Enclosed, Line, Opening, Sentence, Tail, Whole,
};

const WIRE: &str = "request bodies recorded in November 2026";
const CODE: &str = "the client's published source";

const fn row(client: &'static str, source: &'static str, form: PatternForm) -> InjectedPattern {
    InjectedPattern { client, source, form }
}

/// What Copilot writes beside its elements with common names.
const COPILOT: &[&str] = &[
    "<current_datetime>",
    "<environment_info>",
    "<editorContext>",
    "<reminderInstructions>",
    "<userRequest>",
];

/// All patterns, by client. Each has as many of the client's own words as it takes to tell them from a person's.
const TABLE: &[InjectedPattern] = &[
    row("Codex", WIRE, Element("environment_context")),
    row("Codex", CODE, Between("<user_instructions>\n\n", "</user_instructions>")),
    row("Codex", CODE, Between("# AGENTS.md instructions for ", "</INSTRUCTIONS>")),
    row("Codex", CODE, Element("recommended_plugins")),
    row("Codex", CODE, Between("<permissions instructions>", "</permissions instructions>")),
    row("Codex", CODE, Element("turn_aborted")),
    row("Codex", CODE, Element("subagent_notification")),
    // A command that the user ran in the client's shell, with its output.
    row("Codex", CODE, Element("user_shell_command")),
    row("Codex", CODE, Enclosed("# Context from my IDE setup:\n", "\n## My request for Codex:")),
    row("Claude Code, Qwen Code, opencode", WIRE, Element("system-reminder")),
    row("Claude Code", CODE, Element("local-command-caveat")),
    row("Claude Code", CODE, Element("local-command-stdout")),
    row("Claude Code", CODE, Element("local-command-stderr")),
    row("Claude Code", CODE, Element("bash-input")),
    row("Claude Code", CODE, Element("bash-stdout")),
    row("Claude Code", CODE, Element("bash-stderr")),
    row("Claude Code", CODE, Whole("[Request interrupted by user]")),
    row("Claude Code", CODE, Whole("[Request interrupted by user for tool use]")),
    // `/compact` and other commands of the program; arguments are what the user typed.
    row("Claude Code", CODE, Element("command-name")),
    row("Claude Code", CODE, Element("command-message")),
    row("Claude Code", CODE, Line("<command-args></command-args>")),
    row("Claude Code", CODE, Element("task-notification")),
    row("Claude Code", CODE, Element("ide_opened_file")),
    row("Claude Code", CODE, Element("ide_selection")),
    row("Claude Code", CODE, Enclosed(CAVEAT, "unless the user explicitly asks you to.")),
    row("Claude Code", CODE, Sentence(CAVEAT)),
    row(
        "OpenClaw",
        WIRE,
        Between("<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>", "<<<END_OPENCLAW_INTERNAL_CONTEXT>>>"),
    ),
    row("OpenClaw", CODE, Opening("OpenClaw runtime context (internal):")),
    row("OpenClaw", CODE, Opening("OpenClaw runtime context:\n")),
    row("OpenClaw", CODE, Opening("OpenClaw runtime event.\n")),
    row("OpenClaw", CODE, Line("System (untrusted):")),
    row("OpenClaw", WIRE, Line("Runtime: agent=")),
    row(
        "OpenClaw",
        CODE,
        Opening("Read HEARTBEAT.md if it exists (workspace context). Follow it strictly."),
    ),
    row(
        "OpenClaw",
        WIRE,
        Opening(
            "Continue the current task from the existing transcript, preserving completed work.",
        ),
    ),
    row("Cline", CODE, Element("environment_details")),
    row("Cline", WIRE, Element("SYSTEM_NOTICE")),
    row(
        "Gemini CLI",
        WIRE,
        Between("<session_context>\nThis is the Gemini CLI.", "</session_context>"),
    ),
    row(
        "Gemini CLI",
        CODE,
        Opening("This is the Gemini CLI. We are setting up the context for our chat."),
    ),
    row("Gemini CLI, Qwen Code", CODE, Between(REFERENCED_FILES, REFERENCED_FILES_END)),
    row(
        "Qwen Code",
        CODE,
        Opening("This is the Qwen Code. We are setting up the context for our chat."),
    ),
    row("Copilot", WIRE, Element("current_datetime")),
    row("Copilot", CODE, ElementBeside("reminder", COPILOT)),
    row("Copilot", CODE, Element("reminderInstructions")),
    row("Copilot", CODE, ElementBeside("context", COPILOT)),
    row("Copilot", CODE, Element("environment_info")),
    row("Copilot", CODE, Element("workspace_info")),
    row("Copilot", CODE, Element("editorContext")),
    // The user message that opencode sends before the summary of a compaction.
    row("opencode", WIRE, Whole("What did we do so far?")),
    row(
        "opencode",
        WIRE,
        Opening(concat!(
            "The previous request exceeded the provider's size limit due to large media attachments.",
            " The conversation was compacted",
        )),
    ),
    row("opencode", WIRE, Whole("Continue if you have next steps")),
    row(
        "opencode",
        WIRE,
        Sentence(
            "Continue if you have next steps, or stop and ask for clarification if you are unsure how to proceed.",
        ),
    ),
    row("aider", WIRE, Tail("To suggest changes to a file you MUST return the entire content")),
    row("aider", CODE, Tail("# *SEARCH/REPLACE block* Rules:")),
    row("aider", CODE, Tail("# File editing rules:\n\nReturn edits similar to unified diffs")),
    // aider puts an example conversation before the real one, and this message between them.
    row(
        "aider",
        WIRE,
        Sentence(
            "I switched to a new code base. Please don't consider the above files or try to edit them any longer.",
        ),
    ),
    row("aider", WIRE, Sentence("I am not sharing any files that you can edit yet.")),
    row("aider", WIRE, Sentence("I am not sharing the full contents of any files with you yet.")),
    row(
        "aider",
        CODE,
        Opening(
            "Here are summaries of some files present in my git repository.\nDo not propose changes to these files",
        ),
    ),
    row(
        "aider",
        CODE,
        Opening("I have *added these files to the chat* so you can go ahead and edit them."),
    ),
    // The user messages in its example conversations.
    row("aider", WIRE, Whole("Change the greeting to be more casual")),
    row("aider", CODE, Whole("Change get_factorial() to use math.factorial")),
    row("aider", CODE, Whole("Refactor hello() into its own file.")),
];

/// The beginning of Claude Code's note before the output of local commands.
const CAVEAT: &str =
    "Caveat: The messages below were generated by the user while running local commands.";

/// What Gemini CLI writes before the contents of files that a request names with `@`, and after them.
const REFERENCED_FILES: &str = "--- Content from referenced files ---";
const REFERENCED_FILES_END: &str = "--- End of content ---";

/// Finds the beginnings of all patterns in one pass: each user message is checked several times, and most have none.
static MARKERS: LazyLock<Option<AhoCorasick>> =
    LazyLock::new(|| AhoCorasick::new(TABLE.iter().map(|row| row.form.marker().into_owned())).ok());

/// Longest timestamp prefix of a message. OpenClaw writes `[Sun 2026-11-22 17:26 UTC] `.
const STAMP_MAX_BYTES: usize = 48;

/// The clients with known patterns, and their source.
pub fn known_clients() -> impl Iterator<Item = (&'static str, &'static str)> {
    let inserted = TABLE.iter().map(|row| (row.client, row.source));
    inserted.chain(tool_output::known_clients())
}

/// Whether a user message of these text blocks has a request of the user; `has_others` says that it has other content,
/// such as an image. A message without any content counts as one, as its client declares.
pub fn has_request<'a>(blocks: impl IntoIterator<Item = &'a str>, has_others: bool) -> bool {
    let (mut is_injected, mut is_result, mut is_result_next) = (false, false, false);
    for block in blocks.into_iter().filter(|block| !block.trim().is_empty()) {
        let text = user_text(block);
        let is_of_header = std::mem::take(&mut is_result_next);
        match tool_output::find(&text) {
            Some(output) if output.rest.is_empty() => {
                (is_result, is_result_next) = (true, output.is_header);
            }
            None if text.is_empty() => is_injected = true,
            // The result itself.
            None if is_of_header => {}
            _ => return true,
        }
    }
    // Images beside a tool result are results as well.
    !is_result && (has_others || !is_injected)
}

/// Whether a text is tool results that a client sends as text of the user.
pub fn is_tool_output(text: &str) -> bool {
    tool_output::find(text.trim()).is_some_and(|output| output.rest.is_empty())
}

/// A text block without inserted text, trimmed.
pub fn user_text(block: &str) -> Cow<'_, str> {
    let text = without_stamp(block.trim());
    if !has_marker(text) {
        return text.into();
    }
    let mut left = text.to_owned();
    for row in TABLE {
        row.form.remove_from(&mut left, text);
        if left.is_empty() {
            break;
        }
    }
    left.into()
}

fn has_marker(text: &str) -> bool {
    MARKERS.as_ref().is_none_or(|markers| markers.is_match(text))
}

/// Whether the blocks of this text may have inserted text. A false answer is certain.
fn may_have_injected(text: &str) -> bool {
    // Each block may begin with a timestamp.
    has_marker(text) || text.lines().any(|line| line.trim_start().starts_with('['))
}

/// Whether a user message contains inserted text only. An empty one counts as a message of the user, as its
/// client declares.
pub fn is_injected_message(message: &Message<'_>) -> bool {
    let texts = message.blocks.iter().filter_map(|block| match block {
        ContentBlock::Text(text) => Some(text.as_ref()),
        _ => None,
    });
    let has_others = message.blocks.iter().any(|block| !matches!(block, ContentBlock::Text(_)));
    !has_request(texts, has_others)
}

impl PatternForm {
    /// The text at the beginning of each match.
    fn marker(self) -> Cow<'static, str> {
        match self {
            Element(name) | ElementBeside(name, _) => format!("<{name}").into(),
            Between(start, _)
            | Enclosed(start, _)
            | Line(start)
            | Opening(start)
            | Sentence(start)
            | Whole(start)
            | Tail(start) => start.into(),
        }
    }

    /// Removes all matches from what is left of a trimmed block, and trims the rest.
    fn remove_from(self, left: &mut String, block: &str) {
        match self {
            Between(open, close) => remove_between(left, open, close, |_| true),
            Element(name) => remove_elements(left, name),
            ElementBeside(name, others) => {
                let is_beside =
                    |other: &&str| memmem::find(block.as_bytes(), other.as_bytes()).is_some();
                if others.iter().any(is_beside) {
                    remove_elements(left, name);
                }
            }
            Sentence(text) => {
                if let Some(rest) = left.strip_prefix(text) {
                    *left = rest.trim().to_owned();
                }
            }
            Enclosed(start, end) => {
                let rest = left.strip_prefix(start).and_then(|rest| rest.split_once(end));
                if let Some((_, rest)) = rest {
                    *left = rest.trim().to_owned();
                }
            }
            Line(start) => {
                if left.contains(start) {
                    let is_other = |line: &&str| !line.trim_start().starts_with(start);
                    let lines: Vec<&str> = left.lines().filter(is_other).collect();
                    *left = lines.join("\n").trim().to_owned();
                }
            }
            Opening(start) => {
                if left.starts_with(start) {
                    left.clear();
                }
            }
            Whole(text) => {
                if left == text {
                    left.clear();
                }
            }
            Tail(start) => {
                let is_line = |at: usize| at == 0 || left.as_bytes().get(at - 1) == Some(&b'\n');
                if let Some(at) = left.find(start).filter(|at| is_line(*at)) {
                    left.truncate(at);
                    left.truncate(left.trim_end().len());
                }
            }
        }
    }
}

/// Removes elements with a name and any attributes.
fn remove_elements(left: &mut String, name: &str) {
    let (open, close) = (format!("<{name}"), format!("</{name}>"));
    // `<context` must not match `<contexts>`.
    remove_between(left, &open, &close, |rest| rest.starts_with(['>', ' ', '\n']));
}

/// Removes all ranges from `open` to `close` in one pass.
fn remove_between(left: &mut String, open: &str, close: &str, is_open: impl Fn(&str) -> bool) {
    if !left.contains(open) {
        return;
    }
    let (mut kept, mut rest) = (String::new(), left.as_str());
    while let Some((before, after)) = rest.split_once(open) {
        kept.push_str(before);
        if is_open(after) {
            // Some `AGENTS.md` texts of Codex have no end marker; all of the rest was inserted.
            rest = after.split_once(close).map_or("", |(_, rest)| rest);
        } else {
            kept.push_str(open);
            rest = after;
        }
    }
    kept.push_str(rest);
    *left = kept.trim().to_owned();
}

/// A text without the timestamp that a client writes before it.
fn without_stamp(text: &str) -> &str {
    let Some((stamp, rest)) = text.strip_prefix('[').and_then(|rest| rest.split_once(']')) else {
        return text;
    };
    let rest = rest.trim_start();
    let mut words = stamp.split_whitespace();
    let is_stamp = stamp.len() <= STAMP_MAX_BYTES && !rest.is_empty();
    if is_stamp && words.any(|word| has_form(word, "0000-00-00")) && words.any(is_time) {
        rest
    } else {
        text
    }
}

fn is_time(word: &str) -> bool {
    has_form(word, "00:00") || has_form(word, "00:00:00")
}

/// Whether a word has the digits and signs of a pattern.
fn has_form(word: &str, form: &str) -> bool {
    let is_alike = |(byte, want): (u8, u8)| byte == want || (want == b'0' && byte.is_ascii_digit());
    word.len() == form.len() && word.bytes().zip(form.bytes()).all(is_alike)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Markers as clients write them, with our own text between them.
    const INJECTED: [&str; 25] = [
        "<environment_context>\n  <cwd>/w</cwd>\n  <shell>bash</shell>\n</environment_context>",
        "<user_instructions>\n\nUse tabs.\n\n</user_instructions>",
        "# AGENTS.md instructions for /w\n\n<INSTRUCTIONS>\nUse tabs.\n</INSTRUCTIONS>",
        "# AGENTS.md instructions for /w\n\nUse tabs.",
        "<system-reminder>\nToday is Sunday.\n</system-reminder>\n\n",
        "<system-reminder>a</system-reminder>\n<system-reminder>b</system-reminder>",
        "<<<BEGIN_OPENCLAW_INTERNAL_CONTEXT>>>\nnone\n<<<END_OPENCLAW_INTERNAL_CONTEXT>>>",
        "[Sun 2026-11-22 17:26 UTC] Continue the current task from the existing transcript, preserving completed work. So.",
        "<command-name>/compact</command-name>\n<command-message>compact</command-message>\n<command-args></command-args>",
        "<environment_details>\n# Open tabs\na.rs\n</environment_details>",
        "<session_context>\nThis is the Gemini CLI.\n</session_context>",
        "This is the Qwen Code. We are setting up the context for our chat.\nToday is Sunday.",
        "<current_datetime>2026-11-22T17:28:30Z</current_datetime>\n<reminder>\nBe brief.\n</reminder>",
        "What did we do so far?",
        "To suggest changes to a file you MUST return the entire content of the updated file.\nSo.",
        "I am not sharing any files that you can edit yet.",
        "[Request interrupted by user]",
        "[Request interrupted by user for tool use]",
        "<bash-input>git status</bash-input>",
        "<bash-stdout>On branch main</bash-stdout><bash-stderr></bash-stderr>",
        "<local-command-stdout>Compacted</local-command-stdout>",
        "<user_shell_command>\n<command>\nls\n</command>\n<result>\nExit code: 0\n</result>\n</user_shell_command>",
        "<environment_context>\nwithout an end",
        "<ide_selection>The user selected the lines 5 to 10 from a.rs:\nlet a = 1;\n</ide_selection>",
        "--- Content from referenced files ---\nContent from @a.rs:\nlet a = 1;\n--- End of content ---",
    ];

    #[test]
    fn text_inserted_by_clients_is_no_request() {
        for text in INJECTED {
            assert!(!has_request([text], false), "{text}: {:?}", user_text(text));
            // Text of a user before or after it is a request.
            if !text.contains("without an end") && text.starts_with('<') {
                for both in
                    [format!("{text}\nMend the parser."), format!("Mend the parser.\n\n{text}")]
                {
                    assert_eq!(user_text(&both), "Mend the parser.", "{both}");
                }
            }
        }
    }

    #[test]
    fn text_of_a_user_is_a_request() {
        for text in [
            "Mend the parser.",
            "Why does <context> stand in the log?",
            "<context-menu>is broken</context-menu>",
            "What did we do so far? And what is left?",
            "Explain `# File editing rules:` to me",
            "[2] is wrong",
            "[10:30, 11:45]",
            "[image/png of 8 bytes left out: it cannot be shown]",
            "[Sun 2026-11-22 17:26 UTC]",
            "<task>\nMend the parser.\n</task>",
            // Words that clients use, by people.
            "<context>\nFrom now on always use port 5433.\n</context>",
            "<reminder>Never restart db-3.</reminder>",
            "<permissions>\nNever restart db-3.\n</permissions>",
            "<user_instructions>Never restart db-3.</user_instructions>",
            "<session_context>\nThe staging database is on port 5433.\n</session_context>",
            "<context > is broken in our page. Always use port 5433.",
            "Continue if you have next steps, but from now on always use port 5433.",
            "Continue the current task from the existing transcript, but always use port 5433.",
            "The previous request exceeded the provider's size limit. Always send one file.",
            "OpenClaw runtime context grows too fast. Never send all of it.",
            "Read HEARTBEAT.md if it exists, and always use port 5433.",
            "I am not sharing any files that you can edit yet. Always use port 5433.",
            "# File editing rules:\n- Always use tabs.",
            "# AGENTS.md instructions are ignored. Always read them.",
            "Here are summaries of some files present in my git repository: a.rs parses. Never edit it.",
            "<command-name>/mend</command-name>\n<command-args>the parser</command-args>",
            "[Request interrupted by user] is what the log shows. Why?",
            "Which program writes <bash-input>?",
        ] {
            assert!(has_request([text], false), "{text}");
        }
        let aider = "Mend the parser.\n\n# *SEARCH/REPLACE block* Rules:\nEvery block";
        assert_eq!(user_text(aider), "Mend the parser.");
        let claw = "[Sun 2026-11-22 17:26 UTC] Mend it.\n\nRuntime: agent=main | host=vm";
        assert_eq!(user_text(claw), "Mend it.");
        let codex = "# Context from my IDE setup:\n\n## Active file: a.rs\n\n## My request for Codex:\nMend it.";
        assert_eq!(user_text(codex), "Mend it.");
        assert!(has_request(["# Context from my IDE setup:\nIt is lost. Why?"], false));
    }

    #[test]
    fn every_row_names_a_client_and_a_source() {
        assert!(known_clients().all(|(client, source)| !client.is_empty() && !source.is_empty()));
    }

    #[test]
    fn long_texts_of_half_tags_are_read_in_time() {
        let begun = std::time::Instant::now();
        for part in ["<context <reminder <system-reminder ", "a <context></context>", "<contexts>"]
        {
            let _ = user_text(&part.repeat(20_000));
        }
        assert!(begun.elapsed() < std::time::Duration::from_secs(2), "{:?}", begun.elapsed());
    }
}
