//! The names of the dialects and their owners' addresses.

use serde::{Deserialize, Serialize};

/// A dialect, as sessions and the config name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DialectName {
    /// OpenAI's chat completions and compatible APIs.
    #[serde(rename = "openai-completions", alias = "openai", alias = "openai-chat")]
    OpenAiCompletions,
    /// OpenAI's Responses API.
    #[serde(rename = "openai-responses", alias = "responses")]
    OpenAiResponses,
    /// Anthropic's Messages API.
    #[serde(rename = "anthropic-messages", alias = "anthropic", alias = "claude")]
    AnthropicMessages,
    /// Gemini.
    #[serde(rename = "google-generative-ai", alias = "google", alias = "gemini")]
    GoogleGenerativeAi,
    /// Ollama's own API.
    #[serde(rename = "ollama")]
    Ollama,
}

impl DialectName {
    /// All names that the config accepts; the first five are canonical.
    pub const NAMES: &'static [&'static str] = &[
        "openai-completions",
        "openai-responses",
        "anthropic-messages",
        "google-generative-ai",
        "ollama",
        "openai",
        "openai-chat",
        "responses",
        "anthropic",
        "claude",
        "google",
        "gemini",
    ];

    /// The dialects that the gateway accepts from clients.
    pub const INBOUND: [DialectName; 5] = [
        DialectName::AnthropicMessages,
        DialectName::OpenAiCompletions,
        DialectName::OpenAiResponses,
        DialectName::GoogleGenerativeAi,
        DialectName::Ollama,
    ];

    /// The canonical name.
    pub fn as_str(self) -> &'static str {
        match self {
            DialectName::OpenAiCompletions => "openai-completions",
            DialectName::OpenAiResponses => "openai-responses",
            DialectName::AnthropicMessages => "anthropic-messages",
            DialectName::GoogleGenerativeAi => "google-generative-ai",
            DialectName::Ollama => "ollama",
        }
    }

    /// Parses a name or an alias.
    pub fn parse(word: &str) -> Option<DialectName> {
        // Serde knows the aliases.
        serde_json::from_value(word.into()).ok()
    }

    /// The base URL of the owner's API.
    pub fn base_url(self) -> &'static str {
        match self {
            DialectName::OpenAiCompletions | DialectName::OpenAiResponses => {
                "https://api.openai.com/v1"
            }
            DialectName::AnthropicMessages => "https://api.anthropic.com",
            DialectName::GoogleGenerativeAi => "https://generativelanguage.googleapis.com",
            DialectName::Ollama => "http://127.0.0.1:11434",
        }
    }

    /// The usual environment variable for the key of that API.
    pub fn key_variable(self) -> Option<&'static str> {
        match self {
            DialectName::OpenAiCompletions | DialectName::OpenAiResponses => Some("OPENAI_API_KEY"),
            DialectName::AnthropicMessages => Some("ANTHROPIC_API_KEY"),
            DialectName::GoogleGenerativeAi => Some("GEMINI_API_KEY"),
            DialectName::Ollama => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_word_is_a_dialect_and_the_long_ones_are_written() {
        let read = |word: &str| serde_json::from_value::<DialectName>(word.into()).unwrap();
        for word in &DialectName::NAMES[..5] {
            assert_eq!(serde_json::to_value(read(word)).unwrap(), *word);
            assert_eq!(read(word).as_str(), *word);
        }
        for word in &DialectName::NAMES[5..] {
            assert_ne!(serde_json::to_value(read(word)).unwrap(), *word);
        }
    }
}
