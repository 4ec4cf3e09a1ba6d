//! Sessions, configs and state folders that are damaged, endless, or no files at all.

mod locks;
mod places;
mod sessions;

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use ctxhost_tests::rules::Wire;
use ctxhost_tests::scripted::{Ask, Model, ScriptedServer, Step};

use crate::report::Breach;
use crate::run::Attack;
use crate::stand::Stand;

pub(crate) fn attacks() -> Vec<Attack> {
    [sessions::attacks(), places::attacks(), locks::attacks()].concat()
}

fn attack(name: &'static str, tries: &'static str, run: fn(&Stand)) -> Attack {
    Attack::new("files", name, tries, run)
}

/// As long as a command may take with a file of a few lines.
const QUICK: Duration = Duration::from_secs(15);

/// What the person says in turn `n` of the session that is damaged.
fn words(n: usize) -> String {
    format!("Request number {n} of the person, with a word of its own: w{n}x{}.", n * 7919)
}

const TURNS: usize = 6;

/// A session that `chat` has written, with its files beside it.
fn written_session(stand: &Stand) -> PathBuf {
    let server = ScriptedServer::start(Wire::OpenAiChat, Model::new(200_000));
    let server = server.script(|_: &Ask<'_>| vec![Step::say("Noted.")]);
    let config = format!(
        "[agent]\nmodel = \"a/gpt-4.1\"\n[providers.a]\ndialect = \"openai-chat\"\nbase_url = \"{}\"\nproxy = \"none\"\n\
         [models.\"a/gpt-4.1\"]\nwindow_tokens = 200000\n",
        server.url()
    );
    fs::write(stand.path("work/ctxhost.toml"), config).expect("a config");
    let session = stand.path("work/session.jsonl");
    let name = session.display().to_string();
    for n in 0..TURNS {
        let mut command = stand.command(&["chat", "--session", &name, "-p", &words(n)]);
        command.env("OPENAI_API_KEY", "none");
        let ran = stand.run(&mut command, "chat", Duration::from_secs(30));
        assert_eq!(ran.code, Some(0), "chat: {}", ran.said());
    }
    session
}

/// All commands that read a session, on this one. Each ends in its time, within its memory, and says what is wrong where something is.
fn read_by_all(stand: &Stand, session: &str, what: &str, limit: Duration, most_mib: u64) {
    let commands: [&[&str]; 7] = [
        &["fsck", session],
        &["replay", "--window", "32k", "--no-timings", "--json", session],
        &["context", session],
        &["export", session],
        &["diff", session],
        &["compact", "--dry-run", "--window", "32k", session],
        &["statusline", "--session", session],
    ];
    let is_large = most_mib > 300;
    let some = if is_large { stand.size(2, 7, 7) } else { stand.size(4, 7, 7) };
    for command in commands.iter().take(some as usize) {
        stand.tried(1);
        let ran = stand.ctxhost(command, limit);
        let name = command[0];
        stand.must(ran.peak_mib <= most_mib, Breach::Unbounded, || {
            format!(
                "{name} of {what}: {} MiB of memory; at most {most_mib} are right",
                ran.peak_mib
            )
        });
        let is_told =
            ran.is_late || ran.code == Some(0) || !ran.err.is_empty() || !ran.out.is_empty();
        stand.must(is_told, Breach::Wrong, || format!("{name} of {what} fails without a word"));
    }
}
