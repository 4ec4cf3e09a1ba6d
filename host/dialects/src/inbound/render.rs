//! A lawful plan as the bytes of a request: what it keeps is copied, what it changes is written anew.

use std::collections::HashMap;
use std::ops::Range;

use ctxhost_engine_api::{Entry, PlanItem};
use serde_json::Value;

use super::{InboundDialect, ItemEdit, ParsedBody};
use crate::ChatMessage;

/// Where an entry stands in a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryLocation {
    /// Its unit.
    pub group: usize,
    /// Which entry of the unit it is.
    pub entry: usize,
}

/// A request as its client wrote it, and how it is made of units.
#[derive(Clone, Copy, Debug)]
pub struct SourceBody<'a> {
    /// The whole body.
    pub json: &'a str,
    /// The same, cut.
    pub body: &'a ParsedBody<'a>,
    /// The items of each unit, in order and without gaps, and how many entries they are.
    pub groups: &'a [(Range<usize>, usize)],
    /// The units whose thinking is left out.
    pub groups_without_thinking: &'a [Range<usize>],
}

/// The bytes of the request that the projection makes of the one that was written.
///
/// `place` finds entries in it; what it does not find (summaries of compactions) is said in the
/// person's place. `message` reads the JSON of a rewritten entry.
pub fn render_body(
    dialect: &dyn InboundDialect,
    written: SourceBody<'_>,
    projection: &[PlanItem<'_>],
    place: &dyn Fn(&Entry<'_>) -> Option<EntryLocation>,
    message: &dyn Fn(&str) -> Option<ChatMessage>,
) -> Vec<u8> {
    if written.body.items.is_empty() {
        return written.json.as_bytes().to_vec();
    }
    let mut parts = BodyWriter { dialect, written, parts: Vec::new(), next: 0 };
    let mut run: Option<GroupEdits<'_>> = None;
    let calls = index_calls(dialect, projection, &written.body.items);
    for item in projection {
        let at = item.entry().and_then(|entry| place(&entry));
        let Some(at) = at else {
            parts.write_group(run.take());
            parts.insert(inserted_item(dialect, item, &calls));
            continue;
        };
        if run.as_ref().is_none_or(|run| !run.continues_at(at)) {
            parts.write_group(run.take());
            run = Some(GroupEdits::new(at.group, written.entry_count(at.group)));
        }
        if let Some(run) = &mut run {
            run.set(at.entry, edit_of(item, message));
        }
    }
    parts.write_group(run);
    parts.copy_until(written.groups.len());
    parts.join_parts().into_bytes(written)
}

impl SourceBody<'_> {
    fn entry_count(&self, unit: usize) -> usize {
        self.groups.get(unit).map_or(0, |(_, entries)| *entries)
    }

    fn drops_thinking(&self, unit: usize) -> bool {
        self.groups_without_thinking.iter().any(|units| units.contains(&unit))
    }

    fn group_items(&self, unit: usize) -> &[&str] {
        let range = self.groups.get(unit).map(|(range, _)| range.clone()).unwrap_or_default();
        self.body.items.get(range).unwrap_or_default()
    }
}

/// The items that ask for calls, by the calls' ids; none are looked for where every call has a result.
fn index_calls<'a>(
    dialect: &dyn InboundDialect,
    projection: &[PlanItem<'_>],
    items: &[&'a str],
) -> HashMap<String, &'a str> {
    match projection.iter().any(|item| matches!(item, PlanItem::MissingResult { .. })) {
        true => {
            items.iter().filter_map(|item| Some((dialect.item_call_id(item)?, *item))).collect()
        }
        false => HashMap::new(),
    }
}

fn inserted_item(
    dialect: &dyn InboundDialect,
    item: &PlanItem<'_>,
    calls: &HashMap<String, &str>,
) -> Option<Value> {
    match item {
        PlanItem::MissingResult { call_id, tool } => {
            let call = calls.get(&**call_id).copied();
            dialect.missing_result_item(call_id, tool, &item.text(), call)
        }
        _ => Some(dialect.user_item(&item.text())),
    }
}

fn edit_of<'a>(item: &PlanItem<'a>, message: &dyn Fn(&str) -> Option<ChatMessage>) -> ItemEdit<'a> {
    match item {
        PlanItem::ReplacedRaw { raw, .. } => match message(raw) {
            Some(message) => ItemEdit::ReplaceMessage(message),
            None => ItemEdit::Keep,
        },
        PlanItem::ReplacedText { .. } => ItemEdit::ReplaceText(item.text()),
        _ => ItemEdit::Keep,
    }
}

/// Entries of one unit that stand beside each other in the projection.
struct GroupEdits<'a> {
    group: usize,
    last: Option<usize>,
    edits: Vec<ItemEdit<'a>>,
}

impl<'a> GroupEdits<'a> {
    fn new(unit: usize, entries: usize) -> Self {
        GroupEdits { group: unit, last: None, edits: vec![ItemEdit::Drop; entries] }
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
    /// A unit, as it was written.
    Original(usize),
    /// An item of ours.
    Inserted(Value),
}

struct BodyWriter<'a> {
    dialect: &'a dyn InboundDialect,
    written: SourceBody<'a>,
    parts: Vec<BodyPart>,
    /// The first unit that was not passed yet.
    next: usize,
}

impl BodyWriter<'_> {
    fn insert(&mut self, item: Option<Value>) {
        self.parts.extend(item.map(BodyPart::Inserted));
    }

    fn write_group(&mut self, run: Option<GroupEdits<'_>>) {
        let Some(run) = run else { return };
        self.copy_until(run.group);
        self.next = self.next.max(run.group + 1);
        let lacks_thinking = self.written.drops_thinking(run.group);
        let items = match run.edits.iter().all(|edit| *edit == ItemEdit::Keep) {
            true => lacks_thinking.then(|| self.strip_group_thinking(run.group)).flatten(),
            false => Some(self.dialect.edit_items(self.written.group_items(run.group), &run.edits)),
        };
        let Some(items) = items else {
            self.parts.push(BodyPart::Original(run.group));
            return;
        };
        let dialect = self.dialect;
        let left = items.into_iter().filter_map(|item| match lacks_thinking {
            true => dialect.strip_thinking(item),
            false => Some(item),
        });
        self.parts.extend(left.map(BodyPart::Inserted));
    }

    /// A unit whose thinking is left out; `None` where it has none.
    fn strip_group_thinking(&self, unit: usize) -> Option<Vec<Value>> {
        let items = self.written.group_items(unit);
        if !items.iter().any(|item| item.contains("thinking")) {
            return None;
        }
        let read = |item: &&str| serde_json::from_str::<Value>(item).ok();
        let values: Vec<Value> = items.iter().map(read).collect::<Option<_>>()?;
        let has_any =
            |value: &Value| self.dialect.strip_thinking(value.clone()).as_ref() != Some(value);
        values.iter().any(has_any).then_some(values)
    }

    /// Units without entries are no engine's business: they stay where they are.
    fn copy_until(&mut self, unit: usize) {
        for passed in self.next..unit {
            if self.written.entry_count(passed) == 0 {
                self.parts.push(BodyPart::Original(passed));
            }
        }
        self.next = self.next.max(unit);
    }

    /// Items of ours become one with their neighbours where the dialect wants that. Two units that
    /// the client wrote beside each other stay two.
    fn join_parts(mut self) -> Self {
        let mut joined: Vec<BodyPart> = Vec::with_capacity(self.parts.len());
        for part in std::mem::take(&mut self.parts) {
            let Some(last) = joined.pop() else {
                joined.push(part);
                continue;
            };
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

    fn join_neighbours(&self, last: BodyPart, part: BodyPart, joined: &mut Vec<BodyPart>) {
        if !self.is_one_item(&last) || !self.is_one_item(&part) {
            joined.extend([last, part]);
            return;
        }
        let units = [&last, &part].map(|part| match part {
            BodyPart::Original(unit) => Some(*unit),
            BodyPart::Inserted(_) => None,
        });
        // What grew by many joins is not copied for the next one.
        let (mut first, second) = (self.part_value(last), self.part_value(part));
        let Some(second) = self.dialect.join_items(&mut first, second) else {
            joined.push(BodyPart::Inserted(first));
            return;
        };
        let as_it_was = |(unit, value)| match unit {
            Some(unit) => BodyPart::Original(unit),
            None => BodyPart::Inserted(value),
        };
        joined.extend(units.into_iter().zip([first, second]).map(as_it_was));
    }

    /// Whether a part is one item.
    fn is_one_item(&self, part: &BodyPart) -> bool {
        match part {
            BodyPart::Inserted(_) => true,
            BodyPart::Original(unit) => matches!(self.written.group_items(*unit), [_]),
        }
    }

    /// One item as a value. A unit that is one has been read before.
    fn part_value(&self, part: BodyPart) -> Value {
        match part {
            BodyPart::Inserted(value) => value,
            BodyPart::Original(unit) => {
                let item = self.written.group_items(unit).first().copied().unwrap_or_default();
                serde_json::from_str(item).unwrap_or_default()
            }
        }
    }

    fn into_bytes(&self, written: SourceBody<'_>) -> Vec<u8> {
        let (before, after) = written.body.split_at_messages(written.json, self.parts.is_empty());
        let mut bytes = Vec::with_capacity(written.json.len());
        bytes.extend_from_slice(before.as_bytes());
        let mut at = 0;
        while let Some(part) = self.parts.get(at) {
            if at > 0 {
                bytes.push(b',');
            }
            match part {
                BodyPart::Inserted(value) => bytes.extend_from_slice(value.to_string().as_bytes()),
                BodyPart::Original(first) => {
                    let units = self.adjacent_groups(at);
                    bytes.extend_from_slice(self.original_bytes(*first, units).as_bytes());
                    at += units - 1;
                }
            }
            at += 1;
        }
        bytes.extend_from_slice(after.as_bytes());
        bytes
    }

    /// How many parts from `at` are units that followed each other in the request, too.
    fn adjacent_groups(&self, at: usize) -> usize {
        let units = self.parts.iter().skip(at).map_while(|part| match part {
            BodyPart::Original(unit) => Some(*unit),
            BodyPart::Inserted(_) => None,
        });
        let mut length = 0;
        let mut expected = None;
        for unit in units {
            if expected.is_some_and(|expected| expected != unit) {
                break;
            }
            expected = Some(unit + 1);
            length += 1;
        }
        length.max(1)
    }

    /// The bytes of `groups` units, with what stands between them.
    fn original_bytes(&self, first: usize, units: usize) -> &str {
        let json = self.written.json;
        let (begin, end) = (
            self.written.group_items(first).first(),
            self.written.group_items(first + units - 1).last(),
        );
        match (begin, end) {
            (Some(begin), Some(end)) => {
                let from = super::byte_offset(json, begin);
                let to = super::byte_offset(json, end) + end.len();
                json.get(from..to).unwrap_or_default()
            }
            _ => "",
        }
    }
}
