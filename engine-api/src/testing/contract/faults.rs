//! Finds violations of the contract in a plan.

use crate::plan::{Action, Op, Plan};
use crate::transcript::{Message, Role, Transcript};

/// The first fault of a plan over `transcript`, `None` for a valid one.
///
/// A valid plan has ascending positions in range without overlap, known operations, insertions as user or
/// assistant, and rewrites with the same role and call ids.
pub fn plan_fault(plan: &Plan, transcript: &Transcript) -> Option<String> {
    let len = transcript.len() as u64;
    let mut free_from = 0;
    for (at, Op { action, .. }) in plan.ops.iter().enumerate() {
        let range = action.range();
        let fault = match action {
            Action::Unknown(kind) => Some(format!("is of the unknown kind {kind}")),
            _ if range.start > range.end => Some(format!("has the backward range {range:?}")),
            _ if range.end > len => Some(format!("names {range:?} of {len} entries")),
            // An empty insertion may share its position with the next operation.
            _ if range.start < free_from => {
                Some(format!("names {range:?}, but position {free_from} is already passed"))
            }
            Action::Insert { role, .. } if !matches!(role, Role::User | Role::Assistant) => {
                Some(format!("inserts a message of role {}", role.name()))
            }
            Action::ReplaceRaw { seq, raw } => rewrite_fault(*seq, raw, transcript),
            _ => None,
        };
        if let Some(fault) = fault {
            return Some(format!("operation {at} {fault}"));
        }
        free_from = range.end;
    }
    None
}

fn rewrite_fault(seq: u64, raw: &str, transcript: &Transcript) -> Option<String> {
    // A position past the end was reported before.
    let before = transcript.get(seq)?.message();
    let after = Message::parse(raw, "");
    if before.role != after.role {
        return Some(format!("turns the role of entry {seq} into {:?}", after.role));
    }
    (call_ids(before) != call_ids(after)).then(|| format!("changes the call ids of entry {seq}"))
}

/// The call a result answers and the calls a message makes.
fn call_ids(message: Message<'_>) -> (Option<String>, Vec<String>) {
    let answers = message.clone().tool_result().map(|result| result.call_id.into_owned());
    let calls = message.tool_calls().into_iter().map(|call| call.id.into_owned()).collect();
    (answers, calls)
}

#[cfg(test)]
mod tests {
    use std::ops::Range;

    use super::*;
    use crate::testing::TranscriptBuilder;

    fn fault(build: impl FnOnce(&mut Plan)) -> Option<String> {
        let mut builder = TranscriptBuilder::new();
        builder.user("a").calls(&[("c", "ls", "{}")]).result("c", "ls", "x").assistant("b");
        let mut plan = Plan::default();
        build(&mut plan);
        plan_fault(&plan, &builder.transcript())
    }

    fn assert_fault(build: impl FnOnce(&mut Plan), words: &str) {
        let fault = fault(build).unwrap();
        assert!(fault.contains(words), "{fault}");
    }

    #[test]
    fn a_sound_plan_has_none() {
        let sound = |plan: &mut Plan| {
            plan.insert(Role::User, "first", 0..0).keep(0..1).leave_out(1..1);
            plan.replace_raw(1, r#"{"role":"assistant","content":[{"type":"toolCall","id":"c"}]}"#);
            plan.replace_text(2, "y").insert(Role::Assistant, "z", 3..4);
        };
        assert_eq!(fault(sound), None);
    }

    #[test]
    fn each_fault_is_named() {
        assert_fault(
            |plan| {
                plan.keep(2..5);
            },
            "names 2..5 of 4 entries",
        );
        assert_fault(
            |plan| {
                plan.keep(0..2).replace_text(1, "");
            },
            "operation 1 names 1..2",
        );
        assert_fault(
            |plan| {
                plan.insert(Role::Tool, "", 0..0);
            },
            "a message of role tool",
        );
        assert_fault(
            |plan| {
                plan.replace_raw(0, r#"{"role":"assistant"}"#);
            },
            "the role",
        );
        assert_fault(
            |plan| {
                plan.replace_raw(1, r#"{"role":"assistant"}"#);
            },
            "the call ids",
        );
        let unknown = Op { action: Action::Unknown(9), note: None };
        assert_fault(|plan| plan.ops.push(unknown), "unknown kind 9");
        let backward = Op { action: Action::Keep(Range { start: 3, end: 1 }), note: None };
        assert_fault(|plan| plan.ops.push(backward), "backward range");
    }
}
