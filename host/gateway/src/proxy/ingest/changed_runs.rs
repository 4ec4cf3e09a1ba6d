//! Records the runs of a conversation in whose place its client sends other messages, as edits of their entries.

use std::collections::{HashMap, HashSet};

use super::IngestError;
use super::amendment::{content_of, parse_run};
use super::derived_text::{Derivation, SHARED_CHARS, are_mostly_equal, derivation, is_part};
use ctxhost_conversations::{
    ChangedRun, HistoryRewrite, ItemAuthor, ItemSplice, KnownItems, RequestItems, text_hash,
    text_of_content,
};
use ctxhost_dialects::ChatMessage;
use ctxhost_dialects::inbound::{InboundDialect, ItemGroup, ParsedEntry};
use ctxhost_engine_api::transcript::log::NewEntry;
use ctxhost_engine_api::{EntryKind, Role};
use ctxhost_session::{Record, RecordBody, Session};

/// The longest note that takes the place of an image. Known ones have up to 120 bytes.
pub(super) const NOTE_MAX_BYTES: usize = 200;

/// Known entries among which a place for a new one is searched. Runs may have thousands of both.
const MAX_AHEAD: usize = 64;

/// The changed runs of a request, as edits.
#[derive(Default)]
pub(super) struct RunEdits {
    pub(super) records: Vec<RecordBody>,
    /// Entries with a new text, and its hash.
    pub(super) text_hashes: Vec<(String, u64)>,
    pub(super) spliced: Vec<ItemSplice>,
    /// Whether something was changed of which the texts do not show that it is an edit.
    pub(super) is_unclear: bool,
    /// Whether whole turns were replaced: their client has summarized them.
    pub(super) has_replaced_turns: bool,
}

/// What a changed run is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RunKind {
    /// An edit that leaves the texts of the newest answer whole.
    Edit,
    /// An edit that cuts them.
    Cut,
    /// Something else may have been there.
    Unclear,
}

/// Applies the changes of an aligned request to the known items. `None` if it is another conversation: a question is
/// another one, or the answers behind the last unclear change do not identify it.
pub(super) fn apply_changes(
    known_items: &mut KnownItems,
    inbound: &dyn InboundDialect,
    session: &Session,
    rewrite: &HistoryRewrite,
    request_items: &mut RequestItems<'_>,
) -> Result<Option<RunEdits>, IngestError> {
    let newest = known_items.newest_answer();
    let (mut edits, mut hidden) = (RunEdits::default(), HashSet::new());
    let mut proof_from = 0;
    for run in &rewrite.changes {
        let entries = entries_of(known_items, session, run);
        let groups = parse_run(known_items, inbound, run.now.clone(), request_items)?;
        let Some(kind) = kind_of(run, &entries, &groups, known_items, request_items) else {
            return Ok(None);
        };
        let has_newest = newest.is_some_and(|newest| run.known.contains(&newest));
        if has_newest && kind != RunKind::Edit {
            return Ok(None);
        }
        if kind == RunKind::Unclear {
            proof_from = run.now.end;
            edits.is_unclear = true;
            edits.has_replaced_turns |= !run.now.is_empty() && has_turn(known_items, run);
        }
        let Some(written) = write_entries(&entries, groups) else { return Ok(None) };
        let Some(splice) = ItemSplice::new(run, written.groups, request_items) else {
            return Ok(None);
        };
        edits.spliced.push(splice);
        let contents: HashMap<String, String> = written.contents.into_iter().collect();
        for entry in &entries {
            match contents.get(&entry.id) {
                Some(content) => {
                    let hash = text_hash(&text_of_content(content));
                    edits.text_hashes.push((entry.id.clone(), hash));
                    edits.records.push(RecordBody::context_edit(&entry.id, Some(content)));
                }
                None => {
                    edits.records.push(RecordBody::context_edit(&entry.id, None));
                    hidden.insert(entry.id.clone());
                }
            }
        }
        known_items.add_calls(written.calls);
    }
    if known_items.splice(&edits.spliced, &hidden, session).is_none() {
        return Ok(None);
    }
    let is_identified = known_items.is_identified_from(proof_from, request_items);
    Ok(is_identified.then_some(edits))
}

/// The entries of a run.
fn entries_of(known_items: &KnownItems, session: &Session, run: &ChangedRun) -> Vec<NewEntry> {
    let mut entries = Vec::new();
    let mut at = run.known.start;
    while at < run.known.end {
        let Some((items, ids)) = known_items.group_at(at) else { break };
        at = items.end;
        entries.extend(ids.iter().filter_map(|id| session.record(id).and_then(Record::to_entry)));
    }
    entries
}

/// Whether a run has a question, or more than one answer.
fn has_turn(known_items: &KnownItems, run: &ChangedRun) -> bool {
    let authors = known_items.authors(run.known.clone());
    let count = |author: ItemAuthor| authors.iter().filter(|it| **it == Some(author)).count();
    count(ItemAuthor::User) > 0 || count(ItemAuthor::Model) > 1
}

/// What a changed run is; `None` if only another conversation has it.
fn kind_of(
    run: &ChangedRun,
    entries: &[NewEntry],
    groups: &[ItemGroup],
    known_items: &KnownItems,
    request_items: &mut RequestItems<'_>,
) -> Option<RunKind> {
    let authors = known_items.authors(run.known.clone());
    let is_all = |author: ItemAuthor| authors.iter().all(|it| *it == Some(author));
    if run.now.is_empty() {
        return Some(RunKind::Unclear);
    }
    if is_all(ItemAuthor::Client) {
        // Context and reminders of a client change.
        return Some(RunKind::Edit);
    }
    let is_pair = run.known.len() == 1 && run.now.len() == 1;
    if is_pair {
        let (known, now) = (run.known.start, run.now.start);
        let is_same_call = is_all(ItemAuthor::Tool)
            && request_items.has_random_id(now)
            && known_items.is_same_call(known, request_items, now);
        if is_same_call || known_items.is_edit_of(known, request_items, now) {
            return Some(RunKind::Edit);
        }
    }
    let parsed = || groups.iter().flat_map(|group| &group.entries);
    // A client writes all of a call, or a text of its own.
    let with_calls = parsed().any(|entry| !calls_of(entry).is_empty());
    let known: Vec<String> = entries.iter().map(|entry| known_text(entry, with_calls)).collect();
    let now: Vec<String> = parsed().map(new_text).collect();
    match derivation(&known, &now) {
        Some(Derivation::Cut) => return Some(RunKind::Cut),
        Some(Derivation::Whole | Derivation::Rewritten) => return Some(RunKind::Edit),
        None => {}
    }
    if is_all(ItemAuthor::User) {
        let (known, now) = (known.join("\n"), now.join("\n"));
        let is_first = run.known.start == 0 && run.now.start == 0;
        let is_edit = is_part(&known, &now)
            || is_noted(&known, &now)
            || is_first && are_mostly_equal(&known, &now);
        if is_edit {
            return Some(RunKind::Edit);
        }
        // Runs of two tasks may differ in the question alone. What was cut to a few words tells nothing.
        let lengths = SHARED_CHARS..known.len();
        let is_cut = lengths.contains(&now.len()) && are_mostly_equal(&known, &now);
        return is_cut.then_some(RunKind::Unclear);
    }
    Some(RunKind::Unclear)
}

/// The text of an entry; with its calls, if so.
fn known_text(entry: &NewEntry, with_calls: bool) -> String {
    let message = serde_json::from_str(&entry.raw).ok().filter(|_| with_calls);
    let calls = message.map(|message| calls_of(&ParsedEntry::Message(message)));
    [entry.text.clone(), calls.unwrap_or_default()].concat()
}

/// The text of a new entry with its calls.
fn new_text(entry: &ParsedEntry) -> String {
    let text = content_of(entry).map(|content| text_of_content(&content));
    [text.unwrap_or_default(), calls_of(entry)].concat()
}

/// The calls of an entry as text.
fn calls_of(entry: &ParsedEntry) -> String {
    let ParsedEntry::Message(ChatMessage::Assistant(answer)) = entry else { return String::new() };
    answer.tool_calls().map(|call| format!(" {} {}", call.name, call.arguments)).collect()
}

/// Whether a text is that of an entry and a note behind it, which takes the place of an image.
pub(super) fn is_noted(known: &str, now: &str) -> bool {
    let note = now.trim().strip_prefix(known.trim());
    note.is_some_and(|note| note.len() <= NOTE_MAX_BYTES)
}

/// The entries of a run with their new contents.
#[derive(Default)]
struct WrittenRun {
    /// Entry ids and JSON contents.
    contents: Vec<(String, String)>,
    /// Per group: the number of items and of entries.
    groups: Vec<(usize, usize)>,
    /// The parsed entries, for their calls.
    calls: Vec<ParsedEntry>,
}

/// Writes the new groups into the known entries, in order and each into one of its own role. A group that finds none is
/// added to the one before it, or to the next one. `None` if none of them finds one.
fn write_entries(entries: &[NewEntry], groups: Vec<ItemGroup>) -> Option<WrittenRun> {
    let mut written = WrittenRun::default();
    let mut free = entries.iter();
    let (mut waiting_items, mut waiting_texts) = (0, Vec::<String>::new());
    for group in groups {
        let contents: Vec<String> = group.entries.iter().filter_map(content_of).collect();
        let mut tried = free.clone();
        let found: Option<Vec<&NewEntry>> = group
            .entries
            .iter()
            .map(|parsed| {
                let mut next = tried.by_ref().take(MAX_AHEAD);
                next.find(|entry| has_place_for(entry, parsed))
            })
            .collect();
        let texts = contents.iter().map(|content| text_of_content(content));
        match found {
            Some(found) if found.len() == contents.len() => {
                let count = found.len();
                written
                    .contents
                    .extend(found.into_iter().map(|entry| entry.id.clone()).zip(contents));
                written.groups.push((group.item_count + waiting_items, count));
                waiting_items = 0;
                if !waiting_texts.is_empty() && count > 0 {
                    let first = written.contents.len() - count;
                    add_text(written.contents.get_mut(first)?, &waiting_texts.join("\n"), true);
                    waiting_texts.clear();
                }
                free = tried;
            }
            _ if written.contents.is_empty() => {
                waiting_items += group.item_count;
                waiting_texts.extend(texts);
            }
            _ => {
                written.groups.last_mut()?.0 += group.item_count;
                let text = texts.collect::<Vec<_>>().join("\n");
                add_text(written.contents.last_mut()?, &text, false);
            }
        }
        written.calls.extend(group.entries);
    }
    if waiting_items > 0 {
        // A result without its call would be dropped.
        let entry = entries.iter().find(|entry| entry.answers.is_none())?;
        let content = serde_json::to_string(&waiting_texts.join("\n")).ok()?;
        let mut content = (entry.id.clone(), content);
        if entry.kind == EntryKind::Message {
            content.1 = format!(r#"[{{"type":"text","text":{}}}]"#, content.1);
        }
        written.contents.push(content);
        written.groups.push((waiting_items, 1));
    }
    Some(written)
}

/// Adds a text to a content, before or behind its own.
fn add_text((_, content): &mut (String, String), text: &str, is_before: bool) {
    let parsed = serde_json::from_str::<serde_json::Value>(content);
    let block = serde_json::json!({ "type": "text", "text": text });
    *content = match parsed {
        Ok(serde_json::Value::Array(mut blocks)) => {
            blocks.insert(if is_before { 0 } else { blocks.len() }, block);
            serde_json::Value::Array(blocks).to_string()
        }
        Ok(serde_json::Value::String(own)) => {
            let texts = if is_before { [text, &own] } else { [&own, text] };
            serde_json::Value::String(texts.join("\n")).to_string()
        }
        _ => return,
    };
}

/// Whether an entry can have this content: it has the same role, and answers the same call.
fn has_place_for(entry: &NewEntry, parsed: &ParsedEntry) -> bool {
    let is_message = entry.kind == EntryKind::Message;
    match parsed {
        ParsedEntry::Message(ChatMessage::User(_)) => {
            is_message && entry.role == Role::User && entry.answers.is_none()
        }
        ParsedEntry::Message(ChatMessage::Assistant(_)) => {
            is_message && entry.role == Role::Assistant
        }
        ParsedEntry::Message(ChatMessage::ToolResult(result)) => {
            entry.answers.as_ref() == Some(&result.tool_call_id)
        }
        ParsedEntry::Instruction(_) | ParsedEntry::Note(_) => !is_message,
    }
}
