//! Finds the records of a Claude Code session that belong to reverted prompts.
//!
//! A prompt that is edited or sent again has the same parent as the one it replaces, and both stay in the
//! file with their replies. Only prompts are compared, because results of parallel calls are siblings too,
//! and all of them count.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::super::block::kind;
use super::super::json_lines::JsonRecord;

/// For each record, whether it is a prompt with a newer sibling, or a descendant of one.
pub(super) fn find_reverted(records: &[JsonRecord]) -> Vec<bool> {
    let prompts = records.iter().filter(|record| is_prompt(record));
    let newest: HashMap<&str, &str> = prompts.filter_map(link).collect();
    let mut reverted: HashSet<&str> = HashSet::new();
    let mut is_reverted = |record| {
        let Some((parent, own)) = link(record) else { return false };
        let is_replaced = is_prompt(record) && newest.get(parent).is_some_and(|id| *id != own);
        let is_reverted = is_replaced || reverted.contains(parent);
        if is_reverted {
            reverted.insert(own);
        }
        is_reverted
    };
    records.iter().map(&mut is_reverted).collect()
}

/// The ids of its parent and of itself. A compaction has no parent but names the record that it follows.
fn link(record: &JsonRecord) -> Option<(&str, &str)> {
    record.text("parentUuid").or_else(|| record.text("logicalParentUuid")).zip(record.text("uuid"))
}

/// Whether the user wrote it: text, neither results nor a note of the agent.
fn is_prompt(record: &JsonRecord) -> bool {
    let content = record.fields.get("message").and_then(|message| message.get("content"));
    let is_agent_note = ["isMeta", "isCompactSummary"].iter().any(|mark| record.is_true(mark));
    record.text("type") == Some("user") && !is_agent_note && content.is_some_and(is_user_text)
}

fn is_user_text(content: &Value) -> bool {
    match content {
        Value::String(_) => true,
        Value::Array(blocks) => blocks.iter().all(|block| kind(block) != "tool_result"),
        _ => false,
    }
}
