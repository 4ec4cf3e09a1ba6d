//! The rules of the dialect, one by one, by their numbers in the wire tables.

use super::*;
use crate::message::UserMessage;

#[test]
fn r_01_every_call_has_its_output() {
    let items = input(vec![answer(vec![call("c1"), call("c2")]), result("c2", "two")]);
    assert_eq!(
        kinds(&items),
        ["function_call", "function_call_output", "function_call", "function_call_output"]
    );
    assert_eq!(items[1]["call_id"], "c1");
    assert_eq!(
        items[3],
        json!({ "type": "function_call_output", "call_id": "c2", "output": "two" })
    );
}

#[test]
fn r_01_an_unanswered_call_of_the_server_is_dropped() {
    let custom = json!({ "type": "custom_tool_call", "call_id": "c9", "name": "x", "input": "y" });
    let search = json!({ "type": "web_search_call", "id": "ws_1", "status": "completed" });
    let items = input(vec![
        ChatMessage::from_user_text("hi"),
        answer(vec![item(custom), item(search.clone()), ChatBlock::text("so")]),
    ]);
    assert_eq!(kinds(&items), ["message", "web_search_call", "message"]);
    assert_eq!(items[1], search);
}

#[test]
fn r_02_every_output_has_its_call() {
    let items = input(vec![
        result("c1", "of an unknown call"),
        ChatMessage::from_user_text("hi"),
        answer(vec![call("c1")]),
        result("c1", "one"),
        result("c1", "again"),
    ]);
    assert_eq!(kinds(&items), ["message", "function_call", "function_call_output"]);
    assert_eq!(items[2]["output"], "one");
}

#[test]
fn r_02_an_id_that_comes_again_pairs_in_its_own_turn() {
    let round = |text| vec![answer(vec![call("c1")]), result("c1", text)];
    let items = input([round("one"), round("two")].concat());
    assert_eq!((&items[1]["output"], &items[3]["output"]), (&json!("one"), &json!("two")));
}

#[test]
fn r_03_reasoning_precedes_its_item() {
    let (first, second) = (encrypted("rs_1"), encrypted("rs_2"));
    let items = input(vec![
        answer(vec![reasoning(first.clone()), call("c1")]),
        result("c1", "one"),
        // Broken off while it thought.
        answer(vec![reasoning(second)]),
        ChatMessage::from_user_text("go on"),
    ]);
    assert_eq!(kinds(&items), ["reasoning", "function_call", "function_call_output", "message"]);
    assert_eq!(items[0].to_string(), first.to_string());
}

#[test]
fn r_03_what_another_answer_holds_is_not_what_it_led_to() {
    let items =
        input(vec![answer(vec![reasoning(encrypted("rs_1"))]), answer(vec![ChatBlock::text("a")])]);
    assert_eq!(kinds(&items), ["message"]);
}

#[test]
fn r_03_a_compaction_is_not_what_it_led_to() {
    let compaction = json!({ "type": "compaction", "id": "cmp_1", "encrypted_content": "gAAA" });
    let items = input(vec![answer(vec![reasoning(encrypted("rs_1")), item(compaction)])]);
    assert_eq!(kinds(&items), ["compaction"]);
}

#[test]
fn r_04_no_item_demands_reasoning_that_is_not_there() {
    let signature = r#"{"v":1,"id":"msg_1","phase":"commentary"}"#;
    let text = ChatBlock::Text { text: "so".into(), text_signature: Some(signature.into()) };
    let items = input(vec![answer(vec![text, call("c1")]), result("c1", "one")]);
    assert!(items.iter().all(|item| item.get("id").is_none()), "{items:?}");
    assert_eq!(items[0]["phase"], "commentary");
}

#[test]
fn r_05_reasoning_has_a_summary() {
    let bare = json!({ "id": "rs_1", "type": "reasoning", "encrypted_content": "gAAA" });
    let items = input(vec![answer(vec![reasoning(bare), ChatBlock::text("a")])]);
    assert_eq!(items[0]["summary"], json!([]));
}

#[test]
fn r_06_reasoning_goes_back_unchanged_or_not_at_all() {
    let whole = json!({
        "id": "rs_1", "type": "reasoning",
        "summary": [{ "type": "summary_text", "text": "**考える**\n\"quoted\" \\ 🦀" }],
        "content": [], "encrypted_content": "gAAAAABo+/=", "status": null, "later": 1.50,
    });
    let items = input(vec![answer(vec![reasoning(whole.clone()), ChatBlock::text("a")])]);
    assert_eq!(items[0].to_string(), whole.to_string());
    let unreadable = json!({ "id": "rs_2", "type": "reasoning", "summary": [] });
    let foreign = ChatMessage::Assistant(AssistantMessage {
        content: vec![reasoning(encrypted("rs_3")), ChatBlock::text("b")],
        api: "azure-openai-responses".into(),
        ..Default::default()
    });
    let items = input(vec![answer(vec![reasoning(unreadable), ChatBlock::text("a")]), foreign]);
    assert_eq!(kinds(&items), ["message", "message"]);
}

#[test]
fn r_07_ids_are_short_and_come_once() {
    let long = "call_".to_owned() + &"x".repeat(80) + "|fc_1";
    let items = input(vec![answer(vec![call(&long)]), result(&long, "one")]);
    assert_eq!(items[0]["call_id"], items[1]["call_id"]);
    let twice = vec![reasoning(encrypted("rs_1")), ChatBlock::text("a")];
    let items = input(vec![answer(twice.clone()), ChatMessage::from_user_text("u"), answer(twice)]);
    assert_eq!(kinds(&items), ["reasoning", "message", "message", "message"]);
    let long = encrypted(&("rs_".to_owned() + &"x".repeat(80)));
    let items = input(vec![answer(vec![reasoning(long), ChatBlock::text("a")])]);
    assert_eq!(items[0].get("id"), None);
}

#[test]
fn r_08_a_compaction_goes_back_whole_in_its_place() {
    let compaction = json!({ "type": "compaction", "encrypted_content": "gAAA", "id": "cmp_1" });
    let items =
        input(vec![answer(vec![item(compaction.clone())]), ChatMessage::from_user_text("go on")]);
    assert_eq!(items[0].to_string(), compaction.to_string());
    assert_eq!(kinds(&items), ["compaction", "message"]);
}

#[test]
fn r_09_r_10_nothing_is_left_to_the_server() {
    let body = OpenAiResponses.encode(&request(vec![ChatMessage::from_user_text("hi")]));
    for field in ["previous_response_id", "conversation", "truncation", "context_management"] {
        assert_eq!(body.get(field), None, "{field}");
    }
}

#[test]
fn r_11_who_speaks_decides_the_kind_of_text() {
    let image = ChatBlock::Image { data: "AAAA".into(), mime_type: "image/jpeg".into() };
    let user = UserMessage {
        content: vec![ChatBlock::text("see"), ChatBlock::text(""), image],
        timestamp: 0,
    };
    let items = input(vec![ChatMessage::User(user), answer(vec![ChatBlock::text("I see")])]);
    assert_eq!(
        Value::from(items),
        json!([
            { "type": "message", "role": "user", "content": [
                { "type": "input_text", "text": "see" },
                { "type": "input_image", "detail": "auto", "image_url": "data:image/jpeg;base64,AAAA" },
            ]},
            { "type": "message", "role": "assistant",
              "content": [{ "type": "output_text", "text": "I see" }] },
        ])
    );
}

#[test]
fn r_11_images_of_results_follow_all_results_of_the_turn() {
    let image = ChatBlock::Image { data: "AAAA".into(), mime_type: "image/png".into() };
    let shown = ChatMessage::ToolResult(ToolResultMessage {
        tool_call_id: "c1".into(),
        tool_name: "look".into(),
        content: vec![image],
        ..Default::default()
    });
    let items = input(vec![answer(vec![call("c1"), call("c2")]), shown, result("c2", "two")]);
    let expected = [
        "function_call",
        "function_call",
        "function_call_output",
        "function_call_output",
        "message",
    ];
    assert_eq!(kinds(&items), expected);
    assert_eq!(items[2]["output"], "(the images follow below)");
    assert_eq!(items[4]["content"][0]["text"], "(images of the result of look)");
    assert_eq!(items[4]["content"][1]["type"], "input_image");
}

#[test]
fn r_12_the_cache_key_is_short() {
    let asked = ModelRequest {
        cache_key: "é".repeat(90),
        ..request(vec![ChatMessage::from_user_text("hi")])
    };
    let body = OpenAiResponses.encode(&asked);
    assert_eq!(body["prompt_cache_key"], "é".repeat(64));
    let body = OpenAiResponses.encode(&request(vec![ChatMessage::from_user_text("hi")]));
    assert_eq!(body.get("prompt_cache_key"), None);
}
