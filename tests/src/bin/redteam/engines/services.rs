//! What an engine must not get out of the host's services: models behind its call, and memory of the host.

use std::time::Duration;

use super::{Hostile, attack};
use crate::origin::{Act, Origin, decent};
use crate::report::Breach;
use crate::run::Attack;
use crate::stand::Stand;

pub(super) fn attacks() -> Vec<Attack> {
    vec![
        attack("late model calls", "asks the model when its call has ended", late),
        attack("unread replies", "asks for large values and reads no reply", unread),
        attack("unread calls", "asks for the time without end and reads no reply", calls),
    ]
}

/// The engine begins a second behind its call and asks at once.
const LATE: Duration = Duration::from_secs(3);

fn late(stand: &Stand) {
    let model = Origin::start(|_| vec![Act::Send(decent("A summary."))]);
    let mut hostile = Hostile::new("late-model");
    hostile.limits = format!(
        "summariser.base_url = \"{}/v1\"\nsummariser.model = \"some-model\"\n",
        model.url()
    );
    hostile.meets_a_conversation(stand, |met| {
        met.must_have_acted();
        std::thread::sleep(LATE);
        let bodies: Vec<String> = model.seen().iter().map(|seen| seen.text()).collect();
        let count = |words: &str| bodies.iter().filter(|body| body.contains(words)).count();
        stand.must(count("ASKED-IN-TIME") == 1, Breach::Wrong, || {
            "the engine did not reach the model in its call".to_owned()
        });
        let late = count("ASKED-LATE");
        stand.must(late == 0, Breach::Escaped, || format!("{late} requests behind the call"));
        stand.tried(220);
    });
    model.stop();
}

/// What the host may hold for one engine: requests and replies of `plugins.sandbox.answer_mib` each, and what it takes itself.
const HOST_MIB: u64 = 350;

fn unread(stand: &Stand) {
    flood(stand, "flood-replies");
}

fn calls(stand: &Stand) {
    flood(stand, "flood-calls");
}

fn flood(stand: &Stand, attack: &str) {
    let mut hostile = Hostile::new(attack);
    hostile = hostile.with("amount", stand.size(20_000, 200_000, 2_000_000));
    hostile.limits = "plugins.sandbox.receive_ms = 1000\n".to_owned();
    hostile.meets_a_conversation(stand, |met| {
        let has_acted = met.claimed("floods").is_some();
        stand.must(has_acted, Breach::Wrong, || "the engine did not begin".to_owned());
        met.gateway.must_take_at_most(HOST_MIB, attack);
    });
}
