//! The texts in the arguments of calls; of old ones they are shortened: a file that a model wrote can
//! be read again.

use std::borrow::Cow;

use ctxhost_engine_api::transcript::tokens::weighted_chars;
use ctxhost_engine_api::{Entry, Flags, Role, ToolCall};
use serde_json::Value;

/// Returns the JSON of a message with long texts in its call arguments cut, and their number;
/// `None` if none was cut. `cut` borrows a text that is short enough. Arguments of at most
/// `over_chars` weighted characters are unchanged, and so are ids, names and the JSON structure.
pub fn shorten_arguments(
    entry: &Entry<'_>,
    over_chars: u64,
    cut: impl Fn(&str) -> Cow<'_, str>,
) -> Option<(String, usize)> {
    if entry.role() != Role::Assistant || !entry.has(Flags::TOOL_CALLS) {
        return None;
    }
    let mut message: Value = serde_json::from_str(entry.raw()).ok()?;
    let mut shortened = 0;
    for block in message.get_mut("content")?.as_array_mut()? {
        let is_call = block.get("type").and_then(Value::as_str) == Some("toolCall");
        let Some(arguments) = block.get_mut("arguments").filter(|_| is_call) else { continue };
        // Shortening small arguments would change cached bytes for nothing.
        if weighted_chars(&arguments.to_string()) > over_chars {
            shortened += shorten(arguments, &cut);
        }
    }
    (shortened > 0).then(|| (message.to_string(), shortened))
}

/// A longer argument, in bytes, is data such as file contents: the model did not choose the names in
/// it one by one.
pub const SHORT_ARGUMENT_BYTES: usize = 400;

/// Calls `found` with every text in the arguments of a call.
pub fn for_each_argument_text(call: &ToolCall<'_>, mut found: impl FnMut(&str)) {
    for_each_text(&call.arguments_value(), &mut found);
}

fn for_each_text(value: &Value, found: &mut impl FnMut(&str)) {
    match value {
        Value::String(text) => found(text),
        Value::Array(list) => list.iter().for_each(|value| for_each_text(value, found)),
        Value::Object(fields) => fields.values().for_each(|value| for_each_text(value, found)),
        _ => {}
    }
}

/// Cuts the texts in a value and returns their number.
fn shorten(value: &mut Value, cut: &impl Fn(&str) -> Cow<'_, str>) -> usize {
    match value {
        Value::String(text) => match cut(text) {
            Cow::Borrowed(_) => 0,
            Cow::Owned(short) => {
                *text = short;
                1
            }
        },
        Value::Array(items) => items.iter_mut().map(|item| shorten(item, cut)).sum(),
        Value::Object(members) => members.values_mut().map(|member| shorten(member, cut)).sum(),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use ctxhost_engine_api::Message;
    use ctxhost_engine_api::testing::TranscriptBuilder;

    use super::*;
    use ctxhost_text::truncate::clip;

    #[test]
    fn arguments_stay_json_and_calls_keep_their_ids() {
        let long = format!(r#"{{"path":"a.rs","edits":[{{"new":"{}"}}]}}"#, "x".repeat(900));
        let mut talk = TranscriptBuilder::new();
        talk.user("go").calls(&[("a", "edit", &long), ("b", "ls", "{}")]);
        let transcript = talk.transcript();
        let short = |seq, over_chars| {
            let entry = transcript.get(seq).unwrap();
            shorten_arguments(&entry, over_chars, |text| clip(text, 200))
        };
        assert_eq!(short(0, 0), None);
        assert_eq!(short(1, 2_000), None, "not worth it");
        let (raw, count) = short(1, 500).unwrap();
        assert_eq!(count, 1);
        let calls = Message::parse(&raw, "").tool_calls();
        assert_eq!((calls[0].id.as_ref(), calls[1].id.as_ref()), ("a", "b"));
        let text = calls[0].arguments_value()["edits"][0]["new"].as_str().unwrap().to_owned();
        assert_eq!(text.chars().count(), 200);
        assert!(text.ends_with('…'));
    }
}
