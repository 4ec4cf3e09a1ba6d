//! Pairs results with calls while items are parsed.
//!
//! Clients leave out call ids, or leave them empty. The session names such a call by its position, `<item>.<nth> unnamed`,
//! which is stable as long as the history is; the id is never sent. A result without an id answers the first open call of its
//! tool, or the first of all if it does not name its tool.

use std::collections::{HashMap, VecDeque};
use std::fmt;

use serde_json::Value;

use super::entries::ToolNames;
use super::parsed::ParseContext;
use crate::json::parse_object;
use crate::message::{ChatBlock, tool_calls};

/// A call to which a result may refer, or what a result says of its call.
pub(crate) struct NamedCall {
    /// Its id in the session.
    pub(crate) id: String,
    /// The name of its tool.
    pub(crate) name: String,
}

/// Ends the id of a call that has none. No client writes it, as it may write "1.0".
const UNNAMED: &str = " unnamed";

/// The id of a call in the session: its own, or one made of its position.
pub(crate) fn session_id(id: &str, position: usize, nth: usize) -> String {
    if id.is_empty() { format!("{position}.{nth}{UNNAMED}") } else { id.to_owned() }
}

/// The id of a call as its client writes it: empty for one made of its position.
pub(crate) fn client_id(session_id: &str) -> &str {
    if session_id.ends_with(UNNAMED) { "" } else { session_id }
}

/// The calls or the results of an item.
pub(crate) enum ItemCalls {
    /// An answer, or a part of one, with these calls.
    Answer(Vec<NamedCall>),
    /// Results of these calls; id and name are empty where a result lacks them.
    Results(Vec<NamedCall>),
    /// An item with neither.
    Other,
}

impl ItemCalls {
    pub(crate) fn of_answer(answer: &[ChatBlock]) -> ItemCalls {
        ItemCalls::Answer(named_calls(answer).collect())
    }
}

fn named_calls(answer: &[ChatBlock]) -> impl Iterator<Item = NamedCall> {
    tool_calls(answer).map(|call| NamedCall { id: call.id.clone(), name: call.name.clone() })
}

/// The calls of the items parsed so far, and those before.
pub(crate) struct ParsedCalls<'a> {
    before: ParseContext<'a>,
    /// Reads the item at a position before the ones to parse.
    read: fn(Value, usize) -> ItemCalls,
    tools: ToolNames<'a>,
    /// The calls of the newest answer; `None` if none was parsed yet.
    open: Option<UnansweredCalls>,
    /// The position after that answer.
    end: usize,
}

impl fmt::Debug for ParsedCalls<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ParsedCalls").field("tools", &self.tools).finish_non_exhaustive()
    }
}

impl<'a> ParsedCalls<'a> {
    pub(crate) fn new(
        before: ParseContext<'a>,
        read: fn(Value, usize) -> ItemCalls,
    ) -> ParsedCalls<'a> {
        ParsedCalls { before, read, tools: ToolNames::new(before), open: None, end: 0 }
    }

    /// Adds the calls of the answer at a position. Answers in a row have one set of results.
    pub(crate) fn add_answer(&mut self, answer: &[ChatBlock], position: usize) {
        self.tools.record(answer);
        let calls = named_calls(answer);
        match &mut self.open {
            Some(open) if self.end == position => calls.for_each(|call| open.push(call)),
            open => *open = Some(calls.collect()),
        }
        self.end = position + 1;
    }

    /// The call that a result answers, by the id and the tool that it names; both may be empty.
    pub(crate) fn answered_by(&mut self, id: &str, tool: &str) -> Option<NamedCall> {
        if self.open.is_none() {
            self.open = Some(self.open_before());
        }
        self.open.as_mut()?.take(id, tool, &self.tools)
    }

    /// The tool of a call.
    pub(crate) fn tool_of(&self, id: &str) -> Option<String> {
        self.tools.find(id)
    }

    /// The calls of the newest answer before the items to parse that have no result yet.
    fn open_before(&self) -> UnansweredCalls {
        let (mut answer, mut results) = (Vec::new(), Vec::new());
        for (position, item) in self.before.items.iter().enumerate().rev() {
            let item = parse_object(item).map(|item| (self.read)(item, position));
            match item.unwrap_or(ItemCalls::Other) {
                ItemCalls::Answer(calls) => answer.push(calls),
                _ if !answer.is_empty() => break,
                ItemCalls::Results(calls) => results.push(calls),
                ItemCalls::Other => {}
            }
        }
        // Items may have moved since the session named their calls.
        let is_known = |call: &NamedCall| self.tools.find(&call.id).as_ref() == Some(&call.name);
        let calls = answer.into_iter().rev().flatten().filter(is_known);
        let mut open: UnansweredCalls = calls.collect();
        for result in results.into_iter().rev().flatten() {
            open.take(&result.id, &result.name, &self.tools);
        }
        open
    }
}

/// The places of calls by their id or their tool.
type Places = HashMap<String, VecDeque<usize>>;

/// Calls without a result so far. Indexed, since one message may hold tens of thousands.
#[derive(Default)]
struct UnansweredCalls {
    calls: Vec<Option<NamedCall>>,
    by_id: Places,
    /// Under an empty name those of all tools.
    by_name: Places,
    /// As `by_name`, of calls without an id of their own.
    without_id: Places,
}

impl UnansweredCalls {
    fn push(&mut self, call: NamedCall) {
        let place = self.calls.len();
        let add = |places: &mut Places, key: &str| {
            places.entry(key.to_owned()).or_default().push_back(place);
        };
        add(&mut self.by_id, &call.id);
        for name in ["", &call.name] {
            add(&mut self.by_name, name);
            if client_id(&call.id).is_empty() {
                add(&mut self.without_id, name);
            }
        }
        self.calls.push(Some(call));
    }

    fn take(&mut self, id: &str, tool: &str, tools: &ToolNames<'_>) -> Option<NamedCall> {
        // Several calls of one id or name are answered in their order.
        if id.is_empty() {
            return take_next(&mut self.calls, self.by_name.get_mut(tool));
        }
        if let Some(call) = take_next(&mut self.calls, self.by_id.get_mut(id)) {
            return Some(call);
        }
        if let Some(name) = tools.find(id) {
            return Some(NamedCall { id: id.to_owned(), name });
        }
        // The client has made an id for the result of a call without one.
        take_next(&mut self.calls, self.without_id.get_mut(tool))
    }
}

impl FromIterator<NamedCall> for UnansweredCalls {
    fn from_iter<T: IntoIterator<Item = NamedCall>>(calls: T) -> Self {
        let mut open = UnansweredCalls::default();
        calls.into_iter().for_each(|call| open.push(call));
        open
    }
}

/// Takes the first of these calls that is open.
fn take_next(
    calls: &mut [Option<NamedCall>],
    places: Option<&mut VecDeque<usize>>,
) -> Option<NamedCall> {
    let places = places?;
    while let Some(place) = places.pop_front() {
        if let Some(call) = calls.get_mut(place).and_then(Option::take) {
            return Some(call);
        }
    }
    None
}

#[cfg(test)]
mod tests;
