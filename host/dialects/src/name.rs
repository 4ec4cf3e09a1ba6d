//! The names of the dialects, and where the API of whoever each belongs to begins.

use serde::{Deserialize, Serialize};

/// The dialects, as sessions and the config name them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum DialectName {
    /// OpenAI's chat completions, and all that speak nearly the same.
    #[serde(rename = "openai-completions", alias = "openai", alias = "openai-chat")]
    OpenAiCompletions,
    /// OpenAI's Responses.
    #[serde(rename = "openai-responses", alias = "responses")]
    OpenAiResponses,
    /// Anthropic's Messages.
    #[serde(rename = "anthropic-messages", alias = "anthropic", alias = "claude")]
    AnthropicMessages,
    /// Gemini.
    #[serde(rename = "google-generative-ai", alias = "google", alias = "gemini")]
    GoogleGenerativeAi,
    /// Ollama's own.
    #[serde(rename = "ollama")]
    Ollama,
}

impl DialectName {
    /// Every name that the config takes, the short ones last.
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

    /// The dialects in which clients speak to a gateway.
    pub const INBOUND: [DialectName; 4] = [
        DialectName::AnthropicMessages,
        DialectName::OpenAiCompletions,
        DialectName::OpenAiResponses,
        DialectName::GoogleGenerativeAi,
    ];

    /// The name that is written.
    pub fn as_str(self) -> &'static str {
        match self {
            DialectName::OpenAiCompletions => "openai-completions",
            DialectName::OpenAiResponses => "openai-responses",
            DialectName::AnthropicMessages => "anthropic-messages",
            DialectName::GoogleGenerativeAi => "google-generative-ai",
            DialectName::Ollama => "ollama",
        }
    }

    /// The dialect of a name, be it long or short.
    pub fn parse(word: &str) -> Option<DialectName> {
        serde_json::from_value(word.into()).ok()
    }

    /// Where the API of whoever it belongs to begins.
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

    /// The environment variable in which the key for that address usually stands.
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
