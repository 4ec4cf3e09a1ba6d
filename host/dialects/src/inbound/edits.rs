//! Edits of a plan, applied to the parts of items.

use std::borrow::Cow;

use serde_json::Value;

use crate::message::ChatMessage;

/// What a plan does to one entry of a group.
#[derive(Clone, Debug, PartialEq)]
// Few exist at a time, each used at once.
#[allow(clippy::large_enum_variant)]
pub enum ItemEdit<'a> {
    /// Keeps it.
    Keep,
    /// Replaces its text: calls stay, images and thinking are dropped.
    ReplaceText(Cow<'a, str>),
    /// Replaces the message.
    ReplaceMessage(ChatMessage),
    /// Drops it.
    Drop,
}

/// Applies an edit to the parts of one entry; without an edit they are kept.
pub(crate) fn apply_edit(
    parts: Vec<Value>,
    edit: Option<&ItemEdit<'_>>,
    replace_text: impl FnOnce(Vec<Value>, &str) -> Vec<Value>,
    replace_message: impl FnOnce(Vec<Value>, &ChatMessage) -> Vec<Value>,
) -> Vec<Value> {
    match edit {
        None | Some(ItemEdit::Keep) => parts,
        Some(ItemEdit::Drop) => Vec::new(),
        Some(ItemEdit::ReplaceText(text)) => replace_text(parts, text),
        Some(ItemEdit::ReplaceMessage(message)) => replace_message(parts, message),
    }
}

/// Edits the parts of a user item. Tool results take the edits in order; the edit after theirs is
/// that of all other parts.
pub(crate) fn edit_user_parts(
    parts: Vec<Value>,
    edits: &[ItemEdit<'_>],
    is_result: impl FnMut(&Value) -> bool,
    edit_result: impl Fn(Value, &ItemEdit<'_>) -> Option<Value>,
    edit_rest: impl FnOnce(Vec<Value>, Option<&ItemEdit<'_>>) -> Vec<Value>,
) -> Vec<Value> {
    let (results, rest): (Vec<_>, Vec<_>) = parts.into_iter().partition(is_result);
    let rest_edit = edits.get(results.len());
    let results = results.into_iter().zip(edits);
    let mut parts: Vec<_> =
        results.filter_map(|(result, edit)| edit_result(result, edit)).collect();
    parts.extend(edit_rest(rest, rest_edit));
    parts
}
