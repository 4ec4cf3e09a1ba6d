//! Generated conversations of several models in five dialects: valid pairs, arbitrary otherwise.

use ctxhost_dialects::message::{StopReason, ToolCallBlock, ToolResultMessage, UserMessage};
use ctxhost_dialects::{AssistantMessage, ChatBlock, ChatMessage};
use ctxhost_tests::rules::Wire;
use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Value, json};

/// The person's words, an answer to them, and the results of its calls.
#[derive(Clone, Debug)]
pub(crate) struct Exchange {
    /// `None` where the model goes on by itself.
    user: Option<Vec<ChatBlock>>,
    speaker: Speaker,
    blocks: Vec<Block>,
    calls: Vec<Call>,
    stop_reason: StopReason,
    results_are_reversed: bool,
}

/// A model of a dialect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Speaker {
    pub(crate) wire: Wire,
    /// Which of its two models.
    pub(crate) second: bool,
}

impl Speaker {
    /// The name of its dialect in sessions.
    pub(crate) fn api(self) -> &'static str {
        match self.wire {
            Wire::OpenAiChat => "openai-completions",
            Wire::Responses => "openai-responses",
            Wire::Anthropic => "anthropic-messages",
            Wire::Gemini => "google-generative-ai",
            Wire::Ollama => "ollama",
        }
    }

    pub(crate) fn provider(self) -> &'static str {
        self.wire.name()
    }

    pub(crate) fn model(self) -> &'static str {
        let models = match self.wire {
            Wire::OpenAiChat => ["gpt-5", "llama-3"],
            Wire::Responses => ["gpt-5", "gpt-4o"],
            Wire::Anthropic => ["claude-sonnet-4-5", "claude-opus-5"],
            Wire::Gemini => ["gemini-3-pro", "gemini-2.5-flash"],
            Wire::Ollama => ["gpt-oss", "qwen3"],
        };
        models[usize::from(self.second)]
    }
}

/// What a model says besides its calls. Its signatures are numbered when all is put together.
#[derive(Clone, Debug)]
enum Block {
    Text {
        text: String,
        is_signed: bool,
    },
    Thinking {
        text: String,
        is_redacted: bool,
    },
    /// Thinking that was broken off before its signature came; it ends the answer.
    Unsigned(String),
    Item,
    Image(ChatBlock),
    Unknown,
}

/// A call and what came of it.
#[derive(Clone, Debug)]
struct Call {
    id: Id,
    name: String,
    arguments: Value,
    result: Vec<ChatBlock>,
    is_error: bool,
}

/// How a call's id is made from its number.
#[derive(Clone, Copy, Debug)]
enum Id {
    Plain,
    Reused,
    Huge,
    Piped,
    Dotted,
    Cyrillic,
    Empty,
}

impl Id {
    fn numbered(self, number: usize) -> String {
        match self {
            Id::Plain => format!("call_{number}"),
            Id::Reused => "call_0".to_owned(),
            Id::Huge => format!("call_{}{number}", "x".repeat(450)),
            Id::Piped => format!("call_{number}|fc_{}{number}", "a".repeat(60)),
            Id::Dotted => format!(" functions.read:{number} "),
            Id::Cyrillic => format!("вызов {number}"),
            Id::Empty => String::new(),
        }
    }
}

/// Any conversation, the empty one among them.
pub(crate) fn conversations() -> impl Strategy<Value = Vec<ChatMessage>> {
    vec(exchanges(), 0..7).prop_map(|exchanges| {
        let numbered = exchanges.into_iter().enumerate();
        numbered.flat_map(|(number, exchange)| exchange.messages(number)).collect()
    })
}

/// One of the ten models.
pub(crate) fn speakers() -> impl Strategy<Value = Speaker> {
    (prop::sample::select(Wire::ALL.to_vec()), any::<bool>())
        .prop_map(|(wire, second)| Speaker { wire, second })
}

/// Texts of several scripts; empty ones, blank ones and long ones among them.
pub(crate) fn texts() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => "[a-z ,.]{1,30}",
        2 => "[你好世界日本語テキスト한국어]{1,8}",
        1 => Just("\u{1F468}\u{200D}\u{1F469} 🦀 \"\\\u{1b}[0m".to_owned()),
        1 => Just(String::new()),
        1 => Just(" \n\t\u{a0}\u{3000}".to_owned()),
        1 => Just("\u{0}\u{7f}".to_owned()),
        1 => Just("long ".repeat(300)),
    ]
}

fn exchanges() -> impl Strategy<Value = Exchange> {
    let user = prop::option::weighted(0.8, vec(shown(), 0..3));
    let stops = vec![StopReason::Stop, StopReason::ToolUse, StopReason::Aborted, StopReason::Error];
    (
        user,
        speakers(),
        vec(blocks(), 0..4),
        vec(calls(), 0..4),
        prop::sample::select(stops),
        any::<bool>(),
    )
        .prop_map(|(user, speaker, blocks, calls, stop_reason, results_are_reversed)| {
            Exchange { user, speaker, blocks, calls, stop_reason, results_are_reversed }
        })
}

fn blocks() -> impl Strategy<Value = Block> {
    prop_oneof![
        4 => (texts(), any::<bool>()).prop_map(|(text, is_signed)| Block::Text { text, is_signed }),
        4 => (texts(), prop::bool::weighted(0.2))
            .prop_map(|(text, is_redacted)| Block::Thinking { text, is_redacted }),
        1 => texts().prop_map(Block::Unsigned),
        1 => Just(Block::Item),
        1 => images().prop_map(Block::Image),
        1 => Just(Block::Unknown),
    ]
}

fn calls() -> impl Strategy<Value = Call> {
    let ids = [Id::Plain, Id::Plain, Id::Plain, Id::Reused, Id::Huge, Id::Piped, Id::Dotted]
        .into_iter()
        .chain([Id::Cyrillic, Id::Empty]);
    let names = prop_oneof![
        5 => prop::sample::select(vec!["read", "mcp__files__read", "web-search"])
            .prop_map(str::to_owned),
        1 => prop::sample::select(vec!["", " read ", "mcp.files:read", "чтение", "rm -rf"])
            .prop_map(str::to_owned),
        1 => Just("n".repeat(65)),
    ];
    let arguments = prop_oneof![
        4 => texts().prop_map(|text| json!({ "path": text, "lines": [1, 2.5, null] })),
        1 => Just(json!({})),
        1 => Just(Value::Null),
        1 => Just(json!("not an object")),
        1 => Just(json!([1, { "deep": ["🦀"] }])),
    ];
    let ids = prop::sample::select(ids.collect::<Vec<_>>());
    (ids, names, arguments, vec(shown(), 0..3), any::<bool>()).prop_map(
        |(id, name, arguments, result, is_error)| Call { id, name, arguments, result, is_error },
    )
}

/// What a person or a tool may show.
fn shown() -> impl Strategy<Value = ChatBlock> {
    prop_oneof![
        4 => texts().prop_map(ChatBlock::text),
        2 => images(),
        1 => Just(ChatBlock::Other(json!({ "type": "hologram" }))),
    ]
}

fn images() -> impl Strategy<Value = ChatBlock> {
    let data = prop_oneof![3 => Just("iVBORw0KGgo=".to_owned()), 1 => Just(String::new())];
    let types = prop::sample::select(vec!["image/png", "image/png", "image/bmp", ""]);
    (data, types)
        .prop_map(|(data, mime_type)| ChatBlock::Image { data, mime_type: mime_type.to_owned() })
}

impl Exchange {
    fn messages(self, number: usize) -> Vec<ChatMessage> {
        let user = |content| ChatMessage::User(UserMessage { content, timestamp: 0 });
        let mut messages: Vec<_> = self.user.into_iter().map(user).collect();
        let speaker = self.speaker;
        // What has no signature was broken off: it ends the answer, and no call came.
        let whole = self.blocks.iter().take_while(|block| !matches!(block, Block::Unsigned(_)));
        let count = (whole.count() + 1).min(self.blocks.len());
        let is_whole = !self.blocks[..count].iter().any(|it| matches!(it, Block::Unsigned(_)));
        let blocks = self.blocks.into_iter().take(count).enumerate();
        let mut content: Vec<_> =
            blocks.map(|(at, block)| block.content(speaker.wire, number * 10 + at)).collect();
        let mut results = Vec::new();
        for (at, call) in self.calls.into_iter().filter(|_| is_whole).enumerate() {
            let (call, result) = call.messages(speaker.wire, number * 10 + 5 + at);
            content.push(ChatBlock::ToolCall(call));
            results.push(ChatMessage::ToolResult(result));
        }
        if self.results_are_reversed {
            results.reverse();
        }
        messages.push(ChatMessage::Assistant(AssistantMessage {
            content,
            api: speaker.api().to_owned(),
            provider: speaker.provider().to_owned(),
            model: speaker.model().to_owned(),
            stop_reason: self.stop_reason,
            ..AssistantMessage::default()
        }));
        messages.extend(results);
        messages
    }
}

impl Call {
    fn messages(self, wire: Wire, number: usize) -> (ToolCallBlock, ToolResultMessage) {
        let id = self.id.numbered(number);
        let signature = (wire == Wire::Gemini && number.is_multiple_of(2)).then(|| base64(number));
        let result = ToolResultMessage {
            tool_call_id: id.clone(),
            tool_name: self.name.clone(),
            content: self.result,
            is_error: self.is_error,
            timestamp: 0,
        };
        let (name, arguments) = (self.name, self.arguments);
        (ToolCallBlock { id, name, arguments, thought_signature: signature }, result)
    }
}

impl Block {
    fn content(self, wire: Wire, number: usize) -> ChatBlock {
        match self {
            Block::Text { text, is_signed } => {
                let text_signature = match wire {
                    Wire::Responses if is_signed => Some(message_signature(number)),
                    Wire::Gemini if is_signed => Some(base64(number)),
                    _ => None,
                };
                ChatBlock::Text { text, text_signature }
            }
            Block::Thinking { text, is_redacted } => thinking(wire, number, text, is_redacted),
            Block::Unsigned(thinking) => {
                ChatBlock::Thinking { thinking, thinking_signature: None, redacted: false }
            }
            Block::Item => {
                ChatBlock::ProviderItem { api: "openai-responses".to_owned(), item: item(number) }
            }
            Block::Image(image) => image,
            Block::Unknown => ChatBlock::Other(json!({ "type": "hologram" })),
        }
    }
}

/// Thinking as each dialect stores it.
fn thinking(wire: Wire, number: usize, text: String, is_redacted: bool) -> ChatBlock {
    let redacted = is_redacted && wire == Wire::Anthropic;
    let thinking = if redacted { String::new() } else { text };
    let thinking_signature = match wire {
        Wire::Anthropic | Wire::Gemini => Some(base64(number)),
        Wire::Responses => Some(reasoning(number)),
        Wire::OpenAiChat => Some("reasoning_content".to_owned()),
        Wire::Ollama => None,
    };
    ChatBlock::Thinking { thinking, thinking_signature, redacted }
}

fn base64(number: usize) -> String {
    format!("c2ln{number:08}")
}

fn message_signature(number: usize) -> String {
    json!({ "v": 1, "id": format!("msg_{number}"), "phase": "final_answer" }).to_string()
}

/// Some servers leave the summary out.
fn reasoning(number: usize) -> String {
    let mut item = json!({ "type": "reasoning", "id": format!("rs_{number}"),
        "encrypted_content": base64(number) });
    if number.is_multiple_of(2) {
        item["summary"] = json!([{ "type": "summary_text", "text": "hm" }]);
    }
    item.to_string()
}

/// Items of the server's own, with ids that may come twice.
fn item(number: usize) -> Value {
    match number % 3 {
        0 => json!({ "type": "web_search_call", "id": "ws_1", "status": "completed" }),
        1 => {
            json!({ "type": "custom_tool_call", "call_id": format!("ctc_{number}"), "name": "patch",
            "input": "x" })
        }
        _ => json!({ "type": "compaction", "id": format!("cmp_{number}"),
            "encrypted_content": base64(number) }),
    }
}
