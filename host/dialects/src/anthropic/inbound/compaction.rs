//! The provider's own compactions: blocks in answers, of which the newest replaces all that stands before it.
//!
//! ```text
//!  user       q1                          ┐
//!  assistant  a1                          │ ignored by the API
//!  user       q2                          ┘
//!  assistant  compaction · text · tool_use
//!  user       tool_result
//! ```

use std::borrow::Cow;

use memchr::memmem;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::type_of;
use crate::inbound::{CompactedItem, optional_text};
use crate::json::{parse_object, set, take};

#[derive(Deserialize)]
struct WireAnswer<'a> {
    #[serde(borrow, default, deserialize_with = "optional_text")]
    role: Cow<'a, str>,
    #[serde(borrow, default)]
    content: Option<&'a RawValue>,
}

/// The newest compaction of a list of messages: the message, and the block in it.
pub(super) fn find_newest<'a>(items: &[&'a str]) -> Option<(usize, &'a str)> {
    let found = |(at, item): (usize, &&'a str)| Some((at, newest_block(item)?));
    items.iter().enumerate().rev().find_map(found)
}

/// The newest compaction block of a message.
fn newest_block(item: &str) -> Option<&str> {
    // Most messages have none, and this is cheaper than to parse them.
    memmem::find(item.as_bytes(), b"\"compaction\"")?;
    let answer: WireAnswer<'_> = serde_json::from_str(item).ok()?;
    let content = answer.content.filter(|_| answer.role == "assistant")?;
    let blocks: Vec<&RawValue> = serde_json::from_str(content.get()).ok()?;
    let is_one = |block: &str| parse_object(block).is_ok_and(|block| is_compaction(&block));
    blocks.into_iter().rev().map(RawValue::get).find(|block| is_one(block))
}

/// Whether a block replaces what stands before it. One without content is of a compaction that failed.
fn is_compaction(block: &Value) -> bool {
    let has_content = ["content", "encrypted_content"].iter().any(|field| {
        let content = block.get(field);
        content.is_some_and(|content| !content.is_null() && content.as_str() != Some(""))
    });
    type_of(block) == "compaction" && has_content
}

/// Removes the newest compaction from the content of an answer, with all before it; returns what it has removed.
pub(super) fn split_content(content: &mut Value) -> Vec<Value> {
    let Some(blocks) = content.as_array_mut() else { return Vec::new() };
    let after = blocks.iter().rposition(is_compaction).map_or(0, |newest| newest + 1);
    let rest = blocks.split_off(after);
    std::mem::replace(blocks, rest)
}

/// The message with the newest compaction in two: up to that, and the rest of it.
pub(super) fn split_item(item: &str) -> Option<CompactedItem> {
    newest_block(item)?;
    let mut rest = parse_object(item).ok()?;
    let mut content = take(&mut rest, "content");
    let mut compaction = rest.clone();
    set(&mut compaction, "content", split_content(&mut content));
    let is_alone = content.as_array().is_none_or(Vec::is_empty);
    set(&mut rest, "content", content);
    Some(CompactedItem { compaction, rest: (!is_alone).then(|| rest.to_string()) })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::AnthropicInbound;
    use crate::inbound::{InboundDialect, ParseContext, ParsedEntry, ProviderEdits, json_items};
    use crate::message::ChatMessage;

    fn block(content: Value) -> Value {
        json!({ "type": "compaction", "content": content })
    }

    fn answer(blocks: Value) -> Value {
        json!({ "role": "assistant", "content": blocks })
    }

    fn user(text: &str) -> Value {
        json!({ "role": "user", "content": text })
    }

    #[test]
    fn what_is_before_the_newest_compaction_is_ignored() {
        let call = json!({ "type": "tool_use", "id": "t1", "name": "read", "input": {} });
        let text = json!({ "type": "text", "text": "I read." });
        let failed = answer(json!([block(Value::Null), text]));
        let quoted = user(&answer(json!([block("quoted".into())])).to_string());
        let result = json!({ "role": "user", "content": [
            { "type": "tool_result", "tool_use_id": "t1", "content": "4711" }] });
        let messages = [
            user("q1"),
            answer(json!([block("first".into()), text])),
            user("q2"),
            answer(json!([text, block("second".into()), text, call])),
            result,
            failed,
            quoted,
        ];
        let edits = json!([{ "type": "compact_20260112" }]);
        let body =
            json!({ "messages": messages, "context_management": { "edits": edits } }).to_string();
        let parsed = AnthropicInbound.parse_body(&body).unwrap();
        let texts = messages.each_ref().map(Value::to_string);
        assert_eq!(parsed.ignored_items, texts[1..3]);
        assert_eq!(parsed.items, texts[3..]);
        assert_eq!(parsed.prompt_parts, [block("second".into()).to_string()]);
        assert_eq!(parsed.provider_edits, ProviderEdits { may_shorten: true, may_compact: true });
        let (before, _) = parsed.split_at_messages(&body, false);
        assert!(before.ends_with(&format!("{},{},", texts[1], texts[2])), "{before}");

        let context = ParseContext { is_start: true, items: &[], tool_name_of: &|_| None };
        let groups = AnthropicInbound.parse_items(&mut json_items(&parsed.items), context).unwrap();
        let [ParsedEntry::Message(ChatMessage::Assistant(first))] = &*groups[0].entries else {
            panic!("{:?}", groups[0])
        };
        assert_eq!((first.content.len(), first.tool_calls().count()), (2, 1));

        let split = AnthropicInbound.split_compaction(&texts[3]).unwrap();
        assert_eq!(split.compaction, answer(json!([text, block("second".into())])));
        assert_eq!(split.rest.unwrap(), answer(json!([text, call])).to_string());
        for other in [&texts[0], &texts[4], &texts[5], &texts[6]] {
            assert_eq!(AnthropicInbound.split_compaction(other), None, "{other}");
        }
    }

    #[test]
    fn an_answer_that_is_a_compaction_has_no_entry() {
        let message = answer(json!([block("all".into())])).to_string();
        assert_eq!(AnthropicInbound.split_compaction(&message).unwrap().rest, None);
        let context = ParseContext { is_start: true, items: &[], tool_name_of: &|_| None };
        let groups = AnthropicInbound.parse_items(&mut json_items(&[&*message]), context).unwrap();
        assert!(groups[0].entries.is_empty());
    }
}
