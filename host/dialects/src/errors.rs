//! Errors of the gateway in the form of each dialect.

use serde_json::Value;

use super::name::DialectName;
use super::{anthropic, gemini, ollama, openai_chat};

/// The body of an error with this HTTP status.
pub fn error_body(dialect: DialectName, status: u16, message: &str) -> Value {
    match dialect {
        DialectName::AnthropicMessages => anthropic::errors::error_body(status, message),
        DialectName::GoogleGenerativeAi => gemini::errors::error_body(status, message),
        DialectName::Ollama => ollama::errors::error_body(message),
        DialectName::OpenAiCompletions | DialectName::OpenAiResponses => {
            openai_chat::errors::error_body(status, message)
        }
    }
}
