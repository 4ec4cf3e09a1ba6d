//! Errors of ours, in the form that each dialect has for them.

use serde_json::Value;

use super::name::DialectName;
use super::{anthropic, gemini, openai_chat};

/// An error with this HTTP status, as clients of the dialect read it.
pub fn error_body(dialect: DialectName, status: u16, message: &str) -> Value {
    match dialect {
        DialectName::AnthropicMessages => anthropic::errors::error_body(status, message),
        DialectName::GoogleGenerativeAi => gemini::errors::error_body(status, message),
        DialectName::OpenAiCompletions | DialectName::OpenAiResponses | DialectName::Ollama => {
            openai_chat::errors::error_body(status, message)
        }
    }
}
