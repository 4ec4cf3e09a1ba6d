//! Failing requests: each turn ends with an answer or a clear error, within its limits.

mod elsewhere;
mod overflow;
mod repaired;
mod said;
mod silent;
mod trouble;

use ctxhost_tests::rules::Wire;
use ctxhost_tests::scripted::{Ask, Model, ScriptedServer, Step};
use ctxhost_tests::workplace::{ConfigText, Workplace};

/// The window that the config tells of.
const WINDOW_TOKENS: u64 = 32_000;

/// A model that is long-winded, so that histories grow.
fn talker(wire: Wire, model: Model) -> ScriptedServer {
    let talk = |ask: &Ask<'_>| {
        let tale = format!("Part {} of a tale of many files and sockets. ", ask.n);
        vec![Step::say(tale.repeat(120))]
    };
    ScriptedServer::start(wire, model).script(talk)
}

/// A workplace with this one provider.
fn workplace(wire: Wire, server: &ScriptedServer, more: &str) -> Workplace {
    let config = ConfigText::new();
    config.provider_with("fake", wire, &server.url(), WINDOW_TOKENS, more).workplace()
}
