//! Calls that wait for their results, by call id.
//!
//! Some models use an id again, in a later message or within one. The rule for both:
//!
//! ```text
//!  calls      a b a        a later message a
//!  results    a b a        a
//!  answer     1 2 3        the later a; earlier calls of the id get no result any more
//! ```

use std::borrow::Borrow;
use std::collections::VecDeque;
use std::collections::hash_map::{Entry, HashMap};
use std::hash::Hash;

/// Open calls. Within a message, the n-th result of an id answers the n-th call of that id.
#[derive(Clone, Debug)]
pub struct OpenCalls<T, Id = String> {
    messages: u64,
    by_id: HashMap<Id, SameIdCalls<T>>,
}

/// The open calls of one message with the same id, in order.
#[derive(Clone, Debug)]
struct SameIdCalls<T> {
    message: u64,
    first: T,
    // Nearly always empty, which takes no memory of its own.
    others: VecDeque<T>,
}

impl<T> SameIdCalls<T> {
    fn new(message: u64, first: T) -> SameIdCalls<T> {
        SameIdCalls { message, first, others: VecDeque::new() }
    }
}

impl<T, Id> Default for OpenCalls<T, Id> {
    fn default() -> Self {
        OpenCalls { messages: 0, by_id: HashMap::new() }
    }
}

impl<T, Id: Borrow<str> + Eq + Hash> OpenCalls<T, Id> {
    /// Opens the calls of one message: the id of each, and what to remember of it.
    pub fn open(&mut self, calls: impl IntoIterator<Item = (Id, T)>) {
        self.messages += 1;
        let message = self.messages;
        let calls = calls.into_iter();
        self.by_id.reserve(calls.size_hint().0);
        for (id, call) in calls {
            match self.by_id.entry(id) {
                Entry::Occupied(mut same) if same.get().message == message => {
                    same.get_mut().others.push_back(call);
                }
                // A result now belongs to the newer message, as for providers.
                same => {
                    same.insert_entry(SameIdCalls::new(message, call));
                }
            }
        }
    }

    /// Takes the call that the next result with this id answers; `None` for an orphan.
    pub fn take(&mut self, id: &str) -> Option<T> {
        let (id, mut same) = self.by_id.remove_entry(id)?;
        let call = match same.others.pop_front() {
            None => same.first,
            Some(next) => {
                let call = std::mem::replace(&mut same.first, next);
                self.by_id.insert(id, same);
                call
            }
        };
        Some(call)
    }

    /// The calls that got no result, in no order.
    pub fn into_open(self) -> impl Iterator<Item = T> {
        self.by_id.into_values().flat_map(|same| std::iter::once(same.first).chain(same.others))
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
