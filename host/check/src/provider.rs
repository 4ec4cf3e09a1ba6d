//! How four provider families reject requests with unpaired calls and results.

use serde::{Deserialize, Serialize};

/// A family of providers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum ProviderFamily {
    Anthropic,
    OpenaiChat,
    OpenaiResponses,
    Gemini,
}

/// How a call and its result can be separated. Contains the id of the call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PairingFault {
    /// The plan keeps the result without the call.
    MissingCall(String),
    /// The plan keeps the call without the result.
    MissingResult(String),
    /// The plan inserts a message between them.
    Separated(String),
}

impl ProviderFamily {
    pub(super) const ALL: [ProviderFamily; 4] = [
        ProviderFamily::Anthropic,
        ProviderFamily::OpenaiChat,
        ProviderFamily::OpenaiResponses,
        ProviderFamily::Gemini,
    ];

    /// The name in reports.
    pub(super) const fn name(self) -> &'static str {
        match self {
            ProviderFamily::Anthropic => "anthropic",
            ProviderFamily::OpenaiChat => "openai-chat",
            ProviderFamily::OpenaiResponses => "openai-responses",
            ProviderFamily::Gemini => "gemini",
        }
    }

    /// The names of the API, the provider and a model in sessions.
    pub(super) const fn wire_names(self) -> [&'static str; 3] {
        match self {
            ProviderFamily::Anthropic => ["anthropic-messages", "anthropic", "claude-sonnet-4-5"],
            ProviderFamily::OpenaiChat => ["openai-completions", "openai", "gpt-4.1"],
            ProviderFamily::OpenaiResponses => ["openai-responses", "openai", "gpt-5"],
            ProviderFamily::Gemini => ["google-generative-ai", "google", "gemini-3-pro"],
        }
    }

    /// The status and message with which the provider rejects the request; `None` if it accepts it.
    pub(super) fn refusal(self, fault: &PairingFault) -> Option<String> {
        let message = match (self, fault) {
            (ProviderFamily::Anthropic, PairingFault::MissingCall(_)) => {
                "unexpected `tool_use_id` found in `tool_result` blocks".to_owned()
            }
            (ProviderFamily::Anthropic, PairingFault::MissingResult(id) | PairingFault::Separated(id)) => {
                format!("`tool_use` ids were found without `tool_result` blocks immediately after: {id}")
            }
            (ProviderFamily::OpenaiChat, PairingFault::MissingCall(_)) => {
                "messages with role 'tool' must be a response to a preceeding message with \
                 'tool_calls'"
                    .to_owned()
            }
            (ProviderFamily::OpenaiChat, PairingFault::MissingResult(id) | PairingFault::Separated(id)) => format!(
                "An assistant message with 'tool_calls' must be followed by tool messages responding \
                 to each 'tool_call_id'. The following tool_call_ids did not have response messages: \
                 {id}"
            ),
            (ProviderFamily::OpenaiResponses, PairingFault::MissingCall(id)) => {
                format!("No tool call found for function call output with call_id {id}.")
            }
            (ProviderFamily::OpenaiResponses, PairingFault::MissingResult(id)) => {
                format!("No tool output found for function call {id}.")
            }
            // Responses pairs calls and results by id, wherever they are.
            (ProviderFamily::OpenaiResponses, PairingFault::Separated(_)) => return None,
            (ProviderFamily::Gemini, PairingFault::MissingCall(_)) => {
                "Please ensure that function response turn comes immediately after a function call \
                 turn."
                    .to_owned()
            }
            (ProviderFamily::Gemini, PairingFault::MissingResult(_) | PairingFault::Separated(_)) => {
                "Please ensure that the number of function response parts is equal to the number of \
                 function call parts of the function call turn."
                    .to_owned()
            }
        };
        // The texts are those of the providers, so that authors find them in their logs.
        Some(format!("{} answers 400 \"{message}\"", self.name()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_family_rejects_half_a_pair_with_its_own_message() {
        for fault in
            [PairingFault::MissingCall("t1".into()), PairingFault::MissingResult("t1".into())]
        {
            let mut messages: Vec<_> =
                ProviderFamily::ALL.iter().filter_map(|f| f.refusal(&fault)).collect();
            assert_eq!(messages.len(), 4);
            messages.dedup();
            assert_eq!(messages.len(), 4);
        }
        let apart = PairingFault::Separated("t1".into());
        assert_eq!(ProviderFamily::ALL.iter().filter(|f| f.refusal(&apart).is_none()).count(), 1);
    }
}
