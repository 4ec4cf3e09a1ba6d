//! Arguments of old calls: the file a model once wrote is in the file now, not only in its call.

use ctxhost_engine_api::{Entry, Flags, Role};
use ctxhost_engine_kit::text::{Limit, grouped, truncate};
use serde_json::Value;

use super::LAYER;
use crate::results::{Form, Shown};
use crate::settings::CHARS_PER_TOKEN;

/// A call with every text of its arguments cut to `limit_chars`; `None` where none is longer. Ids,
/// names and the shape of the arguments stay.
pub(crate) fn shortened(entry: &Entry<'_>, limit_chars: u64) -> Option<Shown> {
    let is_call = entry.role() == Role::Assistant && entry.has(Flags::TOOL_CALLS);
    let is_large = entry.tokens() * CHARS_PER_TOKEN > limit_chars;
    if !is_call || !is_large || entry.has(Flags::PINNED) {
        return None;
    }
    let mut message: Value = serde_json::from_str(entry.raw()).ok()?;
    let mut is_changed = false;
    for block in message.get_mut("content")?.as_array_mut()? {
        if block.get("type").and_then(Value::as_str) == Some("toolCall")
            && let Some(arguments) = block.get_mut("arguments")
        {
            is_changed |= shorten(arguments, limit_chars);
        }
    }
    let shown = |raw: String| {
        let mut shown = Shown { form: Form::Raw(raw), layer: LAYER, detail: String::new() };
        let (before, now) = (entry.tokens() * CHARS_PER_TOKEN, shown.chars());
        shown.detail = format!("arguments: {} -> {} chars", grouped(before), grouped(now));
        (now < before).then_some(shown)
    };
    is_changed.then(|| shown(message.to_string())).flatten()
}

/// Cuts every long text in a value. Answers whether there was one.
fn shorten(value: &mut Value, limit_chars: u64) -> bool {
    match value {
        Value::String(text) => {
            let limit = Limit { min_keep_chars: limit_chars, ..Limit::chars(limit_chars) };
            let notice = |left_out| format!(" [{left_out} more characters of an old call]");
            match truncate(text, limit, notice) {
                std::borrow::Cow::Borrowed(_) => false,
                std::borrow::Cow::Owned(cut) => {
                    *text = cut;
                    true
                }
            }
        }
        Value::Array(items) => {
            items.iter_mut().fold(false, |any, item| shorten(item, limit_chars) | any)
        }
        Value::Object(members) => {
            members.values_mut().fold(false, |any, member| shorten(member, limit_chars) | any)
        }
        _ => false,
    }
}
