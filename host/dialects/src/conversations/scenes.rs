//! Requests with invalid conversations, which an encoder has to repair.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};

use super::{image, request, result_of, thinking_block};
use crate::message::{
    AssistantMessage, ChatBlock, ChatMessage, StopReason, ToolCallBlock, UserMessage,
};
use crate::request::{ModelRequest, ThinkingLevel};

/// Any request of a dialect to one of these models, with valid and invalid conversations.
pub(crate) fn requests(
    api: &'static str,
    models: &'static [&'static str],
) -> impl Strategy<Value = ModelRequest> {
    let levels = [ThinkingLevel::Off, ThinkingLevel::Low, ThinkingLevel::High];
    let messages = vec(scenes(api, models), 0..10).prop_map(|scenes| scenes.concat());
    let rest = (select(&[0, 500, 1_024, 2_000, 32_000][..]), prop::bool::ANY, prop::bool::ANY);
    (select(models), messages, texts(), select(levels.to_vec()), rest).prop_map(
        |(model, messages, system, thinking, (max_output_tokens, has_tools, warm))| {
            let mut request = request(model, messages);
            request.system = system;
            request.thinking = thinking;
            request.max_output_tokens = max_output_tokens;
            request.temperature = warm.then_some(0.5);
            if !has_tools {
                request.tools.clear();
            }
            request
        },
    )
}

/// A few messages that belong together.
fn scenes(
    api: &'static str,
    models: &'static [&'static str],
) -> impl Strategy<Value = Vec<ChatMessage>> {
    prop_oneof![
        2 => vec(shown(), 0..3).prop_map(|content| {
            vec![ChatMessage::User(UserMessage { content, timestamp: 0 })]
        }),
        2 => spoken(api, models).prop_map(|message| vec![message]),
        1 => outcome().prop_map(|outcome| vec![outcome]),
        4 => (spoken(api, models), vec(called(), 1..4), vec(outcome(), 0..5))
            .prop_map(|(message, calls, outcomes)| round(message, calls, outcomes)),
    ]
}

/// Calls with results in any order, twice, never, and between user messages.
fn round(
    message: ChatMessage,
    calls: Vec<ChatBlock>,
    outcomes: Vec<ChatMessage>,
) -> Vec<ChatMessage> {
    let mut messages = vec![message];
    if let Some(ChatMessage::Assistant(message)) = messages.first_mut() {
        message.content.extend(calls);
    }
    messages.extend(outcomes);
    messages
}

fn spoken(
    api: &'static str,
    models: &'static [&'static str],
) -> impl Strategy<Value = ChatMessage> {
    let block = prop_oneof![
        3 => texts().prop_map(ChatBlock::text),
        1 => texts().prop_map(|text| ChatBlock::Text { text, text_signature: Some("QUJD".into()) }),
        2 => (texts(), select(&[None, Some(""), Some("QUJDRA=="), Some("no base64")][..]))
            .prop_map(|(text, signature)| thinking_block(&text, signature)),
        1 => Just(ChatBlock::Thinking {
            thinking: String::new(),
            thinking_signature: Some("hidden".into()),
            redacted: true,
        }),
        1 => Just(image()),
        1 => Just(ChatBlock::Other(json!({ "type": "hologram" }))),
        1 => called(),
    ];
    let aborted = prop::bool::weighted(0.2);
    (vec(block, 0..4), select(vec![api, "other-api", ""]), select(models), aborted).prop_map(
        |(content, api, model, aborted)| {
            let stop_reason = if aborted { StopReason::Aborted } else { StopReason::Stop };
            let (api, model) = (api.to_owned(), model.to_owned());
            let message =
                AssistantMessage { content, api, model, stop_reason, ..Default::default() };
            ChatMessage::Assistant(message)
        },
    )
}

fn called() -> impl Strategy<Value = ChatBlock> {
    let arguments =
        vec![json!({ "path": "长城" }), json!({}), Value::Null, json!("half"), json!([1])];
    let names = select(&["read", "mcp.server:read", "", "читать"][..]);
    let signature = select(&[None, Some("QUJD"), Some("not base64")][..]);
    (ids(), names, select(arguments), signature).prop_map(|(id, name, arguments, signature)| {
        let (name, thought_signature) = (name.to_owned(), signature.map(str::to_owned));
        ChatBlock::ToolCall(ToolCallBlock { id, name, arguments, thought_signature })
    })
}

fn outcome() -> impl Strategy<Value = ChatMessage> {
    prop_oneof![
        5 => (ids(), vec(shown(), 0..3), prop::bool::ANY)
            .prop_map(|(id, content, is_error)| result_of(&id, content, is_error)),
        1 => texts().prop_map(ChatMessage::from_user_text),
    ]
}

/// Few ids, so that they meet: legal, illegal, empty, too long, and one that a number may lead to.
fn ids() -> impl Strategy<Value = String> {
    let ids = ["toolu_1", "toolu_1_2", "call|2", "дом", "", "ctxhost_call_0_1"].map(str::to_owned);
    prop_oneof![8 => select(ids.to_vec()), 1 => Just("x".repeat(90))]
}

fn shown() -> impl Strategy<Value = ChatBlock> {
    prop_oneof![
        4 => texts().prop_map(ChatBlock::text),
        1 => Just(image()),
        1 => Just(ChatBlock::Image { data: "QUJD".into(), mime_type: "image/tiff".into() }),
        1 => Just(ChatBlock::Other(json!({ "type": "hologram" }))),
    ]
}

fn texts() -> impl Strategy<Value = String> {
    let texts = ["", " \n\t", "\u{3000}", "do it", "ends here \n", "压缩上下文", "👩‍💻 ok"];
    select(texts.to_vec()).prop_map(str::to_owned)
}
