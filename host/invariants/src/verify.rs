//! Verifies the finished items of a request, independently of the code that repaired them.
//!
//! It shares no code with the repairs and trusts neither frames nor flags about calls: it reads
//! calls and results from the messages that will be sent. Each finding is a defect of this crate
//! and counted as such.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet, VecDeque};
use std::fmt;

use ctxhost_engine_api::transcript::tokens::group_thousands;
use ctxhost_engine_api::{ContentBlock, Entry, Flags, Message, PlanItem, Role, Transcript};
use foldhash::fast::RandomState;

use super::PinReason;

/// An invariant that the finished items violate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InvariantViolation {
    /// A call whose result does not follow it (O-1, A-5, R-1, G-5).
    UnansweredCall {
        /// The id of the call.
        call_id: String,
    },
    /// A result that does not follow its call, or is the second one (O-2, O-3, A-6, A-8, R-2).
    OrphanResult {
        /// The id of its call; empty where it has none.
        call_id: String,
    },
    /// Results in another order than their calls (G-6).
    ResultsOutOfOrder {
        /// The id of the result that comes too early.
        call_id: String,
    },
    /// An entry that comes before one it followed.
    OutOfOrder {
        /// The entry.
        seq: u64,
    },
    /// An entry that occurs twice.
    DuplicateEntry {
        /// The entry.
        seq: u64,
    },
    /// A rewrite with another role, other calls or other thinking.
    TamperedRewrite {
        /// The entry.
        seq: u64,
    },
    /// A pinned entry that is missing.
    MissingEntry {
        /// The entry.
        seq: u64,
        /// Why it is pinned.
        reason: PinReason,
    },
    /// A text of the engine where the model expects the user's message or a result: the last item of a request.
    EndsWithInsert,
    /// Items over the budget.
    OverBudget {
        /// Their cost.
        tokens: u64,
        /// The budget.
        budget_tokens: u64,
    },
}

impl fmt::Display for InvariantViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InvariantViolation::UnansweredCall { call_id } => {
                write!(f, "call {call_id} is not followed by its result")
            }
            InvariantViolation::OrphanResult { call_id } => {
                write!(f, "a result for {call_id} does not follow its call")
            }
            InvariantViolation::ResultsOutOfOrder { call_id } => {
                write!(f, "the result of {call_id} comes too early")
            }
            InvariantViolation::OutOfOrder { seq } => {
                write!(f, "entry {seq} comes after a later one")
            }
            InvariantViolation::DuplicateEntry { seq } => write!(f, "entry {seq} occurs twice"),
            InvariantViolation::TamperedRewrite { seq } => {
                write!(f, "entry {seq} has another role, calls or thinking")
            }
            InvariantViolation::MissingEntry { seq, reason } => {
                write!(f, "entry {seq} is missing: {}", reason.name())
            }
            InvariantViolation::EndsWithInsert => {
                f.write_str("the request ends with a text of the engine")
            }
            InvariantViolation::OverBudget { tokens, budget_tokens } => {
                let (tokens, budget) = (group_thousands(*tokens), group_thousands(*budget_tokens));
                write!(f, "the items cost {tokens} tokens, the budget is {budget}")
            }
        }
    }
}

/// Verifies the finished items of a request; empty where no invariant is violated.
pub fn verify(
    view: &Transcript,
    items: &[PlanItem<'_>],
    budget_tokens: u64,
) -> Vec<InvariantViolation> {
    InvariantVerifier::default().verify(view, items, budget_tokens)
}

/// A verifier that keeps the pinned entries of one session, and the ids of the calls in its messages.
#[derive(Clone, Debug, Default)]
pub struct InvariantVerifier {
    epoch: u64,
    seen: u64,
    pinned: Vec<u64>,
    newest_user: Option<u64>,
    /// By entry. Requests repeat their history, and an entry of an epoch never changes.
    ids: HashMap<u64, EntryIds, RandomState>,
}

/// The ids of the calls of an entry, or the id of its result.
#[derive(Clone, Debug)]
struct EntryIds {
    /// Length of the message that they were read from.
    raw_bytes: usize,
    ids: Vec<String>,
}

impl InvariantVerifier {
    /// Verifies the finished items of a request of the session.
    pub fn verify(
        &mut self,
        view: &Transcript,
        items: &[PlanItem<'_>],
        budget_tokens: u64,
    ) -> Vec<InvariantViolation> {
        self.update(view);
        self.read_ids(items);
        let mut violations = Vec::new();
        let mut pairs = CallPairs::default();
        for item in items {
            pairs.read(item, self.ids_of(item), &mut violations);
            violations.extend(check_rewrite(item));
        }
        pairs.close(&mut violations);
        self.check_presence(view, items, &mut violations);
        violations.extend(check_end(view, items));
        let tokens = items.iter().map(PlanItem::tokens).sum();
        // The sum of the items and not of the view: repairs may add results.
        if tokens > budget_tokens {
            violations.push(InvariantViolation::OverBudget { tokens, budget_tokens });
        }
        violations
    }

    fn update(&mut self, view: &Transcript) {
        if view.epoch() != self.epoch || self.seen > view.len() as u64 {
            // A new epoch renumbers the entries; a shorter transcript is another one.
            *self = InvariantVerifier { epoch: view.epoch(), ..InvariantVerifier::default() };
        }
        while let Some(entry) = view.get(self.seen) {
            // Orphans are never sent, so a pinned one is not missed.
            let is_sendable = !entry.has(Flags::ORPHAN);
            self.pinned.extend((is_sendable && entry.has(Flags::PINNED)).then_some(self.seen));
            self.newest_user = entry.is_user_message().then_some(self.seen).or(self.newest_user);
            self.seen += 1;
        }
    }

    /// Reads the ids of entries that no earlier request had.
    fn read_ids(&mut self, items: &[PlanItem<'_>]) {
        for entry in items.iter().filter_map(unchanged_entry) {
            let raw_bytes = entry.raw().len();
            if self.ids.get(&entry.seq()).is_none_or(|known| known.raw_bytes != raw_bytes) {
                let ids = ids_of_message(entry.message(), entry.role());
                self.ids.insert(entry.seq(), EntryIds { raw_bytes, ids });
            }
        }
    }

    /// The ids of the calls of an item, or the id of its result.
    fn ids_of(&self, item: &PlanItem<'_>) -> Cow<'_, [String]> {
        match item {
            PlanItem::ReplacedRaw { raw, .. } => {
                Cow::Owned(ids_of_message(Message::parse(raw, ""), item.role()))
            }
            PlanItem::MissingResult { call_id, .. } => Cow::Owned(vec![call_id.to_string()]),
            _ => {
                let known = unchanged_entry(item).and_then(|entry| self.ids.get(&entry.seq()));
                Cow::Borrowed(known.map(|known| known.ids.as_slice()).unwrap_or_default())
            }
        }
    }

    fn check_presence(
        &self,
        view: &Transcript,
        items: &[PlanItem<'_>],
        violations: &mut Vec<InvariantViolation>,
    ) {
        let mut present = HashSet::with_capacity_and_hasher(items.len(), RandomState::default());
        let mut last = 0;
        for entry in items.iter().filter_map(PlanItem::entry) {
            let seq = entry.seq();
            if !present.insert(seq) {
                violations.push(InvariantViolation::DuplicateEntry { seq });
            }
            // Results move to their calls; other entries keep their order.
            if entry.role() != Role::Tool {
                if seq < last {
                    violations.push(InvariantViolation::OutOfOrder { seq });
                }
                last = last.max(seq);
            }
        }
        let pinned = self.pinned.iter().map(|seq| (*seq, PinReason::Pinned));
        let newest = self.newest_user.map(|seq| (seq, PinReason::NewestUserMessage));
        let live = live_entries(view).into_iter().map(|seq| (seq, PinReason::LiveToolRound));
        for (seq, reason) in pinned.chain(newest).chain(live) {
            if !present.contains(&seq) {
                violations.push(InvariantViolation::MissingEntry { seq, reason });
            }
        }
    }
}

/// Refuses a text of the engine behind what the model has to answer.
fn check_end(view: &Transcript, items: &[PlanItem<'_>]) -> Option<InvariantViolation> {
    let is_answered = !view.iter().next_back().is_some_and(|last| match last.role() {
        // Without its call it is never sent.
        Role::Tool => !last.has(Flags::ORPHAN),
        _ => last.is_user_message(),
    });
    let ends_with_insert = matches!(items.last(), Some(PlanItem::Inserted { .. }));
    (ends_with_insert && !is_answered).then_some(InvariantViolation::EndsWithInsert)
}

/// The results at the end of the transcript, or the calls at its end. The pairing check ensures
/// that the calls of those results are there.
fn live_entries(view: &Transcript) -> Vec<u64> {
    let mut live = Vec::new();
    for entry in view.iter().rev() {
        match entry.role() {
            // Never sent, so it does not end the round.
            Role::Tool if entry.has(Flags::ORPHAN) => {}
            Role::Tool => live.push(entry.seq()),
            Role::Assistant if live.is_empty() && calls_something(&entry) => {
                // The pairing drops such a message.
                let is_empty = entry.has(Flags::ABORTED) && entry.text().trim().is_empty();
                return if is_empty { live } else { vec![entry.seq()] };
            }
            _ => return live,
        }
    }
    live
}

fn calls_something(entry: &Entry<'_>) -> bool {
    entry.message().blocks.iter().any(|block| matches!(block, ContentBlock::ToolCall(_)))
}

/// The calls of the newest message, with those that have no result yet.
#[derive(Default)]
struct CallPairs<'a> {
    /// In order; `None` once its result has come.
    expected: Vec<Option<Cow<'a, str>>>,
    /// The indexes of each id without a result, from the first result on that does not answer the first of them. A map, because
    /// there may be tens of thousands of results, in any order.
    places: HashMap<Cow<'a, str>, VecDeque<usize>, RandomState>,
    /// The index of the first call without a result.
    first: usize,
}

impl<'a> CallPairs<'a> {
    /// Reads an item with the ids of its calls, or the id of its result.
    fn read(
        &mut self,
        item: &PlanItem<'_>,
        ids: Cow<'a, [String]>,
        violations: &mut Vec<InvariantViolation>,
    ) {
        if item.role() == Role::Tool {
            match ids.first() {
                Some(id) => self.take(id, violations),
                // Not even an empty one, which would be that of calls without ids.
                None => {
                    violations.push(InvariantViolation::OrphanResult { call_id: String::new() })
                }
            }
            return;
        }
        self.close(violations);
        match ids {
            Cow::Borrowed(ids) => {
                self.expected.extend(ids.iter().map(|id| Some(Cow::Borrowed(id.as_str()))));
            }
            Cow::Owned(ids) => self.expected.extend(ids.into_iter().map(|id| Some(id.into()))),
        }
    }

    fn take(&mut self, call_id: &str, violations: &mut Vec<InvariantViolation>) {
        let place = self.place_of(call_id);
        let expected = place.and_then(|place| self.expected.get_mut(place));
        if expected.and_then(Option::take).is_none() {
            violations.push(InvariantViolation::OrphanResult { call_id: call_id.to_owned() });
        } else if place != Some(self.first) {
            violations.push(InvariantViolation::ResultsOutOfOrder { call_id: call_id.to_owned() });
        }
        while self.expected.get(self.first).is_some_and(Option::is_none) {
            self.first += 1;
        }
    }

    /// The index of the call that a result answers: each result of a repeated id is that of its next call.
    fn place_of(&mut self, call_id: &str) -> Option<usize> {
        if self.places.is_empty() {
            let first = self.expected.get(self.first)?.as_ref();
            if first.is_some_and(|id| id == call_id) {
                return Some(self.first);
            }
            for (place, id) in self.expected.iter().enumerate().skip(self.first) {
                if let Some(id) = id {
                    self.places.entry(id.clone()).or_default().push_back(place);
                }
            }
        }
        self.places.get_mut(call_id).and_then(VecDeque::pop_front)
    }

    fn close(&mut self, violations: &mut Vec<InvariantViolation>) {
        let open = self.expected.drain(..).flatten();
        violations
            .extend(open.map(|id| InvariantViolation::UnansweredCall { call_id: id.into_owned() }));
        self.places.clear();
        self.first = 0;
    }
}

/// The entry whose own calls or result an item sends, for roles that have them.
fn unchanged_entry<'i, 'a>(item: &'i PlanItem<'a>) -> Option<&'i Entry<'a>> {
    match item {
        PlanItem::Kept(entry) | PlanItem::ReplacedText { entry, .. } => {
            matches!(entry.role(), Role::Assistant | Role::Tool).then_some(entry)
        }
        _ => None,
    }
}

/// The ids of the calls in a message, or the id of its result.
fn ids_of_message(message: Message<'_>, role: Role) -> Vec<String> {
    if role == Role::Tool {
        return message.tool_result().map(|head| head.call_id.into_owned()).into_iter().collect();
    }
    message.tool_calls().into_iter().map(|call| call.id.into_owned()).collect()
}

/// Compares a rewrite with its original.
fn check_rewrite(item: &PlanItem<'_>) -> Option<InvariantViolation> {
    let PlanItem::ReplacedRaw { entry, raw } = item else { return None };
    let (old, new) = (entry.message(), Message::parse(raw, ""));
    let blocks = |message: &Message<'_>, is_thinking: bool| -> Vec<String> {
        let contents = message.blocks.iter().filter_map(|block| match block {
            ContentBlock::Thinking { text, signature } if is_thinking => {
                Some(format!("{text}{signature:?}"))
            }
            ContentBlock::ToolCall(call) if !is_thinking => Some(call.id.to_string()),
            _ => None,
        });
        contents.collect()
    };
    let has_same_thinking =
        // Thinking may be dropped, but signatures forbid changes.
        blocks(&new, true).is_empty() || blocks(&new, true) == blocks(&old, true);
    let has_same_calls = blocks(&new, false) == blocks(&old, false);
    let is_honest = new.role == old.role && has_same_calls && has_same_thinking;
    (!is_honest).then(|| InvariantViolation::TamperedRewrite { seq: entry.seq() })
}
