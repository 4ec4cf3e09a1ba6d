//! Finds how a request changed messages that are in the session already.

use std::ops::Range;

use super::IngestError;
use super::changed_runs::{RunEdits, apply_changes, is_noted};
use crate::proxy::new_items::NewItems;
use ctxhost_context::Amendment;
use ctxhost_conversations::{
    Conversation, HistoryRewrite, ItemEdits, KnownItems, RequestItems, text_hash, text_of_content,
};
use ctxhost_dialects::inbound::{InboundDialect, ItemGroup, ParseContext, ParsedEntry, json_items};
use ctxhost_session::{Record, RecordBody, Session};
use ctxhost_text::injected_text;

/// What a client has changed in a conversation, and the new items after that.
pub(super) struct ConversationAmendment {
    /// The known items without the removed ones.
    pub(super) known_items: KnownItems,
    pub(super) amendment: Amendment,
    pub(super) item_edits: ItemEdits,
    /// Whether something was changed of which the texts do not show that it is an edit.
    pub(super) is_unclear: bool,
    /// Whether the client has replaced whole turns.
    pub(super) has_replaced_turns: bool,
    /// Their entries, and the hash of each one's new text.
    pub(super) text_hashes: Vec<(String, u64)>,
    pub(super) new_items: NewItems,
}

/// The amendment for a rewritten history; `None` if an item group now parses to a different number of entries.
pub(super) fn find_amendment(
    conversation: &Conversation,
    inbound: &dyn InboundDialect,
    session: &Session,
    rewrite: &HistoryRewrite,
    request_items: &mut RequestItems<'_>,
) -> Result<Option<ConversationAmendment>, IngestError> {
    let mut known_items = KnownItems::clone(&conversation.known_items());
    let left_out = known_items.remove(&rewrite.removed, session);
    let run_edits = if rewrite.is_aligned {
        apply_changes(&mut known_items, inbound, session, rewrite, request_items)?
    } else {
        Some(RunEdits::default())
    };
    let Some(run_edits) = run_edits else { return Ok(None) };
    let RunEdits { records, mut text_hashes, spliced, is_unclear, has_replaced_turns } = run_edits;
    for (known, now) in &rewrite.shortened {
        let Some((_, [id])) = known_items.group_at(*known) else { return Ok(None) };
        let entries = reparse_group(&known_items, inbound, *now..now + 1, request_items)?;
        let texts = entries.iter().flatten().filter_map(content_of);
        let texts: Vec<String> = texts.map(|content| text_of_content(&content)).collect();
        let is_same = |text: &String| has_text(session, id, text) || has_note(session, id, text);
        if !texts.iter().all(is_same) || texts.is_empty() {
            return Ok(None);
        }
    }
    for (known, now) in &rewrite.extended {
        let Some((_, [id])) = known_items.group_at(*known) else { return Ok(None) };
        let entries = reparse_group(&known_items, inbound, *now..now + 1, request_items)?;
        let texts = entries.iter().flatten().filter_map(content_of);
        let texts: Vec<String> = texts.map(|content| text_of_content(&content)).collect();
        if !texts.iter().all(|text| has_result_behind(session, id, text)) {
            return Ok(None);
        }
    }
    let mut edits: Vec<RecordBody> =
        left_out.iter().map(|id| RecordBody::context_edit(id, None)).collect();
    edits.extend(records);
    let mut done = 0;
    for at in &rewrite.replaced {
        if *at < done {
            continue;
        }
        let Some((items, ids)) = known_items.group_at(*at) else { return Ok(None) };
        let (items, ids) = (items, ids.to_vec());
        done = items.end;
        let Some(entries) = reparse_group(&known_items, inbound, items, request_items)? else {
            return Ok(None);
        };
        // An edit that changes the number of entries is no edit of texts but another history.
        let contents: Option<Vec<String>> = entries.iter().map(content_of).collect();
        let Some(contents) = contents.filter(|contents| contents.len() == ids.len()) else {
            return Ok(None);
        };
        for (id, content) in ids.iter().zip(contents) {
            let text = text_of_content(&content);
            text_hashes.push((id.clone(), text_hash(&text)));
            edits.push(RecordBody::context_edit(id, Some(&content)));
        }
        known_items.add_calls(entries);
    }
    for at in &rewrite.without_calls {
        let Some((_, ids)) = known_items.group_at(*at) else { return Ok(None) };
        let has_text = |(id, hash): &(String, u64)| {
            let entry = session.record(id).and_then(Record::to_entry);
            !ids.contains(id) || entry.is_some_and(|entry| text_hash(&entry.text) == *hash)
        };
        if !text_hashes.iter().all(has_text) {
            return Ok(None);
        }
    }
    let removed = known_items.truncate(rewrite.kept);
    edits.extend(removed.iter().map(|id| RecordBody::context_edit(id, None)));
    let new_items = NewItems::parse(&known_items, inbound, request_items)?;
    let amendment = Amendment { branch_point: None, edits };
    let (removed, replaced) = (rewrite.removed.clone(), rewrite.replaced.clone());
    Ok(Some(ConversationAmendment {
        known_items,
        amendment,
        item_edits: ItemEdits { removed, spliced, replaced },
        is_unclear,
        has_replaced_turns,
        text_hashes,
        new_items,
    }))
}

/// Whether an entry has a text as part of its own.
fn has_text(session: &Session, id: &str, text: &str) -> bool {
    let entry = session.record(id).and_then(Record::to_entry);
    let text = text.trim();
    !text.is_empty() && entry.is_some_and(|entry| entry.text.contains(text))
}

/// Whether a text is that of an entry and a note behind it, which takes the place of an image.
fn has_note(session: &Session, id: &str, text: &str) -> bool {
    let entry = session.record(id).and_then(Record::to_entry);
    let known = entry.as_ref().map_or("", |entry| entry.text.trim());
    !known.is_empty() && is_noted(known, text)
}

/// Whether a text is that of an entry and a tool result behind it: clients with a text protocol join the result of a
/// failed step, whose answer they drop, with the message before it.
fn has_result_behind(session: &Session, id: &str, text: &str) -> bool {
    let entry = session.record(id).and_then(Record::to_entry);
    let behind = entry.as_ref().and_then(|entry| text.strip_prefix(entry.text.trim_end()));
    behind.is_some_and(injected_text::is_tool_output)
}

/// The new entries of one item group; `None` if it is several groups now.
fn reparse_group(
    known_items: &KnownItems,
    inbound: &dyn InboundDialect,
    items: Range<usize>,
    request_items: &RequestItems<'_>,
) -> Result<Option<Vec<ParsedEntry>>, IngestError> {
    let mut groups = parse_run(known_items, inbound, items, request_items)?;
    let group = groups.pop().filter(|_| groups.is_empty());
    Ok(group.map(|group| group.entries))
}

/// The groups of some items of a request.
pub(super) fn parse_run(
    known_items: &KnownItems,
    inbound: &dyn InboundDialect,
    items: Range<usize>,
    request_items: &RequestItems<'_>,
) -> Result<Vec<ItemGroup>, IngestError> {
    let before = ParseContext {
        is_start: items.start == 0,
        items: request_items.items().get(..items.start).unwrap_or_default(),
        tool_name_of: &|id| known_items.tool_of(id),
    };
    let start = items.start;
    let items = request_items.items().get(items).unwrap_or_default();
    let groups = inbound.parse_items(&mut json_items(items), before);
    Ok(groups.map_err(|error| error.after_items(start))?)
}

pub(super) fn content_of(entry: &ParsedEntry) -> Option<String> {
    match entry {
        ParsedEntry::Message(message) => {
            let message = serde_json::to_value(message).ok()?;
            Some(message.get("content")?.to_string())
        }
        ParsedEntry::Instruction(text) | ParsedEntry::Note(text) => {
            serde_json::to_string(text).ok()
        }
    }
}
