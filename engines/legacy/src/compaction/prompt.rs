//! Prompts for summaries. Everything quoted in them is data, not instruction.

use ctxhost_engine_api::CompletionRequest;
use ctxhost_engine_kit::chunks::MessageGroup;
use ctxhost_engine_kit::prompt::{self, ExcerptLimits, SummaryPrompt};
use ctxhost_engine_kit::summary::HEADINGS;
use jiff::Timestamp;

use super::inputs::LegacyCompaction;
use crate::settings::IdentifierPolicy;

/// Length of the arguments of a call in a prompt, in weighted characters.
const ARGUMENT_CHARS: u64 = 400;

const RULES: &str = "Under \"Pending user asks\" the newest request that is still open stands first; one that was answered is not pending. Answer with the five sections alone.";

const UPDATE: &str = "Update the previous summary with the conversation: keep what still holds, change what changed, drop what is done and no longer matters.";

const BEHIND: &str = "Summarise the conversation above, earlier notes in it included. Its newest turns stay word for word, so leave them out.";

const TURN_PREFIX: &str = "These are the first steps of one request that is kept word for word elsewhere and is still being worked on; it is not to be listed as pending.";

const STRICT_NAMES: &str = "Under \"Exact identifiers\" list the paths, URLs, hashes and numbers the work needs, letter for letter.";

const OTHER_NAMES: &str = "Names such as path-kdwxqa or id-wbmuep stand for real ones. Under \"Exact identifiers\" list those that the work needs, letter for letter.";

const MERGE_RULES: &str = "The parts below are notes of consecutive stretches of one conversation, oldest first. Merge them into one. Keep active tasks and their state, progress through batches, the last request, decisions with their reasons, open TODOs and questions, constraints and promises. Where parts disagree the newest is right.";

/// The fixed parts of a prompt.
#[derive(Clone, Debug, Default)]
pub(crate) struct PromptTemplate {
    /// Model name; empty for the host's choice.
    pub(crate) model: String,
    /// Output limit in provider tokens; 0 for the model's own.
    pub(crate) max_output_tokens: u64,
    /// The user's focus for the summary.
    pub(crate) focus: String,
    /// Reasons why the last answer was refused.
    pub(crate) feedback: Vec<String>,
    /// Session whose live conversation may be continued; empty for none.
    pub(crate) session: String,
    /// Whether only the first steps of a kept request are summarised.
    pub(crate) is_turn_prefix: bool,
    /// Whether an answer follows, so that no request is pending.
    pub(crate) is_answered_later: bool,
    /// Treatment of exact identifiers.
    pub(crate) policy: IdentifierPolicy,
    /// The operator's instructions for the policy `custom`.
    pub(crate) identifier_instructions: String,
}

/// The summary of one part, for a merge.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PartialSummary<'a> {
    /// The summary.
    pub(crate) notes: &'a str,
    /// Time of the first and last entry, in ms since 1970.
    pub(crate) time_range_ms: Option<(i64, i64)>,
}

impl PartialSummary<'_> {
    fn time(&self) -> Option<String> {
        let format_time =
            |ms| Some(Timestamp::from_millisecond(ms).ok()?.strftime("%Y-%m-%d %H:%M").to_string());
        let (from, until) = self.time_range_ms?;
        Some(format!(", {} to {} UTC", format_time(from)?, format_time(until)?))
    }
}

impl PromptTemplate {
    /// The request for one chunk, with the previous summary.
    pub(crate) fn part_request(
        &self,
        conversation: &str,
        previous: Option<&str>,
    ) -> CompletionRequest {
        let mut prompt = SummaryPrompt::default();
        prompt.add_data("conversation", conversation);
        match previous {
            Some(previous) => prompt.add_data("previous-summary", previous).add_text(UPDATE),
            None => prompt.add_text("Summarise the conversation."),
        };
        if self.is_turn_prefix {
            prompt.add_text(TURN_PREFIX);
        }
        self.request(prompt)
    }

    /// The request for a whole history, appended to the live conversation if the host supports it.
    pub(crate) fn whole_request(
        &self,
        conversation: &str,
        previous: Option<&str>,
    ) -> CompletionRequest {
        let request = self.part_request(conversation, previous);
        if self.session.is_empty() {
            return request;
        }
        let mut prompt = SummaryPrompt::default();
        prompt.add_text(prompt::SYSTEM).add_text(BEHIND);
        let continuation = self.request(prompt).prompt;
        // The whole request stays as the fallback for a host or provider that cannot continue the
        // session.
        CompletionRequest { session: self.session.clone(), continuation, ..request }
    }

    /// The request that merges partial summaries.
    pub(crate) fn merge_request(&self, partial: &[PartialSummary<'_>]) -> CompletionRequest {
        let count = partial.len();
        let label = |(at, part): (usize, &PartialSummary<'_>)| {
            let place = match at {
                0 => " - oldest messages",
                last if last + 1 == count => " - most recent messages",
                _ => "",
            };
            let time = part.time().unwrap_or_default();
            let head = format!("[Part {} of {count}{place}{time}]", at + 1);
            format!("{head}\n{}", part.notes)
        };
        let mut prompt = SummaryPrompt::default();
        for text in partial.iter().enumerate().map(label) {
            prompt.add_data("part", &text);
        }
        prompt.add_text(MERGE_RULES);
        self.request(prompt)
    }

    fn identifier_rule(&self) -> Option<&str> {
        match self.policy {
            IdentifierPolicy::Strict => Some(STRICT_NAMES),
            IdentifierPolicy::Anonymize => Some(OTHER_NAMES),
            IdentifierPolicy::Custom => Some(self.identifier_instructions.trim()),
            IdentifierPolicy::Off => None,
        }
    }

    fn request(&self, mut prompt: SummaryPrompt) -> CompletionRequest {
        prompt.add_text(format!(
            "Use exactly these headings, in this order:\n{}",
            HEADINGS.join("\n")
        ));
        prompt.add_text(prompt::RULES).add_text(RULES);
        if let Some(rule) = self.identifier_rule().filter(|rule| !rule.is_empty()) {
            prompt.add_text(rule);
        }
        if self.is_answered_later {
            prompt.add_text("Every request in it was answered since; none is pending.");
        }
        prompt.add_focus(&self.focus);
        if !self.feedback.is_empty() {
            prompt.add_text("The last answer was refused by a check for these reasons:");
            prompt.add_data("feedback", &self.feedback.join("\n"));
        }
        prompt.to_request(&self.model, self.max_output_tokens)
    }
}

/// Renders groups as text, anonymised under the policy `anonymize`.
pub(crate) fn render_groups(inputs: &LegacyCompaction<'_>, groups: &[MessageGroup]) -> String {
    let ranges: Vec<_> = groups.iter().map(|group| group.range.clone()).collect();
    let excerpts = ExcerptLimits {
        // Chunks are sized for whole messages, so only results are cut.
        message_chars: u64::MAX,
        result_chars: inputs.settings.compaction.prompt_result_chars,
        argument_chars: ARGUMENT_CHARS,
    };
    inputs
        .anonymised(&prompt::render_conversation(inputs.transcript, &ranges, &excerpts))
        .into_owned()
}
