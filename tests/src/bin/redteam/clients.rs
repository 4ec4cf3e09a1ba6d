//! Attacks by clients on a running gateway.

mod access;
mod conversations;
mod http2;
mod large;
mod wire;

use std::time::Duration;

use ctxhost_tests::rules::Wire;
use ctxhost_tests::scripted::{Ask, Model, ScriptedServer, Step};

use crate::run::Attack;
use crate::stand::Stand;

pub(crate) fn attacks() -> Vec<Attack> {
    [
        wire::attacks(),
        http2::attacks(),
        large::attacks(),
        conversations::attacks(),
        access::attacks(),
    ]
    .concat()
}

fn attack(name: &'static str, tries: &'static str, run: fn(&Stand)) -> Attack {
    Attack::new("clients", name, tries, run)
}

/// A provider that says the same short words to all.
fn provider() -> ScriptedServer {
    let server = ScriptedServer::start(Wire::OpenAiChat, Model::new(200_000));
    server.script(|_: &Ask<'_>| vec![Step::say("Noted.")])
}

/// Little patience with clients.
const HASTY: &str = "gateway.client_timeout_ms = 500\n";

/// How long a decent client may wait while others misbehave. Generous: the claim is that nobody is shut out.
const FAIR: Duration = Duration::from_secs(8);
