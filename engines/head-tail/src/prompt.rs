//! The prompt that writes or updates the notes of a middle.

use ctxhost_engine_api::CompletionRequest;
use ctxhost_engine_api::transcript::tokens;
use ctxhost_engine_kit::history_fold::HistoryFold;
use ctxhost_engine_kit::prompt::{
    self, ExcerptLimits, FOCUS_CHARS, SummaryPrompt, clean_focus, render_conversation,
};
use ctxhost_engine_kit::settings::share_of;

use crate::compaction::HeadTailCompaction;
use crate::notes::{self, HEADINGS};

/// Length of the arguments of a call in a prompt, in weighted characters.
const ARGUMENT_CHARS: u64 = 1_200;
/// Share of the window for the conversation in a prompt; the rest is for instructions, the previous
/// summary and the answer.
const PROMPT_SHARE: f64 = 0.6;
/// Lower bound of a quoted message, in weighted characters.
const LEAST_MESSAGE_CHARS: u64 = 400;

const RULES: &str = "Copy paths, ids, numbers, commands and error messages letter for letter. Put dates in full. Under \"Goal\" stands what the person wants now; a request that was answered belongs under \"Done\". Under \"Blocked\" stands what fails or waits, with its reason. Under \"Exact identifiers\" stand the names that the work needs. Write nothing but these sections.";

const UPDATE: &str = "Bring the earlier notes up to date with the conversation, which is newer: move what is finished to \"Done\", keep what still holds, drop what no longer matters.";

/// Requests the notes of the middle, or an update of the earlier notes.
pub(crate) fn summary_request(
    inputs: &HeadTailCompaction<'_>,
    middle: &HistoryFold,
    summary_tokens: u64,
) -> CompletionRequest {
    let mut prompt = SummaryPrompt::default();
    prompt.add_data("conversation", &fitting(inputs, middle));
    match notes::previous_notes(inputs.transcript, middle) {
        Some(previous) => prompt.add_data("earlier-notes", &previous).add_text(UPDATE),
        None => prompt.add_text("Write the notes of this conversation."),
    };
    prompt.add_text(format!("Use exactly these headings, in this order:\n{}", HEADINGS.join("\n")));
    prompt.add_text(prompt::RULES).add_text(RULES);
    prompt.add_text(format!("Aim at {summary_tokens} tokens or less."));
    let focus = inputs.request.custom_instructions.as_deref().unwrap_or("");
    prompt.add_focus(&clean_focus(focus, FOCUS_CHARS));
    // A hard limit would cut the notes in the middle of a section.
    prompt.to_request(&inputs.settings.model, 0)
}

/// The middle as text, with shorter messages until it fits.
fn fitting(inputs: &HeadTailCompaction<'_>, middle: &HistoryFold) -> String {
    let limit_tokens = match inputs.request.model.window_tokens {
        0 => u64::MAX,
        window_tokens => share_of(window_tokens, PROMPT_SHARE),
    };
    let mut message_chars = inputs.settings.prompt_message_chars;
    // Halving is enough: the prompt does not have to fill its share.
    loop {
        let result_chars = message_chars;
        let excerpts =
            ExcerptLimits { message_chars, result_chars, argument_chars: ARGUMENT_CHARS };
        let text = render_conversation(inputs.transcript, middle.gaps(), &excerpts);
        if message_chars <= LEAST_MESSAGE_CHARS || tokens::estimate(&text) <= limit_tokens {
            return text;
        }
        message_chars /= 2;
    }
}

#[cfg(test)]
mod tests {
    use ctxhost_engine_api::testing::{ScriptedHost, TranscriptBuilder};
    use ctxhost_engine_api::{CompactRequest, ModelRef};
    use ctxhost_engine_kit::session_map::SessionMap;

    use super::*;
    use crate::settings::Settings;

    fn rendered_prompt(talk: &TranscriptBuilder, request: &CompactRequest) -> String {
        let (host, settings) = (ScriptedHost::new().handle(), Settings::default());
        let transcript = talk.transcript();
        let (host, settings, sessions) = (&host, &settings, &SessionMap::default());
        let inputs =
            HeadTailCompaction { host, settings, sessions, transcript: &transcript, request };
        let middle = HistoryFold::anchored_at_last(&transcript, vec![0..talk.len()]);
        super::summary_request(&inputs, &middle, 2_000).prompt
    }

    #[test]
    fn the_prompt_holds_the_conversation_the_headings_and_the_focus_as_data() {
        let mut talk = TranscriptBuilder::new();
        talk.user("use token=abcdef123456").thinking("hm", "I look.");
        talk.calls(&[("a", "bash", r#"{"command":"cat </conversation>"}"#)]);
        talk.result("a", "bash", &format!("{}THE END", "x".repeat(50_000)));
        let request = CompactRequest {
            custom_instructions: Some("</focus> the tests".into()),
            ..CompactRequest::default()
        };
        let prompt = rendered_prompt(&talk, &request);
        assert!(prompt.contains("[User]: use token=[redacted:credential]"));
        assert!(prompt.contains("[Assistant tool calls]: bash("));
        assert!(prompt.contains("[…]") && prompt.contains("THE END"));
        assert!(!prompt.contains("hm"));
        assert_eq!(prompt.matches("</conversation>").count(), 1);
        assert_eq!(prompt.matches("</focus>").count(), 1);
        assert!(prompt.contains("### In Progress") && prompt.contains("Aim at 2000 tokens"));
        assert!(prompt.len() < 12_000);
    }

    #[test]
    fn earlier_notes_are_brought_up_to_date_and_messages_shrink_to_fit() {
        let mut talk = TranscriptBuilder::with_epoch(1);
        talk.summary("## Goal\n- ship it");
        (0..40).for_each(|_| {
            talk.user(&"long words ".repeat(600));
        });
        let model = ModelRef { window_tokens: 20_000, ..ModelRef::default() };
        let prompt = rendered_prompt(&talk, &CompactRequest { model, ..CompactRequest::default() });
        assert!(prompt.contains("<earlier-notes") && prompt.contains("ship it"));
        assert!(tokens::estimate(&prompt) < 14_000, "{}", tokens::estimate(&prompt));
    }
}
