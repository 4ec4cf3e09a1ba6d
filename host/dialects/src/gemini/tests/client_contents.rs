//! Contents of clients and the entries that they become.

use serde_json::{Value, json};

use crate::GeminiInbound;
use crate::inbound::{InboundDialect, ItemEdit, ParseContext, ParsedEntry, TurnItem, json_items};
use crate::message::{ChatBlock, ChatMessage};

fn content(content: &Value) -> Vec<ChatBlock> {
    let before = ParseContext { is_start: true, items: &[], tool_name_of: &|_| None };
    let text = content.to_string();
    let groups = GeminiInbound.parse_items(&mut json_items(&[text.as_str()]), before).unwrap();
    match &groups[0].entries[0] {
        ParsedEntry::Message(message) => message.content().to_vec(),
        ParsedEntry::Instruction(text) | ParsedEntry::Note(text) => panic!("a note: {text}"),
    }
}

fn response(response: Value, parts: Value) -> Value {
    let response = json!({ "name": "read", "response": response, "parts": parts });
    json!({ "role": "user", "parts": [{ "functionResponse": response }] })
}

#[test]
fn a_response_has_all_its_fields_and_files() {
    let text = |response: Value, expected: &str| {
        assert_eq!(content(&self::response(response, json!([])))[0], ChatBlock::text(expected));
    };
    text(json!({ "output": "a" }), "a");
    text(json!({ "result": "a" }), "a");
    text(json!({ "output": "", "stderr": "b" }), r#"{"output":"","stderr":"b"}"#);
    let image = json!({ "inlineData": { "mimeType": "image/png", "data": "AAAA" } });
    let message = response(json!({ "output": "a" }), json!([image]));
    let read = content(&message);
    assert!(matches!(read[1], ChatBlock::Image { .. }));
    let edited = |edit: ItemEdit<'_>| {
        GeminiInbound.edit_items(&[&message.to_string()], &[edit])[0]["parts"][0]["functionResponse"].clone()
    };
    let without = json!({ "name": "read", "response": { "output": "b" }, "parts": [] });
    assert_eq!(edited(ItemEdit::ReplaceText("b".into())), without);
    let other = crate::message::ToolResultMessage { content: read, ..Default::default() };
    let kept = edited(ItemEdit::ReplaceMessage(ChatMessage::ToolResult(other)));
    assert_eq!(kept["parts"], json!([image]));
}

#[test]
fn only_images_are_images() {
    let part = |kind: &str| json!({ "role": "user", "parts": [{ "inlineData": { "mimeType": kind, "data": "AAAA" } }] });
    assert!(matches!(content(&part("image/png"))[0], ChatBlock::Image { .. }));
    assert!(matches!(content(&part("audio/wav"))[0], ChatBlock::Other(_)));
}

#[test]
fn one_part_is_a_list_of_one() {
    let one = json!({ "role": "user", "parts": { "text": "hello" } });
    assert_eq!(content(&one), [ChatBlock::text("hello")]);
    let mut first = one.clone();
    assert_eq!(GeminiInbound.join_items(&mut first, one), None);
    assert_eq!(first["parts"], json!([{ "text": "hello" }, { "text": "hello" }]));
}

#[test]
fn a_count_may_have_the_request_in_a_field() {
    let contents = json!([{ "role": "user", "parts": [{ "text": "Count me." }] }]);
    let request = json!({ "systemInstruction": { "parts": [{ "text": "Be brief." }] }, "contents": contents });
    let wrapped = json!({ "generateContentRequest": request }).to_string();
    let body = GeminiInbound.parse_body(&wrapped).unwrap();
    assert_eq!(&wrapped[body.items_span.clone()], contents[0].to_string());
    assert_eq!((body.items.len(), body.prompt_parts.len()), (1, 1));
    assert!(GeminiInbound.parse_body("{\"generateContentRequest\":{}}").is_err());
}

#[test]
fn a_step_of_the_current_turn_is_signed() {
    let complete = |model: &str, mut content: Value| {
        let state = GeminiInbound.complete_turn_item(model, &mut content);
        (state, content)
    };
    let stand_in = json!("skip_thought_signature_validator");
    let content = |role: &str, parts: Value| json!({ "role": role, "parts": parts });
    for spelling in ["functionCall", "function_call"] {
        let call = || json!({ spelling: { "name": "read", "args": {} } });
        let step = content("model", json!([{ "text": "I read." }, call(), call()]));
        let (state, signed) = complete("models/gemini-3-pro", step.clone());
        assert_eq!(state, TurnItem::Changed);
        assert_eq!(signed["parts"][1]["thoughtSignature"], stand_in);
        assert_eq!(signed["parts"][2], call());
        assert_eq!(complete("gemini-3-pro", signed.clone()), (TurnItem::Complete, signed));
        for none in [json!(""), json!(null)] {
            let mut call = call();
            call["thought_signature"] = none;
            let (state, signed) = complete("gemini-3-pro", content("model", json!([call])));
            assert_eq!(state, TurnItem::Changed);
            assert_eq!(signed["parts"][0]["thoughtSignature"], stand_in);
            assert_eq!(signed["parts"][0].get("thought_signature"), None);
        }
        // Older models have signatures of their own kind, or none.
        assert_eq!(complete("gemini-2.5-flash", step.clone()), (TurnItem::Start, step));
        let (state, signed) = complete("gemini-3-pro", content("model", call()));
        assert_eq!((state, &signed["parts"]["thoughtSignature"]), (TurnItem::Changed, &stand_in));
    }
    let state = |content: Value| complete("gemini-3-pro", content).0;
    let response = json!({ "functionResponse": { "name": "read", "response": {} } });
    assert_eq!(state(content("user", json!([response]))), TurnItem::Complete);
    assert_eq!(state(content("user", json!([response, { "text": "Go on." }]))), TurnItem::Start);
    assert_eq!(state(content("model", json!([{ "text": "Done." }]))), TurnItem::Complete);
}
