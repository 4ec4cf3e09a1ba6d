//! Parses messages on demand: blocks, tool calls and results, borrowed from an entry's JSON.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

/// One block of a message.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum ContentBlock<'a> {
    /// Plain text.
    Text(Cow<'a, str>),
    /// The model's thinking. The signature covers its exact bytes.
    Thinking {
        /// The text; may be empty if the provider redacted it.
        text: Cow<'a, str>,
        /// The provider's signature.
        signature: Option<Cow<'a, str>>,
    },
    /// A call of a tool.
    ToolCall(ToolCall<'a>),
    /// An image, base64.
    Image {
        /// The MIME type, for instance `image/png`.
        mime: Cow<'a, str>,
        /// The image, base64.
        data: Cow<'a, str>,
    },
    /// A block of an unknown type, as JSON.
    Other(Cow<'a, str>),
}

/// A call of a tool by the model.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolCall<'a> {
    /// The id that the result answers.
    pub id: Cow<'a, str>,
    /// The tool's name.
    pub name: Cow<'a, str>,
    /// The arguments as JSON text; `{}` if the call has none.
    pub arguments: Cow<'a, str>,
}

impl ToolCall<'_> {
    /// The parsed arguments; `null` if they are not JSON.
    pub fn arguments_value(&self) -> Value {
        serde_json::from_str(&self.arguments).unwrap_or(Value::Null)
    }

    /// The first of the named arguments that is a string.
    pub fn string_argument(&self, names: &[&str]) -> Option<String> {
        let value = self.arguments_value();
        names.iter().find_map(|name| value.get(name)?.as_str().map(str::to_owned))
    }
}

/// The head of a tool result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolResult<'a> {
    /// The id of the call it answers.
    pub call_id: Cow<'a, str>,
    /// The tool's name; empty if unknown.
    pub tool: Cow<'a, str>,
    /// Whether the tool failed.
    pub is_error: bool,
}

impl<'a> ToolResult<'a> {
    /// Parses the JSON of a message without its blocks; `None` for any other message.
    pub(super) fn parse(raw: &'a str) -> Option<ToolResult<'a>> {
        let (_role, wire) = MessageJson::parse(raw)?;
        wire.result()
    }
}

/// A message parsed from an entry's JSON.
#[derive(Clone, Debug, PartialEq)]
pub struct Message<'a> {
    /// The role as the session writes it: `user`, `assistant`, `toolResult`, `bashExecution`, …
    pub role: Cow<'a, str>,
    /// The blocks in order.
    pub blocks: Vec<ContentBlock<'a>>,
    /// Why the model stopped, for assistant messages: `stop`, `toolUse`, `length`, `error`, `aborted`.
    pub stop_reason: Option<Cow<'a, str>>,
    result: Option<ToolResult<'a>>,
}

impl<'a> Message<'a> {
    /// Parses the JSON of a message; other input becomes one text block with `fallback`.
    pub fn parse(raw: &'a str, fallback: &'a str) -> Message<'a> {
        let Some((role, mut wire)) = MessageJson::parse(raw) else {
            return Message::plain(fallback);
        };
        let stop_reason = wire.stop_reason.take().map(|reason| reason.0);
        let blocks = match wire.content {
            Some(content) => blocks_of(content.get()),
            // Entries such as shell commands have no content, but the host rendered a text for
            // them.
            None => vec![ContentBlock::Text(Cow::Borrowed(fallback))],
        };
        Message { role, blocks, stop_reason, result: wire.result() }
    }

    /// The calls among the blocks, in order.
    pub fn tool_calls(self) -> Vec<ToolCall<'a>> {
        let call = |block| if let ContentBlock::ToolCall(call) = block { Some(call) } else { None };
        self.blocks.into_iter().filter_map(call).collect()
    }

    /// The head of the result, if this message is one.
    pub fn tool_result(self) -> Option<ToolResult<'a>> {
        self.result
    }

    /// The text blocks joined by newlines, as in [`Entry::text`](crate::Entry::text).
    pub fn text(&self) -> String {
        let texts = self.blocks.iter().filter_map(|block| match block {
            ContentBlock::Text(text) => Some(text.as_ref()),
            _ => None,
        });
        let mut joined = String::new();
        for (at, text) in texts.enumerate() {
            if at > 0 {
                joined.push('\n');
            }
            joined.push_str(text);
        }
        joined
    }

    fn plain(text: &'a str) -> Message<'a> {
        Message {
            role: Cow::Borrowed("user"),
            blocks: vec![ContentBlock::Text(Cow::Borrowed(text))],
            stop_reason: None,
            result: None,
        }
    }
}

// A newtype because `Option<Cow<str>>` always deserialises to an owned string: serde accepts the `borrow`
// attribute on a `Cow` field, but not inside an `Option`.
#[derive(Deserialize)]
struct BorrowedText<'a>(#[serde(borrow)] Cow<'a, str>);

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct MessageJson<'a> {
    #[serde(borrow)]
    role: Option<BorrowedText<'a>>,
    #[serde(borrow)]
    content: Option<&'a RawValue>,
    #[serde(borrow)]
    stop_reason: Option<BorrowedText<'a>>,
    #[serde(borrow)]
    tool_call_id: Option<BorrowedText<'a>>,
    #[serde(borrow)]
    tool_name: Option<BorrowedText<'a>>,
    is_error: Option<bool>,
}

impl<'a> MessageJson<'a> {
    /// The role, and the other fields; `None` for JSON without a role.
    fn parse(raw: &'a str) -> Option<(Cow<'a, str>, MessageJson<'a>)> {
        let mut wire = serde_json::from_str::<MessageJson<'a>>(raw).ok()?;
        Some((wire.role.take()?.0, wire))
    }

    fn result(self) -> Option<ToolResult<'a>> {
        let call_id = self.tool_call_id?.0;
        let tool = self.tool_name.map_or(Cow::Borrowed(""), |name| name.0);
        Some(ToolResult { call_id, tool, is_error: self.is_error.unwrap_or(false) })
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ContentBlockJson<'a> {
    #[serde(borrow, rename = "type")]
    kind: Option<BorrowedText<'a>>,
    #[serde(borrow)]
    text: Option<BorrowedText<'a>>,
    #[serde(borrow)]
    thinking: Option<BorrowedText<'a>>,
    #[serde(borrow)]
    thinking_signature: Option<BorrowedText<'a>>,
    #[serde(borrow)]
    id: Option<BorrowedText<'a>>,
    #[serde(borrow)]
    name: Option<BorrowedText<'a>>,
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
    #[serde(borrow)]
    data: Option<BorrowedText<'a>>,
    #[serde(borrow)]
    mime_type: Option<BorrowedText<'a>>,
}

fn blocks_of(content: &str) -> Vec<ContentBlock<'_>> {
    // Content is a plain string in some messages, otherwise a list of blocks. A failed parse makes an error text, which
    // for the messages of a long request takes longer than parsing them.
    if content.starts_with('"')
        && let Ok(BorrowedText(text)) = serde_json::from_str(content)
    {
        return vec![ContentBlock::Text(text)];
    }
    let raw_blocks: Vec<&RawValue> = serde_json::from_str(content).unwrap_or_default();
    raw_blocks.into_iter().map(|raw| block_of(raw.get())).collect()
}

fn block_of(raw: &str) -> ContentBlock<'_> {
    // Unknown blocks keep their JSON, so that they can be sent back unchanged.
    let other = ContentBlock::Other(Cow::Borrowed(raw));
    let Ok(wire) = serde_json::from_str::<ContentBlockJson<'_>>(raw) else { return other };
    let or_empty =
        |text: Option<BorrowedText<'_>>| text.map_or_else(String::new, |t| t.0.into_owned());
    match wire.kind.as_ref().map(|kind| kind.0.as_ref()) {
        Some("text") => wire.text.map_or(other, |text| ContentBlock::Text(text.0)),
        Some("thinking") => ContentBlock::Thinking {
            text: wire.thinking.map_or(Cow::Borrowed(""), |text| text.0),
            signature: wire.thinking_signature.map(|text| text.0),
        },
        Some("toolCall") => ContentBlock::ToolCall(ToolCall {
            id: wire.id.map_or(Cow::Borrowed(""), |text| text.0),
            name: wire.name.map_or(Cow::Borrowed(""), |text| text.0),
            arguments: Cow::Borrowed(wire.arguments.map_or("{}", RawValue::get)),
        }),
        Some("image") => ContentBlock::Image {
            mime: Cow::Owned(or_empty(wire.mime_type)),
            data: wire.data.map_or(Cow::Borrowed(""), |text| text.0),
        },
        _ => other,
    }
}
