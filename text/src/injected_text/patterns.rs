//! The patterns of text that clients insert into messages of the user, and how each is removed.

use std::borrow::Cow;

use memchr::memmem;

/// A pattern of inserted text.
#[derive(Clone, Copy, Debug)]
pub(super) struct InjectedPattern {
    /// The client that inserts it.
    pub(super) client: &'static str,
    /// Where it was seen.
    pub(super) source: &'static str,
    pub(super) form: PatternForm,
}

/// How inserted text is found in a text block.
#[derive(Clone, Copy, Debug)]
pub(super) enum PatternForm {
    /// From a start to an end marker, or to the end of the block.
    Between(&'static str, &'static str),
    /// An element with this name: `<name ...>` to `</name>`.
    Element(&'static str),
    /// A line with this prefix.
    Line(&'static str),
    /// An element with this name, if the block has another text of the client.
    // People use such names as well.
    ElementBeside(&'static str, &'static [&'static str]),
    /// The tags of an element with this name, if the block has another text of the client. Its text is the user's.
    TagsBeside(&'static str, &'static [&'static str]),
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
    Between, Element, ElementBeside, Enclosed, Line, Opening, Sentence, TagsBeside, Tail, Whole,
};

const WIRE: &str = "request bodies recorded in November 2026";
pub(super) const CODE: &str = "the client's published source";
const SEEN: &str = "sessions in public repositories";

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

/// Commands of Claude Code whose arguments are settings and names. Those of `/compact` are words of the user.
const CLAUDE_CODE_SETTINGS: &[&str] = &[
    "<command-name>/add-dir</command-name>",
    "<command-name>/agents</command-name>",
    "<command-name>/branch</command-name>",
    "<command-name>/clear</command-name>",
    "<command-name>/color</command-name>",
    "<command-name>/config</command-name>",
    "<command-name>/context</command-name>",
    "<command-name>/effort</command-name>",
    "<command-name>/export</command-name>",
    "<command-name>/fast</command-name>",
    "<command-name>/ide</command-name>",
    "<command-name>/login</command-name>",
    "<command-name>/mcp</command-name>",
    "<command-name>/model</command-name>",
    "<command-name>/output-style</command-name>",
    "<command-name>/permissions</command-name>",
    "<command-name>/plugin</command-name>",
    "<command-name>/rename</command-name>",
    "<command-name>/resume</command-name>",
    "<command-name>/theme</command-name>",
];

/// All patterns, by client. Each has as many of the client's own words as it takes to tell them from a person's.
pub(super) const TABLE: &[InjectedPattern] = &[
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
    row("Codex", SEEN, Enclosed("# Context from my IDE setup:\n", "\n## My request:")),
    row("Codex", SEEN, Enclosed("# Files mentioned by the user:\n", "\n## My request for Codex:")),
    row("Codex", SEEN, Enclosed("# Files mentioned by the user:\n", "\n## My request:")),
    row("Claude Code, Qwen Code, opencode", WIRE, Element("system-reminder")),
    row("Claude Code", CODE, Element("local-command-caveat")),
    row("Claude Code", CODE, Element("local-command-stdout")),
    row("Claude Code", CODE, Element("local-command-stderr")),
    row("Claude Code", CODE, Element("bash-input")),
    row("Claude Code", CODE, Element("bash-stdout")),
    row("Claude Code", CODE, Element("bash-stderr")),
    row("Claude Code", CODE, Whole("[Request interrupted by user]")),
    row("Claude Code", CODE, Whole("[Request interrupted by user for tool use]")),
    // Commands of the program and of the user; arguments are what the user typed.
    row("Claude Code", CODE, ElementBeside("command-args", CLAUDE_CODE_SETTINGS)),
    row("Claude Code", CODE, TagsBeside("command-args", &["<command-name>/"])),
    row("Claude Code", CODE, Element("command-name")),
    row("Claude Code", CODE, Element("command-message")),
    row("Claude Code", CODE, Line("<command-args></command-args>")),
    row("Claude Code", CODE, Element("task-notification")),
    row("Claude Code", CODE, Line("Read the output file to retrieve the result: ")),
    row("Claude Code", CODE, Element("bash-notification")),
    // Messages of other agents, and of chats that a server passes on.
    row("Claude Code", CODE, Element("teammate-message")),
    row("Claude Code", CODE, Between("<channel source=", "</channel>")),
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
pub(super) const REFERENCED_FILES: &str = "--- Content from referenced files ---";
pub(super) const REFERENCED_FILES_END: &str = "--- End of content ---";

impl PatternForm {
    /// The text at the beginning of each match.
    pub(super) fn marker(self) -> Cow<'static, str> {
        match self {
            Element(name) | ElementBeside(name, _) | TagsBeside(name, _) => {
                format!("<{name}").into()
            }
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
    pub(super) fn remove_from(self, left: &mut String, block: &str) {
        match self {
            Between(open, close) => remove_between(left, open, close, |_| true),
            Element(name) => remove_elements(left, name),
            ElementBeside(name, others) => {
                if has_any(block, others) {
                    remove_elements(left, name);
                }
            }
            TagsBeside(name, others) => {
                if has_any(block, others) {
                    let open = left.replace(&format!("<{name}>"), "");
                    *left = open.replace(&format!("</{name}>"), "").trim().to_owned();
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

fn has_any(block: &str, texts: &[&str]) -> bool {
    texts.iter().any(|text| memmem::find(block.as_bytes(), text.as_bytes()).is_some())
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
