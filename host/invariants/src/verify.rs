//! The audit: a second look at the finished items, with other eyes than those that mended them.
//!
//! It shares no code with the repairs and trusts neither frames nor flags about calls: it reads the
//! calls and results out of the messages that will be sent. Whatever it finds is a defect of the law
//! itself, and counted as one.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::fmt;

use ctxhost_engine_api::{ContentBlock, Entry, Flags, Message, PlanItem, Role, Transcript};

use super::PinReason;

/// A law that the finished items break.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InvariantViolation {
    /// A call whose result does not stand behind it (O-1, A-5, R-1, G-5).
    UnansweredCall {
        /// The id of the call.
        call_id: String,
    },
    /// A result that does not stand behind its call, or is the second one (O-2, O-3, A-6, A-8, R-2).
    OrphanResult {
        /// The id that it answers; empty where it names none.
        call_id: String,
    },
    /// Results that stand in another order than their calls (G-6).
    ResultsOutOfOrder {
        /// The id of the result that came too early.
        call_id: String,
    },
    /// An entry that comes before one it followed.
    OutOfOrder {
        /// The entry.
        seq: u64,
    },
    /// An entry that comes twice.
    DuplicateEntry {
        /// The entry.
        seq: u64,
    },
    /// A rewrite with another role, other calls or other thinking.
    TamperedRewrite {
        /// The entry.
        seq: u64,
    },
    /// An entry that must stay and is not there.
    MissingEntry {
        /// The entry.
        seq: u64,
        /// Why it must stay.
        because: PinReason,
    },
    /// Items that cost more than there is.
    OverBudget {
        /// What they cost.
        tokens: u64,
        /// What there is.
        budget_tokens: u64,
    },
}

impl fmt::Display for InvariantViolation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InvariantViolation::UnansweredCall { call_id } => {
                write!(f, "call {call_id} has no result behind it")
            }
            InvariantViolation::OrphanResult { call_id } => {
                write!(f, "a result for {call_id} does not stand behind its call")
            }
            InvariantViolation::ResultsOutOfOrder { call_id } => {
                write!(f, "the result of {call_id} stands before its turn")
            }
            InvariantViolation::OutOfOrder { seq } => write!(f, "entry {seq} comes too late"),
            InvariantViolation::DuplicateEntry { seq } => write!(f, "entry {seq} comes twice"),
            InvariantViolation::TamperedRewrite { seq } => {
                write!(f, "entry {seq} has another role, calls or thinking")
            }
            InvariantViolation::MissingEntry { seq, because } => {
                write!(f, "entry {seq} is missing: {}", because.name())
            }
            InvariantViolation::OverBudget { tokens, budget_tokens } => {
                write!(f, "the items cost {tokens} tokens, the budget is {budget_tokens}")
            }
        }
    }
}

/// Looks at the finished items of a request; empty where all is well.
pub fn verify(
    view: &Transcript,
    items: &[PlanItem<'_>],
    budget_tokens: u64,
) -> Vec<InvariantViolation> {
    InvariantVerifier::default().verify(view, items, budget_tokens)
}

/// An audit that remembers, for one session, which entries must stay.
#[derive(Clone, Debug, Default)]
pub struct InvariantVerifier {
    epoch: u64,
    seen: u64,
    pinned: Vec<u64>,
    newest_user: Option<u64>,
}

impl InvariantVerifier {
    /// Looks at the finished items of a request of the session.
    pub fn verify(
        &mut self,
        view: &Transcript,
        items: &[PlanItem<'_>],
        budget_tokens: u64,
    ) -> Vec<InvariantViolation> {
        self.update(view);
        let mut breaches = Vec::new();
        let mut pairs = CallPairs::default();
        for item in items {
            pairs.read(item, &mut breaches);
            breaches.extend(check_rewrite(item));
        }
        pairs.close(&mut breaches);
        self.check_presence(view, items, &mut breaches);
        let tokens = items.iter().map(PlanItem::tokens).sum();
        if tokens > budget_tokens {
            breaches.push(InvariantViolation::OverBudget { tokens, budget_tokens });
        }
        breaches
    }

    fn update(&mut self, view: &Transcript) {
        if view.epoch() != self.epoch || self.seen > view.len() as u64 {
            *self = InvariantVerifier { epoch: view.epoch(), ..InvariantVerifier::default() };
        }
        while let Some(entry) = view.get(self.seen) {
            let is_sendable = !entry.has(Flags::ORPHAN);
            self.pinned.extend((is_sendable && entry.has(Flags::PINNED)).then_some(self.seen));
            self.newest_user = entry.is_user_message().then_some(self.seen).or(self.newest_user);
            self.seen += 1;
        }
    }

    fn check_presence(
        &self,
        view: &Transcript,
        items: &[PlanItem<'_>],
        breaches: &mut Vec<InvariantViolation>,
    ) {
        let mut present = HashSet::with_capacity(items.len());
        let mut last = 0;
        for entry in items.iter().filter_map(PlanItem::entry) {
            let seq = entry.seq();
            if !present.insert(seq) {
                breaches.push(InvariantViolation::DuplicateEntry { seq });
            }
            // Results move up to their calls; everything else keeps its order.
            if entry.role() != Role::Tool {
                if seq < last {
                    breaches.push(InvariantViolation::OutOfOrder { seq });
                }
                last = last.max(seq);
            }
        }
        let pinned = self.pinned.iter().map(|seq| (*seq, PinReason::Pinned));
        let newest = self.newest_user.map(|seq| (seq, PinReason::NewestUserMessage));
        let live = live_entries(view).into_iter().map(|seq| (seq, PinReason::LiveToolRound));
        for (seq, because) in pinned.chain(newest).chain(live) {
            if !present.contains(&seq) {
                breaches.push(InvariantViolation::MissingEntry { seq, because });
            }
        }
    }
}

/// The results at the end of the transcript, or the calls that it ends in. Where a result is there,
/// the pairing sees to it that its call is.
fn live_entries(view: &Transcript) -> Vec<u64> {
    let mut live = Vec::new();
    for entry in view.iter().rev() {
        match entry.role() {
            Role::Tool if entry.has(Flags::ORPHAN) => {}
            Role::Tool => live.push(entry.seq()),
            Role::Assistant if live.is_empty() && calls_something(&entry) => {
                let said_nothing = entry.has(Flags::ABORTED) && entry.text().trim().is_empty();
                return if said_nothing { live } else { vec![entry.seq()] };
            }
            _ => return live,
        }
    }
    live
}

fn calls_something(entry: &Entry<'_>) -> bool {
    entry.message().blocks.iter().any(|block| matches!(block, ContentBlock::ToolCall(_)))
}

/// The calls of the newest message and those of them that are still without a result.
#[derive(Default)]
struct CallPairs<'a> {
    /// In order; `None` once its result has come.
    expected: Vec<Option<Cow<'a, str>>>,
    /// Where each id stands: results may come in any order, and there may be tens of thousands.
    places: HashMap<Cow<'a, str>, usize>,
    /// All before it have their results.
    first: usize,
}

impl<'a> CallPairs<'a> {
    fn read(&mut self, item: &PlanItem<'a>, breaches: &mut Vec<InvariantViolation>) {
        if item.role() == Role::Tool {
            return self.take(&result_id(item), breaches);
        }
        self.close(breaches);
        for block in message_of(item).map(|message| message.blocks).unwrap_or_default() {
            if let ContentBlock::ToolCall(call) = block
                && !self.places.contains_key(&call.id)
            {
                self.places.insert(call.id.clone(), self.expected.len());
                self.expected.push(Some(call.id));
            }
        }
    }

    fn take(&mut self, call_id: &str, breaches: &mut Vec<InvariantViolation>) {
        let place = self.places.get(call_id).copied();
        let expected = place.and_then(|place| self.expected.get_mut(place));
        if expected.and_then(Option::take).is_none() {
            breaches.push(InvariantViolation::OrphanResult { call_id: call_id.to_owned() });
        } else if place != Some(self.first) {
            breaches.push(InvariantViolation::ResultsOutOfOrder { call_id: call_id.to_owned() });
        }
        while self.expected.get(self.first).is_some_and(Option::is_none) {
            self.first += 1;
        }
    }

    fn close(&mut self, breaches: &mut Vec<InvariantViolation>) {
        let open = self.expected.drain(..).flatten();
        breaches
            .extend(open.map(|id| InvariantViolation::UnansweredCall { call_id: id.into_owned() }));
        (self.places, self.first) = (HashMap::new(), 0);
    }
}

/// The message of an item as it will be sent, for the roles that call or answer.
fn message_of<'a>(item: &PlanItem<'a>) -> Option<Message<'a>> {
    match item {
        PlanItem::ReplacedRaw { raw, .. } => Some(Message::parse(raw, "")),
        PlanItem::Kept(entry) | PlanItem::ReplacedText { entry, .. } => match entry.role() {
            Role::Assistant | Role::Tool => Some(entry.message()),
            _ => None,
        },
        _ => None,
    }
}

fn result_id(item: &PlanItem<'_>) -> String {
    match item {
        PlanItem::MissingResult { call_id, .. } => call_id.to_string(),
        other => {
            let head = message_of(other).and_then(Message::tool_result);
            head.map(|head| head.call_id.into_owned()).unwrap_or_default()
        }
    }
}

/// Compares a rewrite with what it rewrites.
fn check_rewrite(item: &PlanItem<'_>) -> Option<InvariantViolation> {
    let PlanItem::ReplacedRaw { entry, raw } = item else { return None };
    let (old, new) = (entry.message(), Message::parse(raw, ""));
    let blocks = |message: &Message<'_>, is_thinking: bool| -> Vec<String> {
        let told = message.blocks.iter().filter_map(|block| match block {
            ContentBlock::Thinking { text, signature } if is_thinking => {
                Some(format!("{text}{signature:?}"))
            }
            ContentBlock::ToolCall(call) if !is_thinking => Some(call.id.to_string()),
            _ => None,
        });
        told.collect()
    };
    let thinks_alike = blocks(&new, true).is_empty() || blocks(&new, true) == blocks(&old, true);
    let calls_alike = blocks(&new, false) == blocks(&old, false);
    let is_honest = new.role == old.role && calls_alike && thinks_alike;
    (!is_honest).then(|| InvariantViolation::TamperedRewrite { seq: entry.seq() })
}
