//! Messages between the host and models. Their JSON is that of Pi sessions, so they are stored as
//! they are sent.

use ctxhost_engine_api::transcript::links::AnswerLinks;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Map, Value};

/// One message of a request, or the answer to it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "role", rename_all = "camelCase")]
// Half of all messages are answers: boxing them would cost more than the space of the others.
#[allow(clippy::large_enum_variant)]
pub enum ChatMessage {
    /// Of the user, or of the host in the user's place.
    User(UserMessage),
    /// Of the model.
    Assistant(AssistantMessage),
    /// Of a tool.
    ToolResult(ToolResultMessage),
}

impl ChatMessage {
    /// A user message with one text.
    pub fn from_user_text(text: impl Into<String>) -> ChatMessage {
        ChatMessage::User(UserMessage { content: vec![ChatBlock::text(text)], timestamp: 0 })
    }

    /// Removes what only its provider can read: thinking and provider items.
    pub fn strip_provider_content(&mut self) {
        if let ChatMessage::Assistant(message) = self {
            message.content.retain(|block| {
                !matches!(block, ChatBlock::Thinking { .. } | ChatBlock::ProviderItem { .. })
            });
        }
    }

    /// The message's blocks.
    pub fn content(&self) -> &[ChatBlock] {
        match self {
            ChatMessage::User(message) => &message.content,
            ChatMessage::Assistant(message) => &message.content,
            ChatMessage::ToolResult(message) => &message.content,
        }
    }
}

/// A message of the user.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct UserMessage {
    /// The blocks; a plain string is read as one text block.
    #[serde(deserialize_with = "deserialize_blocks")]
    pub content: Vec<ChatBlock>,
    /// Milliseconds since 1970.
    pub timestamp: i64,
}

/// A message of the model.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct AssistantMessage {
    /// The blocks in order.
    #[serde(deserialize_with = "deserialize_blocks")]
    pub content: Vec<ChatBlock>,
    /// The dialect that received it, such as `anthropic-messages`. Signatures are valid only there.
    pub api: String,
    /// The provider's name in the config.
    pub provider: String,
    /// The requested model, as the provider writes it.
    pub model: String,
    /// The model that answered, if its name differs: `gpt-4.1-2025-04-14` for `gpt-4.1`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub response_model: String,
    /// The provider's id of the answer; empty without one.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub response_id: String,
    /// Token counts of the provider.
    pub usage: TokenUsage,
    /// Why the model stopped.
    pub stop_reason: StopReason,
    /// The provider's own stop reason if it says more, such as `model_context_window_exceeded`.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub raw_stop_reason: String,
    /// The error that ended the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error_message: Option<String>,
    /// Its links to other answers.
    #[serde(skip_serializing_if = "AnswerLinks::is_empty")]
    pub links: AnswerLinks,
    /// Milliseconds since 1970.
    pub timestamp: i64,
}

impl AssistantMessage {
    /// A message received in the dialect `api`, without usage and time.
    pub fn new(api: &str, content: Vec<ChatBlock>) -> AssistantMessage {
        AssistantMessage { content, api: api.to_owned(), ..AssistantMessage::default() }
    }

    /// The texts, joined by line feeds. Blocks without text exist for their signatures.
    pub fn text(&self) -> String {
        text_of(&self.content)
    }

    /// The tool calls among the blocks.
    pub fn tool_calls(&self) -> impl Iterator<Item = &ToolCallBlock> {
        tool_calls(&self.content)
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

/// One block of a message.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "camelCase", rename_all_fields = "camelCase")]
pub enum ChatBlock {
    /// Text.
    Text {
        /// The text.
        text: String,
        /// The provider's signature, sent back unchanged.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        text_signature: Option<String>,
    },
    /// The model's thinking. Sent back unchanged to the model that produced it, or not at all.
    Thinking {
        /// The thinking; empty if redacted or encrypted.
        thinking: String,
        /// The signature, or the encrypted thinking.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        thinking_signature: Option<String>,
        /// Whether the provider redacted it.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        redacted: bool,
    },
    /// A tool call.
    ToolCall(ToolCallBlock),
    /// An image.
    Image {
        /// Base64.
        data: String,
        /// Such as `image/png`.
        mime_type: String,
    },
    /// An item that only one dialect knows, kept unchanged.
    ProviderItem {
        /// The dialect, as in [`AssistantMessage::api`].
        api: String,
        /// The item.
        item: Value,
    },
    /// A block of an unknown type.
    // Kept unread, so that blocks of newer versions survive a round trip.
    #[serde(untagged)]
    Other(Value),
}

impl ChatBlock {
    /// A block of text.
    pub fn text(text: impl Into<String>) -> ChatBlock {
        ChatBlock::Text { text: text.into(), text_signature: None }
    }

    /// A block of thinking, not redacted.
    pub fn thinking(thinking: impl Into<String>, signature: Option<String>) -> ChatBlock {
        let (thinking, thinking_signature) = (thinking.into(), signature);
        ChatBlock::Thinking { thinking, thinking_signature, redacted: false }
    }
}

/// A tool call.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ToolCallBlock {
    /// The id that the result refers to.
    pub id: String,
    /// The tool's name.
    pub name: String,
    /// The arguments; an object.
    pub arguments: Value,
    /// Gemini's signature of the call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thought_signature: Option<String>,
}

impl ToolCallBlock {
    /// A call without a signature.
    pub fn new(id: String, name: String, arguments: Value) -> ToolCallBlock {
        ToolCallBlock { id, name, arguments, thought_signature: None }
    }
}

/// The tool calls among blocks.
pub(crate) fn tool_calls(blocks: &[ChatBlock]) -> impl Iterator<Item = &ToolCallBlock> {
    blocks.iter().filter_map(|block| match block {
        ChatBlock::ToolCall(call) => Some(call),
        _ => None,
    })
}

/// The texts among blocks that are not empty, joined by line feeds.
pub(crate) fn text_of(blocks: &[ChatBlock]) -> String {
    let texts = blocks.iter().filter_map(|block| match block {
        ChatBlock::Text { text, .. } if !text.is_empty() => Some(text.as_str()),
        _ => None,
    });
    texts.collect::<Vec<_>>().join("\n")
}

/// Why a model stopped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum StopReason {
    /// The answer is complete.
    #[default]
    Stop,
    /// The answer reached a limit.
    Length,
    /// The model requests tool results.
    ToolUse,
    /// The answer ended in an error.
    Error,
    /// The user aborted it.
    Aborted,
    /// A stop reason of another writer.
    #[serde(other)]
    Other,
}

/// Token counts of a provider. The whole prompt is `input + cache_read + cache_write`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct TokenUsage {
    /// Prompt tokens outside of the cache.
    pub input: u64,
    /// Tokens of the answer, including thinking.
    pub output: u64,
    /// Prompt tokens read from the provider's cache.
    pub cache_read: u64,
    /// Prompt tokens written to the cache.
    pub cache_write: u64,
    /// All tokens.
    pub total_tokens: u64,
    /// Cost: zeros, since ctxhost knows no prices; Pi requires the field.
    pub cost: TokenCost,
}

impl TokenUsage {
    /// Tokens of the whole prompt.
    pub fn prompt_tokens(&self) -> u64 {
        // Providers bill cached tokens apart, but they fill the window as well.
        self.input.saturating_add(self.cache_read).saturating_add(self.cache_write)
    }

    /// Sets `total_tokens` from the other counts.
    #[must_use]
    pub fn with_total(mut self) -> TokenUsage {
        self.total_tokens = self.prompt_tokens().saturating_add(self.output);
        self
    }
}

/// Prices in dollars, as in Pi sessions.
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
    /// Of all tokens.
    pub total: f64,
}

/// Reads blocks, or a string as one text block.
fn deserialize_blocks<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<ChatBlock>, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum StringOrBlocks {
        Text(String),
        Blocks(Vec<ChatBlock>),
        Null(()),
    }
    Ok(match StringOrBlocks::deserialize(from)? {
        StringOrBlocks::Text(text) if text.is_empty() => Vec::new(),
        StringOrBlocks::Text(text) => vec![ChatBlock::text(text)],
        StringOrBlocks::Blocks(blocks) => blocks,
        StringOrBlocks::Null(()) => Vec::new(),
    })
}

/// Arguments as an object: any other value becomes the field `input`.
pub fn arguments_object(arguments: &Value) -> Map<String, Value> {
    match arguments {
        Value::Object(map) => map.clone(),
        Value::Null => Map::new(),
        // Providers accept objects only, and the model should see again what it wrote.
        other => Map::from_iter([("input".to_owned(), other.clone())]),
    }
}
