//! Invalid plans: the invariants reject or repair them, and the client does not notice.

use super::{Hostile, attack};
use crate::run::Attack;
use crate::stand::Stand;

pub(super) fn attacks() -> Vec<Attack> {
    vec![
        attack("plans", "plans that overlap, lie and leave out what must stay", process),
        attack("plans on a lane", "the same by an engine on a lane", lane),
        attack("large plans", "texts of 80 MB and 200,000 operations in a plan", large),
    ]
}

const LIES: [&str; 13] = [
    "overlap",
    "backwards",
    "past-the-end",
    "nothing",
    "results-alone",
    "calls-alone",
    "drop-newest",
    "drop-first",
    "rewrite-newest",
    "raw-garbage",
    "deep-extras",
    "numbers",
    "many-operations",
];

fn process(stand: &Stand) {
    let lies = LIES.iter().copied().chain(["dangling"]);
    for lie in lies.take(stand.size(8, 99, 99) as usize) {
        let hostile = Hostile::new(&format!("plan-{lie}")).with("amount", 2_000);
        hostile.meets_a_conversation(stand, |_| {});
    }
}

/// Without the text that stands nowhere: nothing catches that on a lane, as the documents say.
fn lane(stand: &Stand) {
    for lie in LIES.iter().take(stand.size(8, 99, 99) as usize) {
        let hostile =
            Hostile::new(&format!("plan-{lie}")).with("amount", 2_000).on_an_engine_thread();
        hostile.meets_a_conversation(stand, |_| {});
    }
}

fn large(stand: &Stand) {
    for (lie, amount) in [("huge-text", 80_000_000), ("many-operations", 200_000)] {
        let hostile = Hostile::new(&format!("plan-{lie}")).with("amount", amount);
        hostile.meets_a_conversation(stand, |met| {
            met.gateway.must_take_at_most(600, lie);
        });
    }
}
