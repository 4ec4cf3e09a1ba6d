//! Calls that wait for their results, by call id.
//!
//! Some models use an id again, in a later message or within one. The rule for both:
//!
//! ```text
//!  calls      a b a        a later message a
//!  results    a b a        a
//!  answer     1 2 3        the later a; earlier calls of the id get no result any more
//! ```

use std::collections::{HashMap, VecDeque};

/// Open calls. Within a message, the n-th result of an id answers the n-th call of that id.
#[derive(Clone, Debug)]
pub struct OpenCalls<T> {
    messages: u64,
    by_id: HashMap<String, SameIdCalls<T>>,
}

/// The open calls of one message with the same id, in order.
#[derive(Clone, Debug)]
struct SameIdCalls<T> {
    message: u64,
    calls: VecDeque<T>,
}

impl<T> Default for OpenCalls<T> {
    fn default() -> Self {
        OpenCalls { messages: 0, by_id: HashMap::new() }
    }
}

impl<T> OpenCalls<T> {
    /// Opens the calls of one message: the id of each, and what to remember of it.
    pub fn open(&mut self, calls: impl IntoIterator<Item = (String, T)>) {
        self.messages += 1;
        let message = self.messages;
        for (id, call) in calls {
            let same = self
                .by_id
                .entry(id)
                .or_insert_with(|| SameIdCalls { message, calls: VecDeque::with_capacity(1) });
            if same.message != message {
                // A result now belongs to the newer message, as for providers.
                same.message = message;
                same.calls.clear();
            }
            same.calls.push_back(call);
        }
    }

    /// Takes the call that the next result with this id answers; `None` for an orphan.
    pub fn take(&mut self, id: &str) -> Option<T> {
        let same = self.by_id.get_mut(id)?;
        let call = same.calls.pop_front();
        if same.calls.is_empty() {
            self.by_id.remove(id);
        }
        call
    }

    /// The calls that got no result, in no order.
    pub fn into_open(self) -> impl Iterator<Item = T> {
        self.by_id.into_values().flat_map(|same| same.calls)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opened(messages: &[&str]) -> OpenCalls<usize> {
        let mut open = OpenCalls::default();
        let mut number = 0..;
        for ids in messages {
            open.open(ids.chars().map(|id| id.to_string()).zip(number.by_ref()));
        }
        open
    }

    fn take_all(mut open: OpenCalls<usize>, results: &str) -> Vec<Option<usize>> {
        results.chars().map(|id| open.take(&id.to_string())).collect()
    }

    #[test]
    fn the_nth_result_of_an_id_answers_its_nth_call() {
        let answered = take_all(opened(&["aba"]), "baaa");
        assert_eq!(answered, [Some(1), Some(0), Some(2), None]);
    }

    #[test]
    fn a_later_message_takes_over_its_ids() {
        assert_eq!(take_all(opened(&["aab", "a"]), "aab"), [Some(3), None, Some(2)]);
    }
}
