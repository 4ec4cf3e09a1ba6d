//! What is wrong with a plan, as far as the contract of engines speaks of it.

use crate::plan::{Action, Op, Plan};
use crate::transcript::{Message, Role, Transcript};

/// The first fault of a plan over `transcript`, `None` for a sound one.
///
/// Sound is: positions in rising order, in range, without overlap; no unknown operation; insertions
/// by user or assistant; JSON of the same role and the same call ids.
pub fn plan_fault(plan: &Plan, transcript: &Transcript) -> Option<String> {
    let len = transcript.len() as u64;
    let mut free_from = 0;
    for (at, Op { action, .. }) in plan.ops.iter().enumerate() {
        let range = action.range();
        let fault = match action {
            Action::Unknown(kind) => Some(format!("is of the unknown kind {kind}")),
            _ if range.start > range.end => Some(format!("has the backward range {range:?}")),
            _ if range.end > len => Some(format!("names {range:?} of {len} entries")),
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
