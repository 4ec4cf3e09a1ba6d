//! Attacks by engines on the host, the user's files and the clients, sandboxed and on a thread.

mod checked;
mod life;
mod loading;
mod plans;
mod reach;
mod resources;
mod services;

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use ctxhost_tests::native::native_library;
use ctxhost_tests::rules::Wire;
use ctxhost_tests::scripted::{Ask, Model, ScriptedServer, Step};
use serde_json::{Value, json};

use crate::bodies::Talk;
use crate::gateway::Gateway;
use crate::report::Breach;
use crate::run::Attack;
use crate::stand::Stand;

pub(crate) fn attacks() -> Vec<Attack> {
    [
        reach::attacks(),
        resources::attacks(),
        services::attacks(),
        plans::attacks(),
        life::attacks(),
        loading::attacks(),
        checked::attacks(),
    ]
    .concat()
}

fn attack(name: &'static str, tries: &'static str, run: fn(&Stand)) -> Attack {
    Attack::new("engines", name, tries, run)
}

/// The hostile library, compiled at the first call.
fn library() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| native_library("tests/fixtures/c/hostile.c", &[]))
}

/// One engine at work.
#[derive(Clone, Debug)]
struct Hostile {
    id: &'static str,
    library: PathBuf,
    attack: String,
    isolation: &'static str,
    /// How long it may take for a request, in ms.
    assemble_ms: u64,
    /// Lines of the config that limit it otherwise than by default.
    limits: String,
    settings: Value,
}

impl Hostile {
    fn new(attack: &str) -> Hostile {
        Hostile {
            id: "hostile",
            library: library().to_owned(),
            attack: attack.to_owned(),
            isolation: "process",
            assemble_ms: 2_000,
            limits: String::new(),
            settings: json!({}),
        }
    }

    fn on_an_engine_thread(mut self) -> Hostile {
        self.isolation = "thread";
        self
    }

    fn with(mut self, key: &str, value: impl Into<Value>) -> Hostile {
        self.settings[key] = value.into();
        self
    }

    /// A config with it in the slot, and with little patience.
    fn config(&self, stand: &Stand) -> String {
        let mut settings = self.settings.clone();
        settings["attack"] = self.attack.clone().into();
        settings["victims"] = stand.path("victims").display().to_string().into();
        settings["home"] = stand.path("home").display().to_string().into();
        let lines = settings.as_object().into_iter().flatten();
        let lines: String = lines.map(|(key, value)| format!("{key} = {value}\n")).collect();
        let (id, library) = (self.id, self.library.display().to_string());
        let (isolation, assemble_ms) = (self.isolation, self.assemble_ms);
        let limits = &self.limits;
        format!(
            "{limits}plugins.trust = \"any\"\nplugins.slots.context_engine = {id:?}\n\
             timeouts.create_ms = 3000\ntimeouts.assemble_ms = {assemble_ms}\ntimeouts.ingest_ms = 2000\n\
             timeouts.compact_ms = 3000\ntimeouts.dispose_ms = 500\n\
             [models.some-model]\nwindow_tokens = 20000\n\
             [plugins.entries.{id}]\npath = {library:?}\nisolation = {isolation:?}\n\
             [plugins.entries.{id}.config]\n{lines}"
        )
    }

    /// Lets it meet a conversation behind a gateway. Whatever it does, the client is answered, the model reads a lawful request
    /// with the newest words in it, nothing of the person's changes, and what was said is kept. `also` looks while the
    /// gateway still stands.
    fn meets_a_conversation(&self, stand: &Stand, also: impl FnOnce(&Meeting<'_, '_>)) {
        stand.tried(1);
        let before = stand.snapshot();
        let server = ScriptedServer::start(Wire::OpenAiChat, Model::new(20_000));
        let server = server.script(|_: &Ask<'_>| vec![Step::say("Noted.")]);
        let gateway = stand.serve(&server.url(), &self.config(stand));
        let mut talk = Talk::new(None);
        for turn in 0..3 {
            let words = format!("Words of turn {turn} that must not be lost.");
            if turn > 0 {
                talk.use_tool(&format!("call_{turn}"), &format!("The result of {turn}."));
                talk.messages.push(json!({ "role": "assistant", "content": "Seen." }));
            }
            let answer = talk.ask(&gateway.address, &words);
            let name = &self.attack;
            stand.must(answer.status == 200 && answer.is_whole, Breach::Wrong, || {
                let (status, text) = (answer.status, answer.text());
                format!("{name}: the client gets {status} in turn {turn}: {text:.200}")
            });
            let newest = server.requests().last().map(|seen| seen.body.to_string());
            let reads = newest.is_some_and(|body| body.contains(&words));
            stand.must(reads || answer.status != 200, Breach::Lost, || {
                format!("{name}: the model does not read the newest words")
            });
        }
        for (number, broken) in server.broken().into_iter().take(2) {
            let name = &self.attack;
            let what = format!("{name}: request {number} of the gateway is unlawful: {broken}");
            stand.broke(Breach::Wrong, what);
        }
        let claims = claims(&gateway.said_text());
        also(&Meeting { stand, gateway: &gateway, server: &server, claims });
        gateway.end();
        stand.must_be_kept(&talk.acknowledged);
        stand.must_be_sound();
        stand.must_be_as(&before);
    }
}

/// A hostile engine that was met.
struct Meeting<'a, 'b> {
    stand: &'a Stand,
    gateway: &'a Gateway<'b>,
    server: &'a ScriptedServer,
    claims: Vec<Claim>,
}

/// What an engine says it tried: the result of a call, negative for an error, and then why.
#[derive(Clone, Debug)]
struct Claim {
    name: String,
    result: i64,
    errno: i32,
}

impl Meeting<'_, '_> {
    /// The engine has come to its end, so that what it does not claim was tried and did not happen.
    fn must_have_acted(&self) {
        let has_acted = self.claims.iter().any(|claim| claim.name == "assemble");
        self.stand.must(has_acted, Breach::Wrong, || {
            "the engine did not come to the end of its attack, so nothing is known of the rest"
                .to_owned()
        });
        self.stand.tried(self.claims.len().saturating_sub(1) as u64);
    }

    /// What an engine could do, though it must not.
    fn must_not_succeed(&self, is_meant: impl Fn(&str) -> bool) {
        for claim in self.claims.iter().filter(|claim| claim.name != "assemble") {
            if claim.result >= 0 && is_meant(&claim.name) {
                let what = format!("the engine can {}: {}", claim.name, claim.result);
                self.stand.broke(Breach::Escaped, what);
            }
        }
    }

    fn claimed(&self, name: &str) -> Option<i64> {
        self.claims.iter().find(|claim| claim.name == name).map(|claim| claim.result)
    }
}

/// All claims in a log.
fn claims(log: &str) -> Vec<Claim> {
    let parse = |text: &str| {
        let mut words = text.split(';').next()?.split_whitespace();
        let name = words.next()?.to_owned();
        let result = words.next()?.parse().ok()?;
        Some(Claim { name, result, errno: words.next()?.parse().ok()? })
    };
    log.split("CLAIM ").skip(1).filter_map(parse).collect()
}

/// As long as anything may take to be noticed.
const SOON: Duration = Duration::from_secs(10);

/// What asks whether a path exists. A filter sees numbers and no paths, so the documents promise nothing of it.
const QUESTIONS: [&str; 3] = ["stat-key", "access-key", "readlink"];
