//! Tools that Anthropic runs: their use and their output, which a later answer may hold.
//!
//! ```text
//!  assistant   server_tool_use s1 · tool_use t1 (caller s1)
//!  user        tool_result t1
//!  assistant   code_execution_tool_result s1
//! ```

use std::collections::HashSet;

use ctxhost_engine_api::transcript::links::AnswerLinks;
use serde_json::Value;

use super::type_of;
use crate::inbound;
use crate::json::text;

/// The links of an answer with this content.
pub(super) fn links_of(content: &Value) -> AnswerLinks {
    let blocks = content.as_array().into_iter().flatten();
    inbound::links_of(blocks.map(|block| (provider_tool_id(block), referred_id(block))))
}

/// Adds the blocks of `original` to which other answers are linked: outputs in front, uses before the calls.
pub(super) fn with_linked_blocks(original: &[Value], mut content: Vec<Value>) -> Vec<Value> {
    let (used, answered) = (ids(original, provider_tool_id), ids(original, output_id));
    let (kept_uses, kept_outputs) = (ids(&content, provider_tool_id), ids(&content, output_id));
    let missing = |id_of: IdOf, paired: &HashSet<&str>, kept: &HashSet<&str>| -> Vec<Value> {
        let is_missing = |block: &&Value| {
            id_of(block).is_some_and(|id| !paired.contains(id) && !kept.contains(id))
        };
        original.iter().filter(is_missing).cloned().collect()
    };
    let uses = missing(provider_tool_id, &answered, &kept_uses);
    let outputs = missing(output_id, &used, &kept_outputs);
    let first_call = content.iter().position(|block| type_of(block) == "tool_use");
    let first_call = first_call.unwrap_or(content.len());
    content.splice(first_call..first_call, uses);
    content.splice(0..0, outputs);
    content
}

type IdOf = fn(&Value) -> Option<&str>;

fn ids(blocks: &[Value], id_of: IdOf) -> HashSet<&str> {
    blocks.iter().filter_map(id_of).collect()
}

/// The id of the use of a tool that Anthropic runs.
fn provider_tool_id(block: &Value) -> Option<&str> {
    let kind = type_of(block);
    id_at(block, "id").filter(|_| kind.ends_with("_tool_use"))
}

/// The id of the use to which an output belongs.
fn output_id(block: &Value) -> Option<&str> {
    id_at(block, "tool_use_id").filter(|_| type_of(block).ends_with("_tool_result"))
}

/// The id of the use to which an output or a call belongs.
fn referred_id(block: &Value) -> Option<&str> {
    output_id(block).or_else(|| id_at(block.get("caller")?, "tool_id"))
}

fn id_at<'a>(object: &'a Value, field: &str) -> Option<&'a str> {
    Some(text(object, field)).filter(|id| !id.is_empty())
}

#[cfg(test)]
mod tests {
    use std::borrow::Cow;

    use serde_json::json;

    use super::*;
    use crate::inbound::{InboundDialect, ItemEdit};
    use crate::message::ChatMessage;

    fn answer(content: &Value) -> String {
        json!({ "role": "assistant", "content": content }).to_string()
    }

    fn use_block(id: &str) -> Value {
        json!({ "type": "server_tool_use", "id": id, "name": "code_execution", "input": {} })
    }

    fn output(id: &str) -> Value {
        json!({ "type": "code_execution_tool_result", "tool_use_id": id, "content": [] })
    }

    fn call(id: &str, caller: &str) -> Value {
        let caller = json!({ "type": "code_execution_20250825", "tool_id": caller });
        json!({ "type": "tool_use", "id": id, "name": "read", "input": { "n": 1 }, "caller": caller })
    }

    #[test]
    fn an_answer_is_linked_by_uses_outputs_and_callers() {
        let check = |content: Value, ids: &[&str], refers_to: &[&str]| {
            let owned = |ids: &[&str]| ids.iter().map(|id| (*id).to_owned()).collect();
            let expected = AnswerLinks { ids: owned(ids), refers_to: owned(refers_to) };
            assert_eq!(links_of(&content), expected, "{content}");
        };
        check(json!("text"), &[], &[]);
        check(json!([{ "type": "tool_use", "id": "t0", "name": "x", "input": {} }]), &[], &[]);
        check(json!([use_block("s1"), call("t1", "s1")]), &["s1"], &[]);
        check(json!([call("t2", "s1")]), &[], &["s1"]);
        check(json!([output("s1"), use_block("s2"), output("s2")]), &["s2"], &["s1"]);
        let mcp = json!([{ "type": "mcp_tool_use", "id": "m1" }]);
        check(mcp, &["m1"], &[]);
        check(json!([{ "type": "mcp_tool_result", "tool_use_id": "m1" }]), &[], &["m1"]);
    }

    #[test]
    fn an_answer_with_another_text_keeps_its_linked_blocks() {
        let text = |text: &str| json!({ "type": "text", "text": text });
        let thinking = json!({ "type": "thinking", "thinking": "hm", "signature": "s" });
        let (search, found) = (use_block("s2"), output("s2"));
        let original = answer(&json!([
            output("s1"),
            thinking,
            text("long"),
            search,
            found,
            use_block("s3"),
            call("t3", "s3"),
        ]));
        let edited = |edit: ItemEdit<'_>| {
            super::super::AnthropicInbound.edit_items(&[&original], &[edit])[0]["content"].clone()
        };
        let expected =
            json!([thinking, output("s1"), text("short"), use_block("s3"), call("t3", "s3")]);
        assert_eq!(edited(ItemEdit::ReplaceText(Cow::Borrowed("short"))), expected);
        // As a session keeps it: the text and the calls.
        let kept: ChatMessage = serde_json::from_value(json!({ "role": "assistant", "content": [
            text("short"), { "type": "toolCall", "id": "t3", "name": "read", "arguments": { "n": 2 } },
        ] }))
        .unwrap();
        let mut changed = expected;
        changed[4]["input"]["n"] = 2.into();
        assert_eq!(edited(ItemEdit::ReplaceMessage(kept)), changed);
    }
}
