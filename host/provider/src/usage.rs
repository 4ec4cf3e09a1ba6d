//! What a provider counted, read out of an answer that nobody decodes.

use serde_json::Value;

use super::message::Usage;
use super::settings::DialectName;
use super::{anthropic, gemini, openai_chat, openai_responses};

/// Takes what one usage object of a dialect says into `usage`. What it does not say stays, so that the
/// beginning and the end of a stream together tell everything.
pub fn take_usage(dialect: DialectName, said: &Value, usage: &mut Usage) {
    match dialect {
        DialectName::AnthropicMessages => {
            anthropic::count_usage(usage, Some(said));
            *usage = (*usage).summed();
        }
        DialectName::OpenAiResponses => *usage = openai_responses::read_usage(said),
        DialectName::OpenAiCompletions | DialectName::Ollama => {
            *usage = openai_chat::read_usage(said);
        }
        DialectName::GoogleGenerativeAi => *usage = gemini::read_usage(said),
    }
}
