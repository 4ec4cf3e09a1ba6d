//! What is said to a model and by it, in the words of a Pi session, so that it is stored as it is sent.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

/// One message of a request, or the answer to it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "camelCase")]
pub enum ChatMessage {
    /// Of the person, or of the host in their place.
    User(UserMessage),
    /// Of the model.
    Assistant(AssistantMessage),
    /// Of a tool.
    ToolResult(ToolResultMessage),
}

impl ChatMessage {
    /// A message of the person with nothing but text.
    pub fn from_user_text(text: impl Into<String>) -> ChatMessage {
        ChatMessage::User(UserMessage { content: vec![ChatBlock::text(text)], timestamp: 0 })
    }

    /// Leaves out what only its provider can judge: thinking and items of the provider's own.
    pub fn strip_provider_content(&mut self) {
        if let ChatMessage::Assistant(message) = self {
            message.content.retain(|block| {
                !matches!(block, ChatBlock::Thinking { .. } | ChatBlock::ProviderItem { .. })
            });
        }
    }

    /// Its blocks.
    pub fn content(&self) -> &[ChatBlock] {
        match self {
            ChatMessage::User(message) => &message.content,
            ChatMessage::Assistant(message) => &message.content,
            ChatMessage::ToolResult(message) => &message.content,
        }
    }
}

/// A message of the person.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct UserMessage {
    /// Its blocks; a plain string is one text block.
    #[serde(deserialize_with = "deserialize_blocks")]
    pub content: Vec<ChatBlock>,
    /// Milliseconds since 1970.
    pub timestamp: i64,
}

/// A message of the model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AssistantMessage {
    /// Its blocks, in the order they came.
    #[serde(deserialize_with = "deserialize_blocks")]
    pub content: Vec<ChatBlock>,
    /// The dialect it was received in, such as `anthropic-messages`: signatures are valid there alone.
    pub api: String,
    /// The provider, as the config names it.
    pub provider: String,
    /// The model, as the provider writes it.
    pub model: String,
    /// The model that answered, where its name is another: `gpt-4.1-2025-04-14` for `gpt-4.1`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub response_model: String,
    /// The provider's id of the answer; empty where it gives none.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub response_id: String,
    /// What the provider counted.
    pub usage: TokenUsage,
    /// Why the model stopped.
    pub stop_reason: StopReason,
    /// The provider's own word for that, where it says more, such as `model_context_window_exceeded`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub raw_stop_reason: String,
    /// What went wrong, where the answer ended in an error.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_message: Option<String>,
    /// Milliseconds since 1970.
    pub timestamp: i64,
}

impl AssistantMessage {
    /// Its texts, joined by newlines. A block may be there for its signature alone.
    pub fn text(&self) -> String {
        let text = |block: &ChatBlock| match block {
            ChatBlock::Text { text, .. } if !text.is_empty() => Some(text.clone()),
            _ => None,
        };
        self.content.iter().filter_map(text).collect::<Vec<_>>().join("\n")
    }

    /// The calls among its blocks.
    pub fn tool_calls(&self) -> impl Iterator<Item = &ToolCallBlock> {
        self.content.iter().filter_map(|block| match block {
            ChatBlock::ToolCall(call) => Some(call),
            _ => None,
        })
    }
}

/// The result of a tool call.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ToolResultMessage {
    /// The id of the call.
    pub tool_call_id: String,
    /// The tool's name.
    pub tool_name: String,
    /// Texts and images.
    #[serde(deserialize_with = "deserialize_blocks")]
    pub content: Vec<ChatBlock>,
    /// Whether the tool failed.
    pub is_error: bool,
    /// Milliseconds since 1970.
    pub timestamp: i64,
}

/// One block.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum ChatBlock {
    /// Text.
    Text {
        /// It.
        text: String,
        /// What the provider wants back with it, word for word.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        text_signature: Option<String>,
    },
    /// The model's thinking. Sent back unchanged to the model that thought it, or not at all.
    Thinking {
        /// It; empty where it is redacted or encrypted.
        thinking: String,
        /// The signature, or the encrypted thinking itself.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        thinking_signature: Option<String>,
        /// Whether the provider hid it.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        redacted: bool,
    },
    /// A call of a tool.
    ToolCall(ToolCallBlock),
    /// An image.
    Image {
        /// Base64.
        data: String,
        /// Such as `image/png`.
        mime_type: String,
    },
    /// An item that only one dialect knows, kept word for word.
    ProviderItem {
        /// The dialect, as [`AssistantMessage::api`].
        api: String,
        /// The item.
        item: Value,
    },
    /// A block of a type that this version does not know.
    #[serde(untagged)]
    Other(Value),
}

impl ChatBlock {
    /// A block of text.
    pub fn text(text: impl Into<String>) -> ChatBlock {
        ChatBlock::Text { text: text.into(), text_signature: None }
    }
}

/// A call of a tool.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ToolCallBlock {
    /// The id that the result answers.
    pub id: String,
    /// The tool's name.
    pub name: String,
    /// The arguments; an object.
    pub arguments: Value,
    /// What Gemini wants back with the call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thought_signature: Option<String>,
}

/// Why a model stopped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum StopReason {
    /// It was done.
    #[default]
    Stop,
    /// Its answer reached a limit.
    Length,
    /// It wants results of tools.
    ToolUse,
    /// The answer broke off.
    Error,
    /// The person broke it off.
    Aborted,
    /// A word of another writer.
    #[serde(other)]
    Other,
}

/// What a provider counted, in its own tokens. The whole prompt is `input + cache_read + cache_write`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct TokenUsage {
    /// Prompt tokens that came from no cache.
    pub input: u64,
    /// Tokens of the answer, thinking among them.
    pub output: u64,
    /// Prompt tokens read from the provider's cache.
    pub cache_read: u64,
    /// Prompt tokens written to it.
    pub cache_write: u64,
    /// All of them.
    pub total_tokens: u64,
    /// What they cost; written as zeros, because ctxhost knows no prices, and Pi reads the field.
    pub cost: TokenCost,
}

impl TokenUsage {
    /// The whole prompt, each token counted once.
    pub fn prompt_tokens(&self) -> u64 {
        self.input.saturating_add(self.cache_read).saturating_add(self.cache_write)
    }

    /// Sets the total from the parts.
    #[must_use]
    pub fn with_total(mut self) -> TokenUsage {
        self.total_tokens = self.prompt_tokens().saturating_add(self.output);
        self
    }
}

/// Prices as Pi writes them, in dollars.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct TokenCost {
    /// Of `input`.
    pub input: f64,
    /// Of `output`.
    pub output: f64,
    /// Of `cacheRead`.
    pub cache_read: f64,
    /// Of `cacheWrite`.
    pub cache_write: f64,
    /// Of all.
    pub total: f64,
}

/// Blocks, or one string for a text block.
fn deserialize_blocks<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<ChatBlock>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum StringOrBlocks {
        Text(String),
        Blocks(Vec<ChatBlock>),
        Nothing(()),
    }
    Ok(match StringOrBlocks::deserialize(from)? {
        StringOrBlocks::Text(text) if text.is_empty() => Vec::new(),
        StringOrBlocks::Text(text) => vec![ChatBlock::text(text)],
        StringOrBlocks::Blocks(blocks) => blocks,
        StringOrBlocks::Nothing(()) => Vec::new(),
    })
}

/// Arguments as an object, whatever the model made of them: what is no object stands under `input`.
pub fn arguments_object(arguments: &Value) -> Map<String, Value> {
    match arguments {
        Value::Object(map) => map.clone(),
        Value::Null => Map::new(),
        other => Map::from_iter([("input".to_owned(), other.clone())]),
    }
}
