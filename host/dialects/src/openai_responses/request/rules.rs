//! Makes input items satisfy the rules of the API.
//!
//! The invariants have paired calls and results already. These rules concern what they do not
//! cover: items with results of other kinds, duplicate ids, and reasoning without its successor.

use std::collections::{HashMap, HashSet};

use serde_json::{Value, json};

use crate::openai_responses::ID_MAX_CHARS;

/// The output of a call whose result is missing.
const NO_RESULT: &str = "(no result: the call was broken off)";

/// The prefixes of ids, by kind.
const ID_PREFIXES: [(&str, &str); 5] = [
    ("message", "msg_"),
    ("reasoning", "rs_"),
    ("function_call", "fc_"),
    ("custom_tool_call", "ctc_"),
    ("compaction", "cmp_"),
];

/// An input item.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct InputItem {
    /// The item.
    pub(super) value: Value,
    /// The index of its message.
    pub(super) origin: usize,
}

impl InputItem {
    fn kind(&self) -> &str {
        self.text("type")
    }

    fn text(&self, field: &str) -> &str {
        self.value.get(field).and_then(Value::as_str).unwrap_or_default()
    }

    /// The id of the call that this item is; `None` for searches that the server runs.
    fn call_id(&self) -> Option<&str> {
        Some(self.text("call_id")).filter(|id| !id.is_empty() && self.kind().ends_with("_call"))
    }

    /// The id of the call that this item answers.
    fn answered_call_id(&self) -> Option<&str> {
        Some(self.text("call_id")).filter(|id| !id.is_empty() && self.kind().ends_with("_output"))
    }
}

/// The items that the API accepts, in order.
pub(super) fn apply_rules(items: Vec<InputItem>) -> Vec<Value> {
    let items = drop_dangling_reasoning(pair_calls(drop_duplicates(items)));
    items.into_iter().map(|item| item.value).collect()
}

/// Removes invalid ids and items whose id occurred before.
fn drop_duplicates(items: Vec<InputItem>) -> Vec<InputItem> {
    let mut seen = HashSet::new();
    let mut kept = Vec::new();
    for mut item in items {
        if !has_legal_id(&item) {
            item.value.as_object_mut().and_then(|fields| fields.shift_remove("id"));
        }
        let id = item.text("id");
        if id.is_empty() || seen.insert(id.to_owned()) {
            kept.push(item);
        }
    }
    kept
}

fn has_legal_id(item: &InputItem) -> bool {
    let Some(id) = item.value.get("id").and_then(Value::as_str) else { return false };
    let prefix = ID_PREFIXES.iter().find(|(kind, _)| *kind == item.kind());
    id.chars().count() <= ID_MAX_CHARS && prefix.is_none_or(|(_, prefix)| id.starts_with(prefix))
}

/// Every call has one output after it, every output a call before it.
fn pair_calls(items: Vec<InputItem>) -> Vec<InputItem> {
    let mut open: HashMap<String, usize> = HashMap::new();
    let mut unanswered = HashSet::new();
    let mut orphans = HashSet::new();
    for (at, item) in items.iter().enumerate() {
        if let Some(call) = item.call_id() {
            // An id may occur again in a later turn, which ends its first call.
            unanswered.extend(open.insert(call.to_owned(), at));
        } else if let Some(call) = item.answered_call_id()
            && open.remove(call).is_none()
        {
            orphans.insert(at);
        }
    }
    unanswered.extend(open.into_values());
    let items = items.into_iter().enumerate().filter(|(at, _)| !orphans.contains(at));
    items.flat_map(|(at, item)| with_output(item, unanswered.contains(&at))).collect()
}

/// A call, with an output if it has none. Calls of other kinds are dropped, since the form of their
/// output is unknown.
fn with_output(item: InputItem, is_unanswered: bool) -> Vec<InputItem> {
    if !is_unanswered {
        return vec![item];
    }
    if item.kind() != "function_call" {
        return Vec::new();
    }
    let call_id = item.text("call_id");
    let value = json!({ "type": "function_call_output", "call_id": call_id, "output": NO_RESULT });
    let output = InputItem { value, origin: item.origin };
    vec![item, output]
}

/// Keeps reasoning only if another item of the same answer follows it, other than a compaction
///
fn drop_dangling_reasoning(items: Vec<InputItem>) -> Vec<InputItem> {
    let mut kept = Vec::with_capacity(items.len());
    // The answer of the next kept item; the loop runs backwards.
    let mut followed = None;
    for item in items.into_iter().rev() {
        if item.kind() != "reasoning" {
            followed = Some(item.origin).filter(|_| !item.kind().starts_with("compaction"));
        } else if followed != Some(item.origin) {
            continue;
        }
        kept.push(item);
    }
    kept.reverse();
    kept
}
