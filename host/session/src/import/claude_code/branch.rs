//! Branches of a Claude Code session: which records belong to prompts that the person took back.
//!
//! A prompt that is edited or sent again gets the same parent as the one it replaces; both stay in
//! the file, each with its replies below it. Only prompts are compared: the results of parallel
//! calls are brothers too, and all of them count.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::super::block::kind;
use super::super::json_lines::JsonRecord;

/// For each record, whether it is a prompt with a newer brother, or follows from such a prompt.
pub(super) fn find_reverted(records: &[JsonRecord]) -> Vec<bool> {
    let prompts = records.iter().filter(|record| is_prompt(record));
    let newest: HashMap<&str, &str> = prompts.filter_map(link).collect();
    let mut gone: HashSet<&str> = HashSet::new();
    let mut is_gone = |record| {
        let Some((parent, own)) = link(record) else { return false };
        let is_replaced = is_prompt(record) && newest.get(parent).is_some_and(|id| *id != own);
        let is_gone = is_replaced || gone.contains(parent);
        if is_gone {
            gone.insert(own);
        }
        is_gone
    };
    records.iter().map(&mut is_gone).collect()
}

/// The ids of the record it follows and of itself.
fn link(record: &JsonRecord) -> Option<(&str, &str)> {
    record.text("parentUuid").zip(record.text("uuid"))
}

/// Whether the person wrote it: words, not results and not a note of the agent.
fn is_prompt(record: &JsonRecord) -> bool {
    let content = record.fields.get("message").and_then(|message| message.get("content"));
    let is_of_agent = ["isMeta", "isCompactSummary"].iter().any(|mark| record.is_true(mark));
    record.text("type") == Some("user") && !is_of_agent && content.is_some_and(is_words)
}

fn is_words(content: &Value) -> bool {
    match content {
        Value::String(_) => true,
        Value::Array(blocks) => blocks.iter().all(|block| kind(block) != "tool_result"),
        _ => false,
    }
}
