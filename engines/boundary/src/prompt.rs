//! The prompt for a summary under the nine headings.

use ctxhost_engine_api::CompletionRequest;
use ctxhost_engine_api::transcript::tokens::CHARS_PER_TOKEN;
use ctxhost_engine_kit::chunks::MessageGroup;
use ctxhost_engine_kit::prompt::{
    self, ExcerptLimits, FOCUS_CHARS, SummaryPrompt, clean_focus, render_conversation,
};

use crate::sections::TEMPLATE;
use crate::summary::BoundarySummariser;

/// User and assistant text is quoted whole, results and arguments in part.
const EXCERPTS: ExcerptLimits =
    ExcerptLimits { message_chars: u64::MAX, result_chars: 2_000, argument_chars: 400 };

const RULES: &str = "First think it through inside <analysis> tags: go through the conversation in order, note each request, decision, file, error and change of mind. Then write the summary inside <summary> tags, under exactly the nine headings below. Under \"All user messages\" list every message of the person that is no tool result. Under \"Current work\" tell what was done last, with files. Under \"Next step\" name only what follows from the newest request, with a quote of it.";

const CARRY_OVER: &str =
    "The notes tell what came before the conversation. Carry over what still holds.";

/// Requests the summary of groups, with notes of earlier history. `missing` are the sections that
/// the last answer lacked.
pub(crate) fn summary_request(
    summariser: &BoundarySummariser<'_>,
    groups: &[MessageGroup],
    earlier: &str,
    missing: &[&str],
) -> CompletionRequest {
    let mut prompt = SummaryPrompt::default();
    if !earlier.is_empty() {
        prompt.add_data("earlier-notes", earlier).add_text(CARRY_OVER);
    }
    let ranges: Vec<_> = groups.iter().map(|group| group.range.clone()).collect();
    prompt
        .add_data("conversation", &render_conversation(summariser.transcript, &ranges, &EXCERPTS));
    prompt
        .add_text(RULES)
        .add_text(prompt::RULES)
        .add_text(TEMPLATE.headings().collect::<Vec<_>>().join("\n"));
    // Three words are about four tokens.
    let words = summariser.layout.summary_chars / CHARS_PER_TOKEN * 3 / 4;
    prompt.add_text(format!("The summary takes at most {words} words."));
    let focus = summariser.request.custom_instructions.as_deref().unwrap_or("");
    prompt.add_focus(&clean_focus(focus, FOCUS_CHARS));
    if !missing.is_empty() {
        let names = missing.join(", ");
        prompt.add_text(format!(
            "The last answer was refused because these sections were missing: {names}."
        ));
    }
    prompt.to_request(&summariser.settings.model, summariser.request.reserve_tokens)
}
