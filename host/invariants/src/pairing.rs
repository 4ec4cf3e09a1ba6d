//! Pairs calls and results: every call is followed by its result, and every result follows its
//! call.
//!
//! Plans keep whole frames, so pairs are formed frame by frame and never by id across the
//! conversation: some providers use the same ids in every turn.
//!
//! ```text
//!  items     call(a, b) · "hurry" · b · x        x has no call, a has no result
//!  paired    call(a, b) · a* · b · "hurry"       a* is an Item::MissingResult
//! ```

use std::borrow::Cow;

use ctxhost_engine_api::transcript::open_calls::OpenCalls;
use ctxhost_engine_api::{Entry, Flags, Message, PlanItem, Role, ToolCall};

use super::Repair;

/// Items that can be sent, and the repairs that it took.
#[derive(Debug, Default)]
pub(super) struct PairedItems<'a> {
    pub(super) items: Vec<PlanItem<'a>>,
    pub(super) repairs: Vec<Repair>,
}

/// Moves results to their calls, adds missing ones and drops orphans.
pub(super) fn pair_results(items: Vec<PlanItem<'_>>) -> PairedItems<'_> {
    let mut paired =
        PairedItems { items: Vec::with_capacity(items.len()), ..PairedItems::default() };
    let mut rest = items.as_slice();
    while let Some(first) = rest.first() {
        let (frame, after) = rest.split_at(frame_len(first, rest));
        if is_in_order(frame) {
            // The fast path: most frames need no repair and are not parsed.
            paired.items.extend_from_slice(frame);
        } else {
            PairingTable::new(frame).emit(&mut paired);
        }
        rest = after;
    }
    paired
}

/// The number of items in the frame of the first, with those inserted between them.
fn frame_len(first: &PlanItem<'_>, rest: &[PlanItem<'_>]) -> usize {
    let Some(frame) = first.entry().map(|entry| entry.frame()) else { return 1 };
    let mut len = 1;
    for (at, item) in rest.iter().enumerate().skip(1) {
        match item.entry() {
            Some(entry) if entry.frame() != frame => break,
            Some(_) => len = at + 1,
            None => {}
        }
    }
    len
}

/// Whether the flags alone show that no item has to move, which saves parsing.
///
/// Flags do not show the order of two results of one message, so larger frames are parsed.
fn is_in_order(frame: &[PlanItem<'_>]) -> bool {
    let needs_repair = |entry: Entry<'_>| entry.has(Flags::ORPHAN) || entry.has(Flags::UNANSWERED);
    match frame {
        [one] => {
            !one.entry().is_some_and(|entry| needs_repair(entry) || entry.role() == Role::Tool)
        }
        [call, result] => {
            let (Some(call), Some(result)) = (call.entry(), result.entry()) else { return false };
            !needs_repair(call) && !needs_repair(result) && result.role() == Role::Tool
        }
        _ => false,
    }
}

/// One frame: the calls of each message with their results.
struct PairingTable<'f, 'a> {
    frame: &'f [PlanItem<'a>],
    /// The calls of each item.
    calls: Vec<Vec<CallSlot<'a>>>,
    /// Whether each item is a result with a call.
    is_paired: Vec<bool>,
}

/// A call and the index of its result in the frame.
struct CallSlot<'a> {
    call: ToolCall<'a>,
    result: Option<usize>,
}

impl<'f, 'a> PairingTable<'f, 'a> {
    fn new(frame: &'f [PlanItem<'a>]) -> Self {
        let calls = frame.iter().map(|item| call_slots(item)).collect();
        let mut table = PairingTable { frame, calls, is_paired: vec![false; frame.len()] };
        table.assign_results();
        table
    }

    /// Assigns each result to an open call of its id before it, as the log does.
    fn assign_results(&mut self) {
        let mut open = OpenCalls::default();
        for (at, item) in self.frame.iter().enumerate() {
            let slots = self.calls.get(at).into_iter().flatten().enumerate();
            open.open(slots.map(|(place, slot)| (slot.call.id.clone(), (at, place))));
            let answered = answered_id(item).and_then(|id| open.take(id.as_ref()));
            let Some((caller, place)) = answered else { continue };
            let slot = self.calls.get_mut(caller).and_then(|slots| slots.get_mut(place));
            if let (Some(slot), Some(is_paired)) = (slot, self.is_paired.get_mut(at)) {
                slot.result = Some(at);
                *is_paired = true;
            }
        }
    }

    fn emit(self, paired: &mut PairedItems<'a>) {
        let mut order = EmitOrder { is_emitted: vec![false; self.frame.len()], first: 0 };
        for ((at, item), slots) in self.frame.iter().enumerate().zip(&self.calls) {
            if item.role() == Role::Tool {
                if self.is_paired.get(at) != Some(&true) {
                    paired.repairs.extend(
                        item.entry().map(|entry| Repair::DroppedOrphan { seq: entry.seq() }),
                    );
                    order.mark_emitted(at);
                }
                continue;
            }
            order.mark_emitted(at);
            if let Some(entry) = item.entry().filter(|entry| is_abandoned(entry, slots)) {
                paired.repairs.push(Repair::DroppedAborted { seq: entry.seq() });
                continue;
            }
            paired.items.push(item.clone());
            for slot in slots {
                self.emit_result(item, slot, &mut order, paired);
            }
        }
    }

    fn emit_result(
        &self,
        caller: &PlanItem<'a>,
        slot: &CallSlot<'a>,
        order: &mut EmitOrder,
        paired: &mut PairedItems<'a>,
    ) {
        let found = slot.result.and_then(|at| Some((at, self.frame.get(at)?)));
        let Some((at, result)) = found else {
            let (call_id, tool) = (slot.call.id.clone(), slot.call.name.clone());
            paired.repairs.extend(caller.entry().map(|entry| Repair::AddedMissingResult {
                seq: entry.seq(),
                call_id: call_id.to_string(),
            }));
            paired.items.push(PlanItem::MissingResult { call_id, tool });
            return;
        };
        if !order.is_next(at) {
            let moved = result.entry().map(|entry| Repair::MovedResult { seq: entry.seq() });
            paired.repairs.extend(moved);
        }
        order.mark_emitted(at);
        paired.items.push(result.clone());
    }
}

/// The emitted items of a frame, which show whether the next one is out of order.
struct EmitOrder {
    is_emitted: Vec<bool>,
    first: usize,
}

impl EmitOrder {
    fn mark_emitted(&mut self, at: usize) {
        if let Some(is_emitted) = self.is_emitted.get_mut(at) {
            *is_emitted = true;
        }
        while self.is_emitted.get(self.first) == Some(&true) {
            self.first += 1;
        }
    }

    fn is_next(&self, at: usize) -> bool {
        self.first == at
    }
}

/// The calls of an item.
fn call_slots<'a>(item: &PlanItem<'a>) -> Vec<CallSlot<'a>> {
    let calls = match item {
        PlanItem::Kept(entry) | PlanItem::ReplacedText { entry, .. } => entry.tool_calls(),
        PlanItem::ReplacedRaw { entry, raw } if entry.has(Flags::TOOL_CALLS) => {
            Message::parse(raw, "").tool_calls()
        }
        _ => Vec::new(),
    };
    calls.into_iter().map(|call| CallSlot { call, result: None }).collect()
}

/// The id of the call of a result; `None` for an orphan.
fn answered_id<'a>(item: &PlanItem<'a>) -> Option<Cow<'a, str>> {
    let entry = item.entry().filter(|entry| !entry.has(Flags::ORPHAN))?;
    entry.tool_result().map(|head| head.call_id)
}

/// Whether an aborted message has no text and none of its calls ran. A pinned one is kept.
fn is_abandoned(entry: &Entry<'_>, slots: &[CallSlot<'_>]) -> bool {
    entry.has(Flags::ABORTED)
        && entry.has(Flags::TOOL_CALLS)
        && !entry.has(Flags::PINNED)
        && entry.text().trim().is_empty()
        && slots.iter().all(|slot| slot.result.is_none())
}

#[cfg(test)]
mod tests {
    use ctxhost_engine_api::Plan;
    use ctxhost_engine_api::testing::generate::Script;

    use super::*;

    /// Pairs all items of a script; entries are shown by position, missing results as `-id`.
    fn check(script: Script, expected: &str, repairs: &[&str]) {
        let view = script.finish().transcript();
        let plan = Plan::keep_all(view.len());
        let paired = pair_results(plan.project(&view));
        let show = |item: &PlanItem<'_>| match item {
            PlanItem::MissingResult { call_id, .. } => format!("-{call_id}"),
            other => other.entry().map_or_else(String::new, |entry| entry.seq().to_string()),
        };
        let items: Vec<_> = paired.items.iter().map(show).collect();
        assert_eq!(items.join(" "), expected);
        let shown: Vec<_> = paired.repairs.iter().map(ToString::to_string).collect();
        assert_eq!(shown, repairs);
    }

    #[test]
    fn what_is_in_order_stays() {
        let script = Script::new().user("task").calls("", &["a", "b"]).result("a", "1");
        check(script.result("b", "2").assistant("done"), "0 1 2 3 4", &[]);
    }

    #[test]
    fn results_move_to_their_calls_in_call_order() {
        let script = Script::new().calls("", &["a", "b"]).user("hurry").result("b", "2");
        let moved = ["moved result 3 to its call", "moved result 2 to its call"];
        check(script.result("a", "1"), "0 3 2 1", &moved);
    }

    #[test]
    fn a_message_between_parallel_calls_moves_behind_them() {
        let script = Script::new().calls("", &["a"]).calls("", &["b"]).result("a", "1");
        check(script.result("b", "2"), "0 2 1 3", &["moved result 2 to its call"]);
    }

    #[test]
    fn missing_results_are_added_where_they_belong() {
        let script = Script::new().calls("", &["a", "b"]).result("b", "2").user("and a?");
        let added = ["added the missing result of call a in entry 0"];
        check(script, "0 -a 1 2", &added);
    }

    #[test]
    fn orphans_and_second_results_are_dropped() {
        let script = Script::new().orphan("lost").calls("", &["a"]).result("a", "1");
        let left_out = [
            "dropped entry 0: a result without a call",
            "dropped entry 3: a result without a call",
        ];
        check(script.result("a", "again"), "1 2", &left_out);
    }

    #[test]
    fn calls_of_one_id_take_its_results_in_order() {
        let script = Script::new().calls("", &["a", "b", "a"]).result("a", "1").result("b", "2");
        check(script.clone().result("a", "3"), "0 1 2 3", &[]);
        let moved = ["moved result 3 to its call"];
        let early = Script::new().calls("", &["a", "b", "a"]).result("a", "1").result("a", "3");
        check(early.result("b", "2"), "0 1 3 2", &moved);
        // A result too many answers nothing.
        let orphan = ["dropped entry 4: a result without a call"];
        check(script.clone().result("a", "3").result("a", "4"), "0 1 2 3", &orphan);
        let added = ["added the missing result of call a in entry 0"];
        check(script.user("next"), "0 1 2 -a 3", &added);
    }

    #[test]
    fn ids_may_come_again_in_later_turns() {
        let script = Script::new().calls("", &["a"]).calls("", &["a"]).result("a", "1");
        let script = script.calls("", &["a"]).result("a", "2");
        check(script, "0 -a 1 2 3 4", &["added the missing result of call a in entry 0"]);
    }

    #[test]
    fn a_result_answers_the_newest_call_of_its_id() {
        let script = Script::new().calls("", &["a", "b"]).calls("", &["a"]).result("a", "1");
        let repairs =
            ["added the missing result of call a in entry 0", "moved result 3 to its call"];
        check(script.result("b", "2"), "0 -a 3 1 2", &repairs);
    }

    #[test]
    fn an_aborted_message_is_dropped_unless_it_has_text_or_calls_that_ran() {
        let aborted = |text| Script::new().aborted_calls(text, &["a"]).user("no");
        let left_out = ["dropped entry 0: aborted without text or calls that ran"];
        check(aborted(""), "1", &left_out);
        let added = ["added the missing result of call a in entry 0"];
        check(aborted("I will"), "0 -a 1", &added);
        let half = Script::new().aborted_calls("", &["a", "b"]).result("b", "2");
        check(half, "0 -a 1", &added);
    }

    #[test]
    fn an_insert_between_call_and_result_moves_behind_it() {
        let view = Script::new().calls("", &["a"]).result("a", "1").finish().transcript();
        let mut plan = Plan::default();
        plan.keep(0..1).insert(Role::User, "by the way", 1..1).keep(1..2);
        let roles: Vec<_> =
            pair_results(plan.project(&view)).items.iter().map(|item| item.role()).collect();
        assert_eq!(roles, [Role::Assistant, Role::Tool, Role::User]);
    }

    #[test]
    fn a_thousand_parallel_calls_in_reverse() {
        let ids: Vec<String> = (0..1_000).map(|k| format!("c{k}")).collect();
        let refs: Vec<&str> = ids.iter().map(String::as_str).collect();
        let mut script = Script::new().calls("", &refs);
        for id in ids.iter().rev().skip(1) {
            script = script.result(id, "x");
        }
        let view = script.finish().transcript();
        let plan = Plan::keep_all(view.len());
        let paired = pair_results(plan.project(&view));
        assert_eq!(paired.items.len(), 1_001);
        let last_two: Vec<_> =
            paired.items.iter().rev().take(2).map(|item| item.entry().map(|e| e.seq())).collect();
        assert_eq!(last_two, [None, Some(1)]);
    }
}
