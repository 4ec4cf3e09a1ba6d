//! Renders a checked plan as a request body: kept items are copied, changed ones written anew.

use std::collections::HashMap;
use std::ops::Range;

use ctxhost_engine_api::{Entry, Flags, PlanItem, Role};
use serde_json::Value;

use super::dialect::{InboundDialect, TurnItem};
use super::edits::ItemEdit;
use super::item_json::parse_item;
use super::parsed::ParsedBody;
use super::spans::list_span;
use crate::message::ChatMessage;

/// The position of an entry in a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryLocation {
    /// The index of its group.
    pub group: usize,
    /// Its index in the group.
    pub entry: usize,
}

/// A client's request and its groups.
#[derive(Clone, Copy, Debug)]
pub struct SourceBody<'a> {
    /// The whole body.
    pub json: &'a str,
    /// The parsed body.
    pub body: &'a ParsedBody<'a>,
    /// The items of each group, in order and without gaps, and the number of its entries.
    pub groups: &'a [(Range<usize>, usize)],
    /// The groups without their thinking.
    pub groups_without_thinking: &'a [Range<usize>],
}

/// Renders the projection as a body.
///
/// `place` finds entries in `source`; entries that it does not find (summaries of compactions) become
/// user messages. `message` parses the JSON of a rewritten entry.
pub fn render_body(
    dialect: &dyn InboundDialect,
    source: SourceBody<'_>,
    projection: &[PlanItem<'_>],
    place: &dyn Fn(&Entry<'_>) -> Option<EntryLocation>,
    message: &dyn Fn(&str) -> Option<ChatMessage>,
) -> Vec<u8> {
    if source.body.items.is_empty() {
        return source.json.as_bytes().to_vec();
    }
    let mut writer = BodyWriter { dialect, source, parts: Vec::new(), next: 0, rest: None };
    writer.write_compaction();
    let mut group: Option<GroupEdits<'_>> = None;
    // Dialects with calls as items need the call's kind for a missing result.
    let calls = index_calls(dialect, projection, &source.body.items);
    for (number, item) in projection.iter().enumerate() {
        let at = item.entry().and_then(|entry| place(&entry));
        let Some(at) = at else {
            writer.write_group(group.take());
            let rest = projection.get(number + 1..).unwrap_or_default();
            let can_answer = !writer.parts.is_empty() && can_answer_before(rest, place);
            writer.insert(inserted_item(dialect, item, can_answer, &calls));
            continue;
        };
        if group.as_ref().is_none_or(|group| !group.continues_at(at)) {
            writer.write_group(group.take());
            group = Some(GroupEdits::new(at.group, source.entry_count(at.group)));
        }
        if let Some(group) = &mut group {
            group.set(at.entry, edit_of(item, message));
        }
    }
    writer.write_group(group);
    writer.copy_until(source.groups.len());
    if writer.parts.is_empty() {
        // No provider answers an empty list; Ollama takes it for a request to load the model.
        return source.json.as_bytes().to_vec();
    }
    writer.join_parts().complete_turn().into_bytes()
}

impl SourceBody<'_> {
    fn entry_count(&self, group: usize) -> usize {
        self.groups.get(group).map_or(0, |(_, entries)| *entries)
    }

    fn drops_thinking(&self, group: usize) -> bool {
        self.groups_without_thinking.iter().any(|groups| groups.contains(&group))
    }

    fn group_items(&self, group: usize) -> &[&str] {
        let range = self.groups.get(group).map(|(range, _)| range.clone()).unwrap_or_default();
        self.body.items.get(range).unwrap_or_default()
    }
}

/// The items that are calls, by call id; only needed if a call has no result.
fn index_calls<'a>(
    dialect: &dyn InboundDialect,
    projection: &[PlanItem<'_>],
    items: &[&'a str],
) -> HashMap<String, &'a str> {
    if !projection.iter().any(|item| matches!(item, PlanItem::MissingResult { .. })) {
        return HashMap::new();
    }
    let items = items.iter().enumerate();
    items.filter_map(|(at, item)| Some((dialect.item_call_id(item, at)?, *item))).collect()
}

/// Whether an inserted answer can precede these items. A conversation ends with the user; several providers refuse any other.
/// An answer that begins with thinking must begin its turn, and answers in a row are joined.
fn can_answer_before(
    rest: &[PlanItem<'_>],
    place: &dyn Fn(&Entry<'_>) -> Option<EntryLocation>,
) -> bool {
    let mut entries = rest.iter().filter_map(PlanItem::entry);
    let next = entries.find(|entry| place(entry).is_some());
    !rest.is_empty() && !next.is_some_and(|entry| entry.has(Flags::THINKING))
}

fn inserted_item(
    dialect: &dyn InboundDialect,
    item: &PlanItem<'_>,
    can_answer: bool,
    calls: &HashMap<String, &str>,
) -> Option<Value> {
    match item {
        PlanItem::MissingResult { call_id, tool } => {
            let call = calls.get(&**call_id).copied();
            dialect.missing_result_item(call_id, tool, &item.text(), call)
        }
        _ if can_answer && item.role() == Role::Assistant => {
            Some(dialect.assistant_item(&item.text()))
        }
        _ => Some(dialect.user_item(&item.text())),
    }
}

fn edit_of<'a>(item: &PlanItem<'a>, message: &dyn Fn(&str) -> Option<ChatMessage>) -> ItemEdit<'a> {
    match item {
        PlanItem::ReplacedRaw { raw, .. } => {
            // A message that cannot be parsed is sent as the client wrote it.
            message(raw).map_or(ItemEdit::Keep, ItemEdit::ReplaceMessage)
        }
        PlanItem::ReplacedText { .. } => ItemEdit::ReplaceText(item.text()),
        _ => ItemEdit::Keep,
    }
}

/// The edits of the entries of one group that are adjacent in the projection.
struct GroupEdits<'a> {
    group: usize,
    last: Option<usize>,
    edits: Vec<ItemEdit<'a>>,
}

impl<'a> GroupEdits<'a> {
    fn new(group: usize, entries: usize) -> Self {
        // What the plan does not name is dropped.
        GroupEdits { group, last: None, edits: vec![ItemEdit::Drop; entries] }
    }

    fn continues_at(&self, at: EntryLocation) -> bool {
        self.group == at.group && self.last.is_none_or(|last| last < at.entry)
    }

    fn set(&mut self, entry: usize, edit: ItemEdit<'a>) {
        self.last = Some(entry);
        if let Some(slot) = self.edits.get_mut(entry) {
            *slot = edit;
        }
    }
}

enum BodyPart {
    /// The original items of a group.
    Original(usize),
    /// A new item.
    Inserted(Value),
}

impl BodyPart {
    /// The group whose original items it is.
    fn group(&self) -> Option<usize> {
        match self {
            BodyPart::Original(group) => Some(*group),
            BodyPart::Inserted(_) => None,
        }
    }
}

struct BodyWriter<'a> {
    dialect: &'a dyn InboundDialect,
    source: SourceBody<'a>,
    parts: Vec<BodyPart>,
    /// The first group that was not written or dropped yet.
    next: usize,
    /// The first item without the provider's compaction, which is written already.
    rest: Option<String>,
}

impl BodyWriter<'_> {
    fn insert(&mut self, item: Option<Value>) {
        self.parts.extend(item.map(BodyPart::Inserted));
    }

    /// Writes the provider's newest compaction, which the first item has: what is written before it would be ignored.
    fn write_compaction(&mut self) {
        let first = self.source.body.items.first();
        let Some(split) = first.and_then(|item| self.dialect.split_compaction(item)) else {
            return;
        };
        if self.source.entry_count(0) == 0 {
            self.parts.push(BodyPart::Original(0));
            self.next = 1;
        } else {
            self.parts.push(BodyPart::Inserted(split.compaction));
            self.rest = split.rest;
        }
    }

    fn write_group(&mut self, group: Option<GroupEdits<'_>>) {
        let Some(GroupEdits { group, edits, .. }) = group else { return };
        self.copy_until(group);
        self.next = self.next.max(group + 1);
        let drops_thinking = self.source.drops_thinking(group);
        let rest = self.rest.take_if(|_| group == 0);
        let items = if let Some(rest) = rest {
            Some(self.dialect.edit_items(&[rest.as_str()], &edits))
        } else if edits.iter().any(|edit| *edit != ItemEdit::Keep) {
            Some(self.dialect.edit_items(self.source.group_items(group), &edits))
        } else if drops_thinking {
            self.items_with_thinking(group)
        } else {
            None
        };
        let Some(items) = items else {
            self.parts.push(BodyPart::Original(group));
            return;
        };
        for item in items {
            self.insert(if drops_thinking {
                self.dialect.strip_thinking(item)
            } else {
                Some(item)
            });
        }
    }

    /// The parsed items of a group with thinking; `None` if it has none and can be copied.
    fn items_with_thinking(&self, group: usize) -> Option<Vec<Value>> {
        let items = self.source.group_items(group);
        // Most groups have none, and this is cheaper than to parse them.
        if !items.iter().any(|item| item.contains("thinking")) {
            return None;
        }
        let parse = |item: &&str| parse_item(item).ok();
        let values: Vec<Value> = items.iter().map(parse).collect::<Option<_>>()?;
        let has_thinking =
            |value: &Value| self.dialect.strip_thinking(value.clone()).as_ref() != Some(value);
        values.iter().any(has_thinking).then_some(values)
    }

    fn copy_until(&mut self, group: usize) {
        for passed in self.next..group {
            // Groups without entries are invisible to engines, so no plan can keep or drop them.
            if self.source.entry_count(passed) == 0 {
                self.parts.push(BodyPart::Original(passed));
            }
        }
        self.next = self.next.max(group);
    }

    /// Joins new items with their neighbours where the dialect requires one item.
    fn join_parts(mut self) -> Self {
        let mut joined: Vec<BodyPart> = Vec::with_capacity(self.parts.len());
        for part in std::mem::take(&mut self.parts) {
            let Some(last) = joined.pop() else {
                joined.push(self.first_part(part));
                continue;
            };
            // What the client sent as two items stays two: its provider has accepted them.
            if matches!((&last, &part), (BodyPart::Original(one), BodyPart::Original(next)) if one + 1 == *next)
            {
                joined.extend([last, part]);
                continue;
            }
            self.join_neighbours(last, part, &mut joined);
        }
        self.parts = joined;
        self
    }

    /// The first part of the list, as it can be sent there.
    fn first_part(&self, part: BodyPart) -> BodyPart {
        // The client has sent it there as well.
        if part.group() == Some(0) || !self.is_one_item(&part) {
            return part;
        }
        let group = part.group();
        let value = self.part_value(part);
        match (self.dialect.detached_item(None, &value), group) {
            (Some(other), _) => BodyPart::Inserted(other),
            (None, Some(group)) => BodyPart::Original(group),
            (None, None) => BodyPart::Inserted(value),
        }
    }

    fn join_neighbours(&self, last: BodyPart, part: BodyPart, joined: &mut Vec<BodyPart>) {
        if !self.is_one_item(&last) || !self.is_one_item(&part) {
            joined.extend([last, part]);
            return;
        }
        let mut groups = [last.group(), part.group()];
        // Values are moved: an item that grew by many joins is not cloned for the next one.
        let (mut first, mut second) = (self.part_value(last), self.part_value(part));
        if let Some(other) = self.dialect.detached_item(Some(&first), &second) {
            (second, groups[1]) = (other, None);
        }
        let Some(second) = self.dialect.join_items(&mut first, second) else {
            joined.push(BodyPart::Inserted(first));
            return;
        };
        let unchanged = |(group, value): (Option<usize>, Value)| {
            group.map_or_else(|| BodyPart::Inserted(value), BodyPart::Original)
        };
        joined.extend(groups.into_iter().zip([first, second]).map(unchanged));
    }

    fn is_one_item(&self, part: &BodyPart) -> bool {
        match part {
            BodyPart::Inserted(_) => true,
            BodyPart::Original(group) => matches!(self.source.group_items(*group), [_]),
        }
    }

    /// The value of a part that is one item.
    fn part_value(&self, part: BodyPart) -> Value {
        match part {
            BodyPart::Inserted(value) => value,
            BodyPart::Original(group) => {
                let item = self.source.group_items(group).first().copied().unwrap_or_default();
                parse_item(item).unwrap_or_default()
            }
        }
    }

    /// Adds what the provider requires of the items of the current turn.
    fn complete_turn(mut self) -> Self {
        let mut turn = Vec::new();
        while let Some(part) = self.parts.pop() {
            if !self.is_one_item(&part) {
                turn.push(part);
                continue;
            }
            let group = part.group();
            let mut item = self.part_value(part);
            let state = self.dialect.complete_turn_item(&self.source.body.model, &mut item);
            turn.push(match group.filter(|_| state != TurnItem::Changed) {
                Some(group) => BodyPart::Original(group),
                None => BodyPart::Inserted(item),
            });
            if state == TurnItem::Start {
                break;
            }
        }
        self.parts.extend(turn.into_iter().rev());
        self
    }

    fn into_bytes(self) -> Vec<u8> {
        let json = self.source.json;
        let (before, after) = self.source.body.split_at_messages(json, self.parts.is_empty());
        let mut bytes = Vec::with_capacity(json.len());
        bytes.extend_from_slice(before.as_bytes());
        let mut at = 0;
        while let Some(part) = self.parts.get(at) {
            if at > 0 {
                bytes.push(b',');
            }
            match part {
                BodyPart::Inserted(value) => {
                    bytes.extend_from_slice(value.to_string().as_bytes());
                }
                BodyPart::Original(first) => {
                    let groups = self.adjacent_groups(at);
                    bytes.extend_from_slice(self.original_text(*first, groups).as_bytes());
                    at += groups - 1;
                }
            }
            at += 1;
        }
        bytes.extend_from_slice(after.as_bytes());
        bytes
    }

    /// How many parts from `at` on are groups that also follow each other in the source.
    fn adjacent_groups(&self, at: usize) -> usize {
        let groups = self.parts.iter().skip(at).map_while(BodyPart::group);
        let mut length = 0;
        let mut expected = None;
        for group in groups {
            if expected.is_some_and(|expected| expected != group) {
                break;
            }
            expected = Some(group + 1);
            length += 1;
        }
        length.max(1)
    }

    /// The text of `groups` groups, with the white space between their items.
    fn original_text(&self, first: usize, groups: usize) -> &str {
        let last = first + groups - 1;
        let ends = (self.source.group_items(first).first(), self.source.group_items(last).last());
        let (Some(begin), Some(end)) = ends else { return "" };
        let json = self.source.json;
        json.get(list_span(json, &[*begin, *end])).unwrap_or_default()
    }
}
