//! Items of clients and the entries that they become.

use serde_json::{Value, json};

use crate::OpenAiResponsesInbound;
use crate::inbound::{
    InboundDialect, ItemEdit, ItemGroup, ParseContext, ParsedEntry, ProviderEdits, StoredOverflow,
    json_items,
};
use crate::message::{AssistantMessage, ChatBlock, ChatMessage};

fn groups(items: &[Value]) -> Vec<ItemGroup> {
    let texts: Vec<String> = items.iter().map(Value::to_string).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let before = ParseContext { is_start: true, items: &[], tool_name_of: &|_| None };
    OpenAiResponsesInbound.parse_items(&mut json_items(&texts), before).unwrap()
}

/// The number of items and the roles of the entries of each group.
fn shape(groups: &[ItemGroup]) -> Vec<(usize, &str)> {
    let role = |entry: &ParsedEntry| match entry {
        ParsedEntry::Message(ChatMessage::User(_)) => "user",
        ParsedEntry::Message(ChatMessage::Assistant(_)) => "assistant",
        ParsedEntry::Message(ChatMessage::ToolResult(_)) => "result",
        ParsedEntry::Instruction(_) => "instruction",
        ParsedEntry::Note(_) => "note",
    };
    groups.iter().map(|group| (group.item_count, group.entries.first().map_or("-", role))).collect()
}

fn answer(group: &ItemGroup) -> &AssistantMessage {
    let Some(ParsedEntry::Message(ChatMessage::Assistant(answer))) = group.entries.first() else {
        panic!("no answer: {group:?}")
    };
    answer
}

fn reasoning(id: &str) -> Value {
    json!({ "type": "reasoning", "id": id, "summary": [], "encrypted_content": "gAAA" })
}

fn approval_request() -> Value {
    json!({ "type": "mcp_approval_request", "id": "mcpr_1", "server_label": "s", "name": "read", "arguments": "{}" })
}

fn approval() -> Value {
    json!({ "type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": true })
}

fn approved_call() -> Value {
    json!({ "type": "mcp_call", "id": "mcp_1", "server_label": "s", "name": "read", "arguments": "{}", "output": "text", "approval_request_id": "mcpr_1" })
}

#[test]
fn an_approval_is_the_result_of_its_request() {
    let user = json!({ "role": "user", "content": "go" });
    let items = [
        user,
        reasoning("rs_1"),
        approval_request(),
        approval(),
        reasoning("rs_2"),
        approved_call(),
    ];
    let groups = groups(&items);
    assert_eq!(shape(&groups), [(1, "user"), (2, "assistant"), (1, "result"), (2, "assistant")]);
    let calls: Vec<_> =
        answer(&groups[1]).tool_calls().map(|call| (&*call.id, &*call.name)).collect();
    assert_eq!(calls, [("mcpr_1", "read")]);
    assert_eq!(answer(&groups[3]).links.refers_to, ["mcpr_1"]);
    let [ParsedEntry::Message(ChatMessage::ToolResult(result))] = &*groups[2].entries else {
        panic!("no result")
    };
    assert_eq!((&*result.tool_call_id, &*result.tool_name), ("mcpr_1", "read"));
}

#[test]
fn what_the_model_answers_with_is_one_run_whatever_its_type() {
    let listed =
        json!({ "type": "mcp_list_tools", "id": "mcpl_1", "server_label": "s", "tools": [] });
    let new = json!({ "type": "thing_of_tomorrow", "id": "th_1" });
    let message = json!({ "type": "message", "role": "assistant", "content": [] });
    assert_eq!(shape(&groups(&[listed, reasoning("rs_1"), new, message])), [(4, "assistant")]);
}

fn reference(id: &str) -> Value {
    json!({ "type": "item_reference", "id": id })
}

fn output(call_id: &str) -> Value {
    json!({ "type": "function_call_output", "call_id": call_id, "output": "text" })
}

#[test]
fn a_reference_is_part_of_the_answer_around_it() {
    let user = json!({ "role": "user", "content": "go" });
    let call = json!({ "type": "function_call", "call_id": "c", "name": "f", "arguments": "{}" });
    let groups = groups(&[
        user.clone(),
        reference("rs_1"),
        call.clone(),
        output("c"),
        json!({ "id": "msg_1" }),
        user,
    ]);
    let expected = [(1, "user"), (2, "assistant"), (1, "result"), (1, "assistant"), (1, "user")];
    assert_eq!(shape(&groups), expected);
    // A call keeps its id behind the reference to its reasoning.
    let call = json!({ "type": "function_call", "id": "fc_1", "call_id": "c", "name": "f", "arguments": "{}" });
    let texts = [reference("rs_1").to_string(), call.to_string()];
    let mut short = answer(&groups[1]).clone();
    if let Some(ChatBlock::ToolCall(call)) = short.content.last_mut() {
        call.arguments = json!({ "short": 1 });
    }
    let edit = ItemEdit::ReplaceMessage(ChatMessage::Assistant(short));
    let edited = OpenAiResponsesInbound.edit_items(&texts.each_ref().map(String::as_str), &[edit]);
    assert_eq!((&edited[0], &edited[1]["id"]), (&reference("rs_1"), &json!("fc_1")));
}

#[test]
fn results_of_calls_by_reference_stay_with_them() {
    let answer = [reference("rs_1"), reference("fc_1"), output("a"), output("b")];
    let items = [&answer[..], &[reference("fc_2"), output("c")]].concat();
    assert_eq!(shape(&groups(&items)), [(4, "assistant"), (2, "assistant")]);
    let texts = answer.each_ref().map(Value::to_string);
    let texts = texts.each_ref().map(String::as_str);
    let edited = OpenAiResponsesInbound.edit_items(&texts, &[ItemEdit::ReplaceText("x".into())]);
    assert_eq!(edited, answer);
    // Without a reference, nothing is known of such a result's call.
    assert_eq!(shape(&groups(&[reasoning("rs_1"), output("a")])), [(1, "assistant"), (1, "note")]);
}

#[test]
fn only_a_history_with_its_questions_is_shaped() {
    let items = |input: Value| {
        let body = json!({ "model": "m", "input": input }).to_string();
        OpenAiResponsesInbound.parse_body(&body).unwrap().items.len()
    };
    let (user, system) =
        (json!({ "role": "user", "content": "go" }), json!({ "role": "system", "content": "s" }));
    assert_eq!(items(json!([system, user, reference("rs_1"), user])), 3);
    assert_eq!(items(json!([reference("msg_1"), reference("msg_2"), user])), 0);
    assert_eq!(items(json!([{ "id": "msg_1" }, user])), 0);
}

#[test]
fn a_stored_history_that_is_too_large_is_truncated_by_its_provider() {
    let stored = |body: Value| OpenAiResponsesInbound.stored_overflow(&body.to_string());
    let resent = |body: &Value, id: &str| {
        let Some(StoredOverflow::Resend { body: sent, history }) = stored(body.clone()) else {
            panic!("not resent: {body}")
        };
        let mut sent: Value = serde_json::from_str(&sent).unwrap();
        assert_eq!(sent.as_object_mut().unwrap().remove("truncation"), Some(json!("auto")));
        assert_eq!((&sent, history.as_deref()), (body, Some(id)));
    };
    for conversation in [json!("conv_1"), json!({ "id": "conv_1" })] {
        resent(&json!({ "model": "m", "conversation": conversation, "input": "go" }), "conv_1");
    }
    let body = json!({ "model": "m", "previous_response_id": "resp_1", "input": "go" });
    resent(&body, "resp_1");
    let mut disabled = body;
    disabled["truncation"] = json!("disabled");
    assert_eq!(stored(disabled), None);
    assert_eq!(stored(json!({ "model": "m", "input": "go" })), None);
}

#[test]
fn a_compaction_is_counted_and_stays() {
    let compaction = json!({ "type": "compaction", "id": "cmp_1", "encrypted_content": "gAAA" });
    let user = json!({ "role": "user", "content": "the \"compaction\" is done" });
    let body = json!({ "model": "m", "input": [compaction, user, reasoning("rs_1")] }).to_string();
    let parsed = OpenAiResponsesInbound.parse_body(&body).unwrap();
    assert_eq!(parsed.prompt_parts, [compaction.to_string()]);
    let groups = groups(&[compaction, user, reasoning("rs_1")]);
    assert_eq!(shape(&groups), [(1, "-"), (1, "user"), (1, "assistant")]);
}

#[test]
fn what_is_before_a_compaction_of_an_answer_is_ignored() {
    let compaction =
        |id: &str| json!({ "type": "compaction", "id": id, "encrypted_content": "gAAA" });
    let user = |text: &str| json!({ "role": "user", "content": text });
    let trigger = json!({ "type": "compaction_trigger" });
    let items = [
        user("1"),
        reasoning("rs_1"),
        compaction("cmp_1"),
        reasoning("rs_2"),
        user("2"),
        compaction("cmp_2"),
        reasoning("rs_3"),
        trigger.clone(),
    ];
    let texts = items.each_ref().map(Value::to_string);
    let body = json!({ "input": items, "truncation": "auto" }).to_string();
    let parsed = OpenAiResponsesInbound.parse_body(&body).unwrap();
    assert_eq!(parsed.ignored_items, texts[2..5]);
    assert_eq!(parsed.items, texts[5..]);
    assert_eq!(parsed.prompt_parts, [&*texts[5], &*texts[7]]);
    let edits = ProviderEdits { may_shorten: true, may_compact: false };
    assert_eq!(parsed.provider_edits, edits);
    // `/responses/compact` returns the user messages that the provider has kept, and its item.
    let body = json!({ "input": [user("1"), user("2"), compaction("cmp_1"), reasoning("rs_1")] });
    let body = body.to_string();
    let parsed = OpenAiResponsesInbound.parse_body(&body).unwrap();
    assert_eq!((parsed.items.len(), parsed.ignored_items.len()), (4, 0));
}

#[test]
fn a_request_for_approval_is_sent_as_it_is_or_not_at_all() {
    let items = [reasoning("rs_1"), approval_request()];
    let texts = items.each_ref().map(Value::to_string);
    let texts = texts.each_ref().map(String::as_str);
    let edit = |edit: ItemEdit<'_>| OpenAiResponsesInbound.edit_items(&texts, &[edit]);
    assert_eq!(edit(ItemEdit::ReplaceText("short".into())), items);
    assert_eq!(
        edit(ItemEdit::ReplaceMessage(ChatMessage::Assistant(AssistantMessage::default()))),
        items
    );
    assert!(edit(ItemEdit::Drop).is_empty());
    let [_, request] = texts;
    let id = OpenAiResponsesInbound.item_call_id(request, 0).unwrap();
    let denied = OpenAiResponsesInbound.missing_result_item(&id, "read", "none", Some(request));
    let expected = json!({
        "type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": false,
        "reason": "none",
    });
    assert_eq!(denied, Some(expected));
}

#[test]
fn outputs_of_other_forms_are_read_and_shortened_in_their_form() {
    let image = format!("data:image/png;base64,{}", "A".repeat(60_000));
    let screenshot = json!({ "type": "computer_call_output", "call_id": "c1",
        "output": { "type": "computer_screenshot", "image_url": image } });
    let shell = json!({ "type": "shell_call_output", "call_id": "c2", "max_output_length": 9_000,
        "output": [{ "stdout": "long", "stderr": "", "outcome": { "type": "exit", "exit_code": 3 } }] });
    let calls = [
        json!({ "type": "computer_call", "call_id": "c1", "action": { "type": "click" } }),
        json!({ "type": "apply_patch_call", "call_id": "c3", "operation": { "diff": "+a" } }),
    ];
    let [call, patch] = calls;
    let groups = groups(&[call, screenshot.clone(), patch]);
    let [ParsedEntry::Message(result)] = &*groups[1].entries else { panic!("no result") };
    assert!(matches!(result.content(), [ChatBlock::Image { .. }]), "counted as an image");
    let patch = answer(&groups[2]).tool_calls().next().unwrap();
    assert_eq!(patch.arguments, json!({ "diff": "+a" }));
    let edited = |item: &Value| {
        let item = item.to_string();
        let edit = ItemEdit::ReplaceText("short".into());
        OpenAiResponsesInbound.edit_items(&[&item], &[edit]).remove(0)
    };
    assert!(edited(&screenshot).to_string().len() < 400);
    assert_eq!(edited(&screenshot)["output"]["type"], "computer_screenshot");
    let output =
        json!([{ "stdout": "short", "stderr": "", "outcome": { "type": "exit", "exit_code": 3 } }]);
    assert_eq!(edited(&shell)["output"], output);
}

#[test]
fn a_prompt_that_is_a_string_is_listed_as_one_user_item() {
    let list = |json: &str| OpenAiResponsesInbound.list_prompt(json);
    let json = r#" {"input" : "two\n\"words\"", "model":"m","x":1.0}"#;
    let listed = list(json).unwrap();
    assert_eq!(
        listed,
        r#" {"input" : [{"type":"message","role":"user","content":"two\n\"words\""}], "model":"m","x":1.0}"#
    );
    let body = OpenAiResponsesInbound.parse_body(&listed).unwrap();
    assert_eq!(body.items.len(), 1);
    for none in [
        r#"{"model":"m","input":"hi","previous_response_id":"resp_1"}"#,
        r#"{"model":"m","input":"hi","conversation":{"id":"conv_1"}}"#,
        r#"{"model":"m","input":""}"#,
        r#"{"model":"m","input":[]}"#,
        r#"{"model":"m","input":null}"#,
        r#"{"model":"m"}"#,
        r#"{"input":"#,
    ] {
        assert_eq!(list(none), None, "{none}");
    }
}
