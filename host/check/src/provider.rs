//! What four families of providers make of a history whose calls and results do not fit together.

use serde::{Deserialize, Serialize};

/// A family of providers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Family {
    Anthropic,
    OpenaiChat,
    OpenaiResponses,
    Gemini,
}

/// How a call and its result can be torn apart. Each names the id of the call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Torn {
    /// The result is there, its call is not.
    NoCall(String),
    /// The call is there, its result is not.
    NoResult(String),
    /// Something that the engine put in stands between them.
    Apart(String),
}

impl Family {
    pub(super) const ALL: [Family; 4] =
        [Family::Anthropic, Family::OpenaiChat, Family::OpenaiResponses, Family::Gemini];

    /// The name in reports.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Family::Anthropic => "anthropic",
            Family::OpenaiChat => "openai-chat",
            Family::OpenaiResponses => "openai-responses",
            Family::Gemini => "gemini",
        }
    }

    /// The names that sessions give its wire, its provider and one of its models.
    pub(super) const fn speaker(self) -> [&'static str; 3] {
        match self {
            Family::Anthropic => ["anthropic-messages", "anthropic", "claude-sonnet-4-5"],
            Family::OpenaiChat => ["openai-completions", "openai", "gpt-4.1"],
            Family::OpenaiResponses => ["openai-responses", "openai", "gpt-5"],
            Family::Gemini => ["google-generative-ai", "google", "gemini-3-pro"],
        }
    }

    /// The status and the words that such a provider refuses the request with; `None` where it takes
    /// even that. Responses looks for calls and results anywhere, so that nothing between them matters.
    pub(super) fn refusal(self, torn: &Torn) -> Option<String> {
        let words = match (self, torn) {
            (Family::Anthropic, Torn::NoCall(_)) => {
                "unexpected `tool_use_id` found in `tool_result` blocks".to_owned()
            }
            (Family::Anthropic, Torn::NoResult(id) | Torn::Apart(id)) => {
                format!("`tool_use` ids were found without `tool_result` blocks immediately after: {id}")
            }
            (Family::OpenaiChat, Torn::NoCall(_)) => {
                "messages with role 'tool' must be a response to a preceeding message with \
                 'tool_calls'"
                    .to_owned()
            }
            (Family::OpenaiChat, Torn::NoResult(id) | Torn::Apart(id)) => format!(
                "An assistant message with 'tool_calls' must be followed by tool messages responding \
                 to each 'tool_call_id'. The following tool_call_ids did not have response messages: \
                 {id}"
            ),
            (Family::OpenaiResponses, Torn::NoCall(id)) => {
                format!("No tool call found for function call output with call_id {id}.")
            }
            (Family::OpenaiResponses, Torn::NoResult(id)) => {
                format!("No tool output found for function call {id}.")
            }
            (Family::OpenaiResponses, Torn::Apart(_)) => return None,
            (Family::Gemini, Torn::NoCall(_)) => {
                "Please ensure that function response turn comes immediately after a function call \
                 turn."
                    .to_owned()
            }
            (Family::Gemini, Torn::NoResult(_) | Torn::Apart(_)) => {
                "Please ensure that the number of function response parts is equal to the number of \
                 function call parts of the function call turn."
                    .to_owned()
            }
        };
        Some(format!("{} answers 400 \"{words}\"", self.name()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_family_refuses_half_a_pair_in_words_of_its_own() {
        for torn in [Torn::NoCall("t1".into()), Torn::NoResult("t1".into())] {
            let mut said: Vec<_> = Family::ALL.iter().filter_map(|f| f.refusal(&torn)).collect();
            assert_eq!(said.len(), 4);
            said.dedup();
            assert_eq!(said.len(), 4);
        }
        let apart = Torn::Apart("t1".into());
        assert_eq!(Family::ALL.iter().filter(|f| f.refusal(&apart).is_none()).count(), 1);
    }
}
