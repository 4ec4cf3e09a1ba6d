//! Pairing: every call has its result directly behind it, and every result its call.
//!
//! Plans keep whole frames, so calls and results are settled frame by frame and never by id across
//! the conversation: some providers use the same ids in every turn.
//!
//! ```text
//!  items     call(a, b) · "hurry" · b · x        x answers nothing, a was never answered
//!  settled   call(a, b) · a* · b · "hurry"       a* is an Item::MissingResult
//! ```

use std::borrow::Cow;
use std::collections::HashMap;

use ctxhost_engine_api::{Entry, Flags, Message, PlanItem, Role, ToolCall};

use super::Repair;

/// Items that can be sent, and what it took.
#[derive(Debug, Default)]
pub(super) struct PairedItems<'a> {
    pub(super) items: Vec<PlanItem<'a>>,
    pub(super) repairs: Vec<Repair>,
}

/// Brings results to their calls, adds those that are missing, leaves out what answers nothing.
pub(super) fn pair_results(items: Vec<PlanItem<'_>>) -> PairedItems<'_> {
    let mut settled =
        PairedItems { items: Vec::with_capacity(items.len()), ..PairedItems::default() };
    let mut rest = items.as_slice();
    while let Some(first) = rest.first() {
        let (frame, after) = rest.split_at(frame_len(first, rest));
        if is_in_order(frame) {
            settled.items.extend_from_slice(frame);
        } else {
            PairingTable::new(frame).emit(&mut settled);
        }
        rest = after;
    }
    settled
}

/// How many items from the first on belong to its frame, with what was inserted between them.
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

/// Whether the flags alone show that nothing needs to move, so that nothing has to be parsed.
///
/// Two results of one message may have come in another order than the calls; flags do not tell.
fn is_in_order(frame: &[PlanItem<'_>]) -> bool {
    let troubled = |entry: Entry<'_>| entry.has(Flags::ORPHAN) || entry.has(Flags::UNANSWERED);
    match frame {
        [one] => !one.entry().is_some_and(|entry| troubled(entry) || entry.role() == Role::Tool),
        [call, result] => {
            let (Some(call), Some(result)) = (call.entry(), result.entry()) else { return false };
            !troubled(call) && !troubled(result) && result.role() == Role::Tool
        }
        _ => false,
    }
}

/// One frame laid out: the calls of each message and the result that each call has.
struct PairingTable<'f, 'a> {
    frame: &'f [PlanItem<'a>],
    /// For each item, its calls; empty for all that call nothing.
    calls: Vec<Vec<CallSlot<'a>>>,
    /// For each item, whether it is a result that found its call.
    is_seated: Vec<bool>,
}

/// A call and the place of its result in the frame.
struct CallSlot<'a> {
    call: ToolCall<'a>,
    result: Option<usize>,
}

impl<'f, 'a> PairingTable<'f, 'a> {
    fn new(frame: &'f [PlanItem<'a>]) -> Self {
        let calls = frame.iter().map(|item| call_slots(item)).collect();
        let mut table = PairingTable { frame, calls, is_seated: vec![false; frame.len()] };
        table.assign_results();
        table
    }

    /// Gives each result to the newest open call of its id before it, as the log does.
    fn assign_results(&mut self) {
        let mut open: HashMap<String, (usize, usize)> = HashMap::new();
        for (at, item) in self.frame.iter().enumerate() {
            for (place, seat) in self.calls.get(at).into_iter().flatten().enumerate() {
                open.insert(seat.call.id.to_string(), (at, place));
            }
            let answered = answered_id(item).and_then(|id| open.remove(id.as_ref()));
            let Some((caller, place)) = answered else { continue };
            let seat = self.calls.get_mut(caller).and_then(|seats| seats.get_mut(place));
            if let (Some(seat), Some(is_seated)) = (seat, self.is_seated.get_mut(at)) {
                seat.result = Some(at);
                *is_seated = true;
            }
        }
    }

    fn emit(self, settled: &mut PairedItems<'a>) {
        let mut waiting = EmitOrder { is_served: vec![false; self.frame.len()], first: 0 };
        for ((at, item), seats) in self.frame.iter().enumerate().zip(&self.calls) {
            if item.role() == Role::Tool {
                if self.is_seated.get(at) != Some(&true) {
                    settled.repairs.extend(
                        item.entry().map(|entry| Repair::DroppedOrphan { seq: entry.seq() }),
                    );
                    waiting.mark_emitted(at);
                }
                continue;
            }
            waiting.mark_emitted(at);
            if let Some(entry) = item.entry().filter(|entry| is_abandoned(entry, seats)) {
                settled.repairs.push(Repair::DroppedAborted { seq: entry.seq() });
                continue;
            }
            settled.items.push(item.clone());
            for seat in seats {
                self.emit_result(item, seat, &mut waiting, settled);
            }
        }
    }

    fn emit_result(
        &self,
        caller: &PlanItem<'a>,
        seat: &CallSlot<'a>,
        waiting: &mut EmitOrder,
        settled: &mut PairedItems<'a>,
    ) {
        let found = seat.result.and_then(|at| Some((at, self.frame.get(at)?)));
        let Some((at, result)) = found else {
            let (call_id, tool) = (seat.call.id.clone(), seat.call.name.clone());
            settled.repairs.extend(caller.entry().map(|entry| Repair::AddedMissingResult {
                seq: entry.seq(),
                call_id: call_id.to_string(),
            }));
            settled.items.push(PlanItem::MissingResult { call_id, tool });
            return;
        };
        if !waiting.is_next(at) {
            let moved = result.entry().map(|entry| Repair::MovedResult { seq: entry.seq() });
            settled.repairs.extend(moved);
        }
        waiting.mark_emitted(at);
        settled.items.push(result.clone());
    }
}

/// Which items of a frame are served, to see whether one was taken out of turn.
struct EmitOrder {
    is_served: Vec<bool>,
    first: usize,
}

impl EmitOrder {
    fn mark_emitted(&mut self, at: usize) {
        if let Some(is_served) = self.is_served.get_mut(at) {
            *is_served = true;
        }
        while self.is_served.get(self.first) == Some(&true) {
            self.first += 1;
        }
    }

    fn is_next(&self, at: usize) -> bool {
        self.first == at
    }
}

/// The calls of an item, each id once: no provider takes two results for one id.
fn call_slots<'a>(item: &PlanItem<'a>) -> Vec<CallSlot<'a>> {
    let calls = match item {
        PlanItem::Kept(entry) | PlanItem::ReplacedText { entry, .. } => entry.tool_calls(),
        PlanItem::ReplacedRaw { entry, raw } if entry.has(Flags::TOOL_CALLS) => {
            Message::parse(raw, "").tool_calls()
        }
        _ => Vec::new(),
    };
    let mut known = std::collections::HashSet::new();
    let is_new = |call: &ToolCall<'_>| known.insert(call.id.to_string());
    calls.into_iter().filter(is_new).map(|call| CallSlot { call, result: None }).collect()
}

/// The id of the call that a result answers; `None` for an orphan.
fn answered_id<'a>(item: &PlanItem<'a>) -> Option<Cow<'a, str>> {
    let entry = item.entry().filter(|entry| !entry.has(Flags::ORPHAN))?;
    entry.tool_result().map(|head| head.call_id)
}

/// Whether an aborted message said nothing and none of its calls ran. A pinned one stays.
fn is_abandoned(entry: &Entry<'_>, seats: &[CallSlot<'_>]) -> bool {
    entry.has(Flags::ABORTED)
        && entry.has(Flags::TOOL_CALLS)
        && !entry.has(Flags::PINNED)
        && entry.text().trim().is_empty()
        && seats.iter().all(|seat| seat.result.is_none())
}

#[cfg(test)]
mod tests {
    use ctxhost_engine_api::Plan;
    use ctxhost_engine_api::testing::generate::Script;

    use super::*;

    /// Settles all of a script; entries are told by position, missing results by `-id`.
    fn check(script: Script, expected: &str, repairs: &[&str]) {
        let view = script.finish().transcript();
        let plan = Plan::keep_all(view.len());
        let settled = pair_results(plan.project(&view));
        let tell = |item: &PlanItem<'_>| match item {
            PlanItem::MissingResult { call_id, .. } => format!("-{call_id}"),
            other => other.entry().map_or_else(String::new, |entry| entry.seq().to_string()),
        };
        let told: Vec<_> = settled.items.iter().map(tell).collect();
        assert_eq!(told.join(" "), expected);
        let mended: Vec<_> = settled.repairs.iter().map(ToString::to_string).collect();
        assert_eq!(mended, repairs);
    }

    #[test]
    fn what_is_in_order_stays() {
        let script = Script::new().user("task").calls("", &["a", "b"]).result("a", "1");
        check(script.result("b", "2").assistant("done"), "0 1 2 3 4", &[]);
    }

    #[test]
    fn results_come_to_their_calls_in_the_order_of_the_calls() {
        let script = Script::new().calls("", &["a", "b"]).user("hurry").result("b", "2");
        let moved = ["moved result 3 to its call", "moved result 2 to its call"];
        check(script.result("a", "1"), "0 3 2 1", &moved);
    }

    #[test]
    fn a_message_between_parallel_calls_lets_them_pass() {
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
    fn orphans_and_second_results_are_left_out() {
        let script = Script::new().orphan("lost").calls("", &["a"]).result("a", "1");
        let left_out = [
            "left out entry 0: a result without a call",
            "left out entry 3: a result without a call",
        ];
        check(script.result("a", "again"), "1 2", &left_out);
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
        let mended =
            ["added the missing result of call a in entry 0", "moved result 3 to its call"];
        check(script.result("b", "2"), "0 -a 3 1 2", &mended);
    }

    #[test]
    fn an_aborted_message_goes_unless_it_said_or_did_something() {
        let aborted = |text| Script::new().aborted_calls(text, &["a"]).user("no");
        let left_out = ["left out entry 0: aborted before it said or did anything"];
        check(aborted(""), "1", &left_out);
        let added = ["added the missing result of call a in entry 0"];
        check(aborted("I will"), "0 -a 1", &added);
        let half = Script::new().aborted_calls("", &["a", "b"]).result("b", "2");
        check(half, "0 -a 1", &added);
    }

    #[test]
    fn an_insert_between_call_and_result_lets_the_result_pass() {
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
        let settled = pair_results(plan.project(&view));
        assert_eq!(settled.items.len(), 1_001);
        let last_two: Vec<_> =
            settled.items.iter().rev().take(2).map(|item| item.entry().map(|e| e.seq())).collect();
        assert_eq!(last_two, [None, Some(1)]);
    }
}
