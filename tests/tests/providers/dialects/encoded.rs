//! Encoded requests keep the rules, whatever the history and the model before it.

use std::collections::HashSet;

use axum::http::{HeaderMap, HeaderName};
use ctxhost_dialects::cross_model::adapt_messages;
use ctxhost_dialects::openai_chat::{Compat, CompatSettings, OpenAiChat};
use ctxhost_dialects::{
    Anthropic, AssistantMessage, ChatBlock, ChatMessage, ContextEditing, Dialect, Gemini,
    ModelRequest, Ollama, OpenAiResponses, ThinkingLevel,
};
use ctxhost_engine_api::ToolSpec;
use ctxhost_tests::rules::{self, Broken, Issued, Memory, Part, Wire};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::conversations::{Speaker, conversations, speakers, texts};

/// What is asked for beside the conversation.
#[derive(Clone, Debug)]
pub(crate) struct Wish {
    system: String,
    thinking: ThinkingLevel,
    max_output_tokens: u64,
    temperature: Option<f32>,
    has_tools: bool,
    /// Whether the dialect is told of everything it can be told of.
    pub(crate) is_peculiar: bool,
}

pub(crate) fn wishes() -> impl Strategy<Value = Wish> {
    let levels = [ThinkingLevel::Off, ThinkingLevel::Low, ThinkingLevel::High];
    let limits = [0, 1, 1_024, 2_000, 32_000];
    (
        texts(),
        prop::sample::select(levels.to_vec()),
        prop::sample::select(limits.to_vec()),
        prop::option::of(prop::sample::select(vec![0.0_f32, 0.7, 2.0])),
        any::<bool>(),
        any::<bool>(),
    )
        .prop_map(
            |(system, thinking, max_output_tokens, temperature, has_tools, is_peculiar)| Wish {
                system,
                thinking,
                max_output_tokens,
                temperature,
                has_tools,
                is_peculiar,
            },
        )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_request_keeps_every_rule(
        messages in conversations(),
        reader in speakers(),
        wish in wishes(),
    ) {
        let broken = broken(&messages, reader, &wish);
        prop_assert!(broken.is_empty(), "{reader:?}: {}", reported(&broken));
    }

    #[test]
    fn what_is_sent_does_not_depend_on_what_comes_later(
        messages in conversations(),
        reader in speakers(),
    ) {
        let read = |messages: &[ChatMessage]| {
            adapt_messages(messages, reader.api(), reader.provider(), reader.model())
        };
        let all = read(&messages);
        let whole = |at: &usize| !matches!(messages[*at], ChatMessage::ToolResult(_));
        for shown in (0..messages.len()).filter(whole) {
            let earlier = read(&messages[..shown]);
            prop_assert_eq!(&all[..earlier.len()], &earlier[..]);
        }
    }
}

fn broken(messages: &[ChatMessage], reader: Speaker, wish: &Wish) -> Vec<Broken> {
    let dialect = dialect(reader.wire, wish.is_peculiar);
    let request = request(messages, reader, wish);
    let mut headers = HeaderMap::new();
    for (name, value) in dialect.headers(&request) {
        headers.insert(HeaderName::from_static(name), value.parse().unwrap());
    }
    let memory = memory(messages, reader);
    let can_compare = are_distinguished(messages, reader) && are_apart(&request.messages);
    let sent = [(dialect.path(&request), dialect.encode(&request))];
    let asked = sent
        .into_iter()
        .chain(dialect.count_request(&request))
        .chain(dialect.compact_request(&request));
    let check = |(path, body): (String, Value)| {
        let mut broken = rules::check(reader.wire, &path, &headers, &body);
        broken.extend(memory.check(reader.wire, &body));
        broken
    };
    let counts = |broken: &Broken| can_compare || !["A-15", "A-17"].contains(&broken.rule);
    asked.flat_map(check).filter(counts).collect()
}

/// Whether no two answers of the reader's have the same calls, or the same text and no calls. The memory
/// takes one for the other then; real servers repeat no id.
fn are_distinguished(messages: &[ChatMessage], reader: Speaker) -> bool {
    let mut keys = HashSet::new();
    own(messages, reader).all(|message| {
        let ids: String = message.tool_calls().map(|call| call.id.trim()).collect();
        let text: String = message.text().split_whitespace().collect();
        keys.insert(if ids.is_empty() { text } else { ids })
    })
}

/// Whether somebody speaks between every two answers: neighbours are sent as one, which no answer was.
fn are_apart(messages: &[ChatMessage]) -> bool {
    let is_answer = |message: &ChatMessage| matches!(message, ChatMessage::Assistant(_));
    !messages.windows(2).any(|pair| pair.iter().all(is_answer))
}

/// The answers that the reader gave.
fn own(messages: &[ChatMessage], reader: Speaker) -> impl Iterator<Item = &AssistantMessage> {
    messages.iter().filter_map(move |message| match message {
        ChatMessage::Assistant(message) => {
            let name = (message.provider.as_str(), message.model.as_str());
            (name == (reader.provider(), reader.model())).then_some(message)
        }
        _ => None,
    })
}

pub(crate) fn reported(broken: &[Broken]) -> String {
    broken.iter().map(Broken::to_string).collect::<Vec<_>>().join("\n")
}

pub(crate) fn dialect(wire: Wire, is_peculiar: bool) -> Box<dyn Dialect> {
    let yes = Some(is_peculiar);
    match wire {
        Wire::OpenAiChat => {
            let settings = CompatSettings {
                developer_role: yes,
                reasoning_content: yes,
                tool_result_name: yes,
                assistant_after_results: yes,
                tools_with_history: yes,
                nine_char_ids: yes,
                ..CompatSettings::default()
            };
            Box::new(OpenAiChat::new(Compat::new(&settings, "https://api.openai.com/v1")))
        }
        Wire::Responses => Box::new(OpenAiResponses),
        Wire::Anthropic => Box::new(Anthropic {
            context_editing: is_peculiar.then(ContextEditing::default),
            one_hour_cache: is_peculiar,
            drop_unbound_thinking: is_peculiar,
        }),
        Wire::Gemini => Box::new(Gemini),
        Wire::Ollama => Box::new(Ollama),
    }
}

pub(crate) fn request(messages: &[ChatMessage], reader: Speaker, wish: &Wish) -> ModelRequest {
    let tool = ToolSpec {
        name: "read".to_owned(),
        description: "Reads a file.".to_owned(),
        input_schema: json!({ "type": "object", "properties": { "path": { "type": "string" } } }),
    };
    ModelRequest {
        model: reader.model().to_owned(),
        system: wish.system.clone(),
        messages: adapt_messages(messages, reader.api(), reader.provider(), reader.model()),
        tools: wish.has_tools.then_some(tool).into_iter().collect(),
        max_output_tokens: wish.max_output_tokens,
        window_tokens: 100_000,
        thinking: wish.thinking,
        temperature: wish.temperature,
        cache_key: "session ".repeat(12),
    }
}

/// What the server remembers of the answers that it gave by itself.
fn memory(messages: &[ChatMessage], reader: Speaker) -> Memory {
    let mut memory = Memory::new(false);
    for message in own(messages, reader) {
        let parts = parts(reader.wire, &message.content);
        memory.issue(reader.wire, &Value::Null, &Issued { parts, ..Issued::default() });
    }
    memory
}

/// Thinking at the end led to nothing: the answer broke off, and the server does not ask for it.
/// Gemini signs even that.
fn parts(wire: Wire, blocks: &[ChatBlock]) -> Vec<Part> {
    let led =
        |block: &ChatBlock| wire == Wire::Gemini || !matches!(block, ChatBlock::Thinking { .. });
    let end = blocks.iter().rposition(led).map_or(0, |last| last + 1);
    blocks[..end].iter().filter_map(|block| part(wire, block)).collect()
}

fn part(wire: Wire, block: &ChatBlock) -> Option<Part> {
    let owned = |text: &Option<String>| text.clone().unwrap_or_default();
    Some(match block {
        ChatBlock::Text { text, text_signature } => {
            Part::Text { id: String::new(), text: text.clone(), signature: owned(text_signature) }
        }
        ChatBlock::Thinking { thinking, thinking_signature, .. } => {
            let signature = owned(thinking_signature);
            let item: Value = serde_json::from_str(&signature).unwrap_or_default();
            match (wire, item["encrypted_content"].as_str()) {
                (Wire::Gemini, _) => {
                    Part::Text { id: String::new(), text: thinking.clone(), signature }
                }
                (_, Some(encrypted)) => Part::Thinking {
                    id: item["id"].as_str().unwrap_or_default().to_owned(),
                    text: thinking.clone(),
                    signature: encrypted.to_owned(),
                },
                _ => Part::Thinking { id: String::new(), text: thinking.clone(), signature },
            }
        }
        ChatBlock::ToolCall(call) => Part::Call {
            id: String::new(),
            call_id: call.id.clone(),
            name: call.name.trim().to_owned(),
            signature: owned(&call.thought_signature),
        },
        ChatBlock::ProviderItem { item, .. } => {
            Part::Compaction { encrypted: item["encrypted_content"].as_str()?.to_owned() }
        }
        ChatBlock::Image { .. } | ChatBlock::Other(_) => return None,
    })
}
