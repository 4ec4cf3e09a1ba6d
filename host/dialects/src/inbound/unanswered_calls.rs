//! Calls that wait for their results, in dialects whose results need no call id.

use std::collections::{HashMap, VecDeque};

/// A call to which a result may refer.
pub(crate) struct NamedCall {
    /// Its id in the session.
    pub(crate) id: String,
    /// The name of its tool.
    pub(crate) name: String,
}

/// Calls without a result so far. Indexed, since one message may hold tens of thousands.
#[derive(Default)]
pub(crate) struct UnansweredCalls {
    calls: Vec<Option<NamedCall>>,
    by_id: HashMap<String, VecDeque<usize>>,
    by_name: HashMap<String, VecDeque<usize>>,
    all: VecDeque<usize>,
}

impl UnansweredCalls {
    pub(crate) fn new(calls: impl IntoIterator<Item = NamedCall>) -> UnansweredCalls {
        let mut open = UnansweredCalls::default();
        for (at, call) in calls.into_iter().enumerate() {
            open.by_id.entry(call.id.clone()).or_default().push_back(at);
            open.by_name.entry(call.name.clone()).or_default().push_back(at);
            open.all.push_back(at);
            open.calls.push(Some(call));
        }
        open
    }

    /// Takes the first call with this id; for a result without an id, the first of this name; without both, the first.
    pub(crate) fn take(&mut self, id: &str, name: &str) -> Option<NamedCall> {
        // Several calls of one name are answered in their order.
        let matching = match (id, name) {
            ("", "") => &mut self.all,
            ("", name) => self.by_name.get_mut(name)?,
            (id, _) => self.by_id.get_mut(id)?,
        };
        while let Some(at) = matching.pop_front() {
            if let Some(call) = self.calls.get_mut(at).and_then(Option::take) {
                return Some(call);
            }
        }
        None
    }
}
