//! Recognizes text in user messages that is not the user's: clients insert some, and some send tool results in it.
//!
//! A user message without any other text is not a request of the user: it is not pinned as the task and starts
//! no turn. A message with inserted text beside the user's is a request.

mod patterns;
mod request_text;
pub mod tool_output;

use std::borrow::Cow;
use std::sync::LazyLock;

use aho_corasick::AhoCorasick;
use ctxhost_engine_api::{ContentBlock, Message};

use patterns::TABLE;

pub use request_text::request_text;

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
    const INJECTED: [&str; 31] = [
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
        "<command-name>/model</command-name>\n  <command-message>model</command-message>\n  <command-args>opus</command-args>",
        "<task-notification>\n<task-id>b1</task-id>\n</task-notification>\nRead the output file to retrieve the result: /tmp/b1.output",
        "<bash-notification>\n<shell-id>x</shell-id>\n<status>completed</status>\n</bash-notification>",
        "<teammate-message teammate_id=\"t\" color=\"blue\">\nThe survey is done.\n</teammate-message>",
        "<channel source=\"slack\" user=\"bob\">deploy now</channel>",
        "<command-name>/clear</command-name>\n<command-args></command-args>",
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
            "<channel>general</channel> is missing in the feed.",
            "Why does the page show <command-args>?",
            "<command-name>/compact</command-name>\n<command-args>keep the port</command-args>",
        ] {
            assert!(has_request([text], false), "{text}");
        }
        let command = "<command-name>/mend</command-name>\n<command-args>the parser</command-args>";
        assert_eq!(user_text(command), "the parser", "what the user typed, without tags");
        let aider = "Mend the parser.\n\n# *SEARCH/REPLACE block* Rules:\nEvery block";
        assert_eq!(user_text(aider), "Mend the parser.");
        let claw = "[Sun 2026-11-22 17:26 UTC] Mend it.\n\nRuntime: agent=main | host=vm";
        assert_eq!(user_text(claw), "Mend it.");
        let codex = "# Context from my IDE setup:\n\n## Active file: a.rs\n\n## My request for Codex:\nMend it.";
        assert_eq!(user_text(codex), "Mend it.");
        for end in ["## My request for Codex:", "## My request:"] {
            let codex =
                format!("# Files mentioned by the user:\n\n## a.txt: /w/a.txt\n\n{end}\nMend it.");
            assert_eq!(user_text(&codex), "Mend it.");
        }
        assert!(has_request(["# Files mentioned by the user:\nwhy is it in the log?"], false));
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
