//! A lawful plan as the bytes of a request: what it keeps is copied, what it changes is written anew.

use std::collections::HashMap;
use std::ops::Range;

use ctxhost_engine_api::{Entry, Item};
use serde_json::Value;

use super::{Body, Edit, InboundDialect};
use crate::ChatMessage;

/// Where an entry stands in a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryLocation {
    /// Its unit.
    pub unit: usize,
    /// Which entry of the unit it is.
    pub entry: usize,
}

/// A request as its client wrote it, and how it is made of units.
#[derive(Clone, Copy, Debug)]
pub struct Written<'a> {
    /// The whole body.
    pub json: &'a str,
    /// The same, cut.
    pub body: &'a Body<'a>,
    /// The items of each unit, in order and without gaps, and how many entries they are.
    pub units: &'a [(Range<usize>, usize)],
    /// The units whose thinking is left out.
    pub without_thinking: &'a [Range<usize>],
}

/// The bytes of the request that the projection makes of the one that was written.
///
/// `place` finds entries in it; what it does not find (summaries of compactions) is said in the
/// person's place. `message` reads the JSON of a rewritten entry.
pub fn render(
    dialect: &dyn InboundDialect,
    written: Written<'_>,
    projection: &[Item<'_>],
    place: &dyn Fn(&Entry<'_>) -> Option<EntryLocation>,
    message: &dyn Fn(&str) -> Option<ChatMessage>,
) -> Vec<u8> {
    if written.body.items.is_empty() {
        return written.json.as_bytes().to_vec();
    }
    let mut parts = Parts { dialect, written, parts: Vec::new(), next: 0 };
    let mut run: Option<Run<'_>> = None;
    let calls = calls_without_result(dialect, projection, &written.body.items);
    for item in projection {
        let at = item.entry().and_then(|entry| place(&entry));
        let Some(at) = at else {
            parts.close(run.take());
            parts.extend(insertion(dialect, item, &calls));
            continue;
        };
        if run.as_ref().is_none_or(|run| !run.goes_on_with(at)) {
            parts.close(run.take());
            run = Some(Run::new(at.unit, written.entries(at.unit)));
        }
        if let Some(run) = &mut run {
            run.set(at.entry, edit_of(item, message));
        }
    }
    parts.close(run);
    parts.pass_until(written.units.len());
    parts.joined().bytes(written)
}

impl Written<'_> {
    fn entries(&self, unit: usize) -> usize {
        self.units.get(unit).map_or(0, |(_, entries)| *entries)
    }

    fn lacks_thinking(&self, unit: usize) -> bool {
        self.without_thinking.iter().any(|units| units.contains(&unit))
    }

    fn items(&self, unit: usize) -> &[&str] {
        let range = self.units.get(unit).map(|(range, _)| range.clone()).unwrap_or_default();
        self.body.items.get(range).unwrap_or_default()
    }
}

/// The items that ask for calls, by the calls' ids; none are looked for where every call has a result.
fn calls_without_result<'a>(
    dialect: &dyn InboundDialect,
    projection: &[Item<'_>],
    items: &[&'a str],
) -> HashMap<String, &'a str> {
    match projection.iter().any(|item| matches!(item, Item::MissingResult { .. })) {
        true => items.iter().filter_map(|item| Some((dialect.call_of(item)?, *item))).collect(),
        false => HashMap::new(),
    }
}

fn insertion(
    dialect: &dyn InboundDialect,
    item: &Item<'_>,
    calls: &HashMap<String, &str>,
) -> Option<Value> {
    match item {
        Item::MissingResult { call_id, tool } => {
            let call = calls.get(&**call_id).copied();
            dialect.missing_result(call_id, tool, &item.text(), call)
        }
        _ => Some(dialect.person(&item.text())),
    }
}

fn edit_of<'a>(item: &Item<'a>, message: &dyn Fn(&str) -> Option<ChatMessage>) -> Edit<'a> {
    match item {
        Item::Rewritten { raw, .. } => match message(raw) {
            Some(message) => Edit::ReplaceMessage(message),
            None => Edit::Keep,
        },
        Item::Retold { .. } => Edit::ReplaceText(item.text()),
        _ => Edit::Keep,
    }
}

/// Entries of one unit that stand beside each other in the projection.
struct Run<'a> {
    unit: usize,
    last: Option<usize>,
    edits: Vec<Edit<'a>>,
}

impl<'a> Run<'a> {
    fn new(unit: usize, entries: usize) -> Self {
        Run { unit, last: None, edits: vec![Edit::Drop; entries] }
    }

    fn goes_on_with(&self, at: EntryLocation) -> bool {
        self.unit == at.unit && self.last.is_none_or(|last| last < at.entry)
    }

    fn set(&mut self, entry: usize, edit: Edit<'a>) {
        self.last = Some(entry);
        if let Some(slot) = self.edits.get_mut(entry) {
            *slot = edit;
        }
    }
}

enum Part {
    /// A unit, as it was written.
    Unit(usize),
    /// An item of ours.
    New(Value),
}

struct Parts<'a> {
    dialect: &'a dyn InboundDialect,
    written: Written<'a>,
    parts: Vec<Part>,
    /// The first unit that was not passed yet.
    next: usize,
}

impl Parts<'_> {
    fn extend(&mut self, item: Option<Value>) {
        self.parts.extend(item.map(Part::New));
    }

    fn close(&mut self, run: Option<Run<'_>>) {
        let Some(run) = run else { return };
        self.pass_until(run.unit);
        self.next = self.next.max(run.unit + 1);
        let lacks_thinking = self.written.lacks_thinking(run.unit);
        let items = match run.edits.iter().all(|edit| *edit == Edit::Keep) {
            true => lacks_thinking.then(|| self.unthought(run.unit)).flatten(),
            false => Some(self.dialect.change(self.written.items(run.unit), &run.edits)),
        };
        let Some(items) = items else {
            self.parts.push(Part::Unit(run.unit));
            return;
        };
        let dialect = self.dialect;
        let left = items.into_iter().filter_map(|item| match lacks_thinking {
            true => dialect.without_thinking(item),
            false => Some(item),
        });
        self.parts.extend(left.map(Part::New));
    }

    /// A unit whose thinking is left out; `None` where it has none.
    fn unthought(&self, unit: usize) -> Option<Vec<Value>> {
        let items = self.written.items(unit);
        if !items.iter().any(|item| item.contains("thinking")) {
            return None;
        }
        let read = |item: &&str| serde_json::from_str::<Value>(item).ok();
        let values: Vec<Value> = items.iter().map(read).collect::<Option<_>>()?;
        let has_any =
            |value: &Value| self.dialect.without_thinking(value.clone()).as_ref() != Some(value);
        values.iter().any(has_any).then_some(values)
    }

    /// Units without entries are no engine's business: they stay where they are.
    fn pass_until(&mut self, unit: usize) {
        for passed in self.next..unit {
            if self.written.entries(passed) == 0 {
                self.parts.push(Part::Unit(passed));
            }
        }
        self.next = self.next.max(unit);
    }

    /// Items of ours become one with their neighbours where the dialect wants that. Two units that
    /// the client wrote beside each other stay two.
    fn joined(mut self) -> Self {
        let mut joined: Vec<Part> = Vec::with_capacity(self.parts.len());
        for part in std::mem::take(&mut self.parts) {
            let Some(last) = joined.pop() else {
                joined.push(part);
                continue;
            };
            if matches!((&last, &part), (Part::Unit(one), Part::Unit(next)) if one + 1 == *next) {
                joined.extend([last, part]);
                continue;
            }
            self.join(last, part, &mut joined);
        }
        self.parts = joined;
        self
    }

    fn join(&self, last: Part, part: Part, joined: &mut Vec<Part>) {
        if !self.is_one_item(&last) || !self.is_one_item(&part) {
            joined.extend([last, part]);
            return;
        }
        let units = [&last, &part].map(|part| match part {
            Part::Unit(unit) => Some(*unit),
            Part::New(_) => None,
        });
        // What grew by many joins is not copied for the next one.
        let (mut first, second) = (self.value(last), self.value(part));
        let Some(second) = self.dialect.join(&mut first, second) else {
            joined.push(Part::New(first));
            return;
        };
        let as_it_was = |(unit, value)| match unit {
            Some(unit) => Part::Unit(unit),
            None => Part::New(value),
        };
        joined.extend(units.into_iter().zip([first, second]).map(as_it_was));
    }

    /// Whether a part is one item.
    fn is_one_item(&self, part: &Part) -> bool {
        match part {
            Part::New(_) => true,
            Part::Unit(unit) => matches!(self.written.items(*unit), [_]),
        }
    }

    /// One item as a value. A unit that is one has been read before.
    fn value(&self, part: Part) -> Value {
        match part {
            Part::New(value) => value,
            Part::Unit(unit) => {
                let item = self.written.items(unit).first().copied().unwrap_or_default();
                serde_json::from_str(item).unwrap_or_default()
            }
        }
    }

    fn bytes(&self, written: Written<'_>) -> Vec<u8> {
        let (before, after) = written.body.split_at_messages(written.json, self.parts.is_empty());
        let mut bytes = Vec::with_capacity(written.json.len());
        bytes.extend_from_slice(before.as_bytes());
        let mut at = 0;
        while let Some(part) = self.parts.get(at) {
            if at > 0 {
                bytes.push(b',');
            }
            match part {
                Part::New(value) => bytes.extend_from_slice(value.to_string().as_bytes()),
                Part::Unit(first) => {
                    let units = self.unbroken_from(at);
                    bytes.extend_from_slice(self.copied(*first, units).as_bytes());
                    at += units - 1;
                }
            }
            at += 1;
        }
        bytes.extend_from_slice(after.as_bytes());
        bytes
    }

    /// How many parts from `at` are units that followed each other in the request, too.
    fn unbroken_from(&self, at: usize) -> usize {
        let units = self.parts.iter().skip(at).map_while(|part| match part {
            Part::Unit(unit) => Some(*unit),
            Part::New(_) => None,
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

    /// The bytes of `units` units, with what stands between them.
    fn copied(&self, first: usize, units: usize) -> &str {
        let json = self.written.json;
        let (begin, end) =
            (self.written.items(first).first(), self.written.items(first + units - 1).last());
        match (begin, end) {
            (Some(begin), Some(end)) => {
                let from = super::offset(json, begin);
                let to = super::offset(json, end) + end.len();
                json.get(from..to).unwrap_or_default()
            }
            _ => "",
        }
    }
}
