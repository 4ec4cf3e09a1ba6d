//! Valid conversations: small and shrinkable.

use proptest::collection::vec;
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::message::{
    AssistantMessage, ChatBlock, ChatMessage, StopReason, ToolCallBlock, ToolResultMessage,
    UserMessage,
};

/// Any conversation of a few rounds: parallel calls, aborted turns, images, empty texts, CJK, blocks
/// of the given dialect and of others.
pub(crate) fn conversations(api: &'static str) -> impl Strategy<Value = Vec<ChatMessage>> {
    vec(rounds(api), 1..8).prop_map(|rounds| {
        let numbered = rounds.into_iter().enumerate();
        numbered.flat_map(|(number, round)| round.messages(number)).collect()
    })
}

/// A user message, the model's answer, and the results of its calls.
#[derive(Clone, Debug)]
struct Round {
    user: Vec<ChatBlock>,
    blocks: Vec<ChatBlock>,
    api: &'static str,
    stop_reason: StopReason,
    results: Vec<(Vec<ChatBlock>, bool)>,
    calls: Vec<(String, Value)>,
}

impl Round {
    fn messages(self, number: usize) -> Vec<ChatMessage> {
        let id = |at: usize, shape: &str| format!("{shape}{number}_{at}");
        let mut content = self.blocks;
        let mut messages =
            vec![ChatMessage::User(UserMessage { content: self.user, timestamp: 0 })];
        let mut results = Vec::new();
        for (at, ((shape, arguments), result)) in
            self.calls.into_iter().zip(self.results).enumerate()
        {
            let (call_id, name) = (id(at, &shape), format!("tool.{at}"));
            content.push(ChatBlock::ToolCall(ToolCallBlock {
                id: call_id.clone(),
                name: name.clone(),
                arguments,
                thought_signature: None,
            }));
            results.push(ChatMessage::ToolResult(ToolResultMessage {
                tool_call_id: call_id,
                tool_name: name,
                content: result.0,
                is_error: result.1,
                timestamp: 0,
            }));
        }
        messages.push(ChatMessage::Assistant(AssistantMessage {
            content,
            api: self.api.to_owned(),
            stop_reason: self.stop_reason,
            ..AssistantMessage::default()
        }));
        messages.extend(results);
        messages
    }
}

fn rounds(api: &'static str) -> impl Strategy<Value = Round> {
    let apis = prop::sample::select(vec![api, api, "anthropic-messages"]);
    let stops = prop::sample::select(vec![StopReason::Stop, StopReason::Aborted]);
    let result = (vec(prop_oneof![text(), image()], 0..3), any::<bool>());
    (
        vec(prop_oneof![text(), image()], 0..3),
        vec(block(api), 0..4),
        apis,
        stops,
        vec(result, 3),
        vec(call(), 0..4),
    )
        .prop_map(|(user, blocks, api, stop_reason, results, calls)| Round {
            user,
            blocks,
            api,
            stop_reason,
            results,
            calls,
        })
}

fn texts() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(String::new()),
        "[a-z ]{1,12}",
        "[你好世界テキスト]{1,6}",
        Just("🦀\n\"\\".into())
    ]
}

fn text() -> impl Strategy<Value = ChatBlock> {
    texts().prop_map(ChatBlock::text)
}

fn image() -> impl Strategy<Value = ChatBlock> {
    let data = prop_oneof![Just(String::new()), Just("iVBORw0KGgo=".to_owned())];
    data.prop_map(|data| ChatBlock::Image { data, mime_type: "image/png".to_owned() })
}

fn call() -> impl Strategy<Value = (String, Value)> {
    let shapes =
        prop_oneof!["call_[a-z]{3}", "call_[a-z]{3}[|]fc_[a-z]{60}", Just("дом ".to_owned())];
    let arguments = prop_oneof![
        Just(json!({})),
        Just(Value::Null),
        Just(json!("not an object")),
        texts().prop_map(|text| json!({ "path": text })),
    ];
    (shapes, arguments)
}

fn block(api: &'static str) -> impl Strategy<Value = ChatBlock> {
    let thinking = (texts(), signature()).prop_map(|(thinking, thinking_signature)| {
        ChatBlock::Thinking { thinking, thinking_signature, redacted: false }
    });
    let item = prop_oneof![
        Just(json!({ "type": "web_search_call", "id": "ws_1", "status": "completed" })),
        Just(json!({ "type": "custom_tool_call", "call_id": "ctc_lost", "input": "x" })),
        Just(json!({ "type": "compaction", "id": "cmp_1", "encrypted_content": "gAAA" })),
        Just(json!("no item")),
    ];
    let apis = prop::sample::select(vec![api, "another-dialect"]);
    let item =
        (apis, item).prop_map(|(api, item)| ChatBlock::ProviderItem { api: api.to_owned(), item });
    let other = Just(ChatBlock::Other(json!({ "type": "hologram" })));
    prop_oneof![3 => text(), 3 => thinking, 1 => item, 1 => other]
}

fn signature() -> impl Strategy<Value = Option<String>> {
    let item = ("rs_[ab]{1,2}|rs_[a-z]{70}|zz_1", any::<bool>(), any::<bool>());
    let item = item.prop_map(|(id, is_encrypted, has_summary)| {
        let mut item = json!({ "type": "reasoning", "id": id });
        if is_encrypted {
            item["encrypted_content"] = "gAAAAAB".into();
        }
        if has_summary {
            item["summary"] = json!([{ "type": "summary_text", "text": "hm" }]);
        }
        Some(item.to_string())
    });
    prop_oneof![4 => item, 1 => Just(None), 1 => Just(Some("EqQBCgIYAhIM".to_owned()))]
}
