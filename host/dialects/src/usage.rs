//! What a provider counted, read out of an answer that nobody decodes.

use serde_json::Value;

use crate::message::Usage;
use crate::name::DialectName;
use crate::{anthropic, gemini, openai_chat, openai_responses};

/// Takes what one usage object of a dialect says into `usage`. What it does not say stays, so that the
/// beginning and the end of a stream together tell everything.
pub fn take_usage(dialect: DialectName, said: &Value, usage: &mut Usage) {
    match dialect {
        DialectName::AnthropicMessages => anthropic::usage::read_usage(said, usage),
        DialectName::OpenAiResponses => *usage = openai_responses::usage::read_usage(said),
        DialectName::OpenAiCompletions | DialectName::Ollama => {
            *usage = openai_chat::usage::read_usage(said);
        }
        DialectName::GoogleGenerativeAi => *usage = gemini::usage::read_usage(said),
    }
}
