//! SIGKILL at work: acknowledged data is there after the restart.

use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ctxhost_tests::rules::Wire;
use ctxhost_tests::scripted::{Ask, Model, ScriptedServer, Step};
use serde_json::Value;

use crate::bodies::Talk;
use crate::report::Breach;
use crate::run::Attack;
use crate::stand::Stand;

pub(crate) fn attacks() -> Vec<Attack> {
    let attack = |name, tries, run| Attack::new("kills", name, tries, run);
    vec![
        attack("agents", "the crash test: agents, tools, compactions and undos", agents),
        attack(
            "an agent at work",
            "kills `chat` at any moment: what a model was shown is kept",
            chat,
        ),
        attack("a gateway at work", "kills a gateway under clients, again and again", gateway),
        attack(
            "a compaction",
            "kills `compact` at any moment: the session is as it was, or compacted",
            compaction,
        ),
    ]
}

/// The crash test beside this program, asked for its numbers.
fn agents(stand: &Stand) {
    let times = stand.size(30, 200, 2_000);
    let (times_text, seed) = (times.to_string(), stand.seed.to_string());
    let kept = stand.path("crashtest").display().to_string();
    let program =
        std::env::current_exe().expect("a program has a path").with_file_name("crashtest");
    let mut command = Command::new(program);
    stand.surround(&mut command);
    command.args(["--times", &times_text, "--seed", &seed, "--keep", &kept, "--json"]);
    let limit = Duration::from_secs(stand.size(45, 300, 590));
    let ran = stand.run(&mut command, "crashtest", limit);
    stand.tried(times);
    let tally: Value = serde_json::from_slice(&ran.out).unwrap_or_default();
    let number = |key: &str| tally[key].as_u64();
    stand.must(ran.code == Some(0), Breach::Lost, || format!("{:?}: {}", ran.code, ran.said()));
    stand.must(number("kills") == Some(times), Breach::Wrong, || format!("other numbers: {tally}"));
    stand.must(number("lost") == Some(0), Breach::Lost, || format!("lost: {tally}"));
    stand
        .must(number("half_written") == Some(0), Breach::Lost, || format!("half written: {tally}"));
    stand.must(number("promises") > Some(times), Breach::Wrong, || {
        "nothing was promised".to_owned()
    });
}

/// The program itself, from outside: the crash test kills the runtime alone, at points of its log.
fn chat(stand: &Stand) {
    let times = stand.size(10, 80, 600);
    let server = ScriptedServer::start(Wire::OpenAiChat, Model::new(32_000));
    let server =
        server.script(|_: &Ask<'_>| vec![Step::say("An answer of some length. ".repeat(99))]);
    let config = format!(
        "[agent]\nmodel = \"a/gpt-4.1\"\n[providers.a]\ndialect = \"openai-chat\"\nbase_url = \"{}\"\nproxy = \"none\"\n\
         [models.\"a/gpt-4.1\"]\nwindow_tokens = 32000\n",
        server.url()
    );
    std::fs::write(stand.path("work/ctxhost.toml"), config).expect("a config");
    let path = stand.path("work/session.jsonl");
    let name = path.display().to_string();
    let say = |text: &str| {
        let mut command = stand.command(&["chat", "--session", &name, "-p", text]);
        command.env("OPENAI_API_KEY", "none");
        command
    };
    let mut random = stand.random();
    let (mut before, mut shown) = (Vec::new(), Vec::new());
    for n in 0..times {
        stand.tried(1);
        let text = format!("Request <{n}> of the person.");
        let mut child = stand.spawn(&mut say(&text));
        // `wait` kills what is not over yet.
        stand.wait(&mut child, Duration::from_millis(random.u64(1..400)));
        let now = std::fs::read(&path).unwrap_or_default();
        let end = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        stand.must(now.starts_with(&before[..end]), Breach::Lost, || {
            "what stood there has changed".to_owned()
        });
        if server.requests().iter().any(|seen| seen.body.to_string().contains(&text)) {
            shown.push(text);
        }
        before = now;
    }
    let ran = stand.run(&mut say("The last words."), "chat", Duration::from_secs(30));
    stand.must(ran.code == Some(0), Breach::Lost, || format!("it cannot go on: {}", ran.said()));
    let kept = String::from_utf8_lossy(&std::fs::read(&path).unwrap_or_default()).into_owned();
    for text in &shown {
        stand.must(kept.contains(text), Breach::Lost, || format!("a model was shown {text:?}"));
    }
    let ran = stand.ctxhost(&["fsck", &name], Duration::from_secs(30));
    stand.must(ran.code == Some(0), Breach::Lost, || format!("fsck: {}", ran.text()));
}

const CLIENTS: usize = 5;

/// Clients talk without end; whoever gets no answer asks again. The gateway dies in between, ten times and more.
fn gateway(stand: &Stand) {
    let kills = stand.size(8, 40, 300);
    let server = ScriptedServer::start(Wire::OpenAiChat, Model::new(20_000));
    let server = server.script(|_: &Ask<'_>| vec![Step::say("Noted.")]);
    let config = "[models.some-model]\nwindow_tokens = 20000\n";
    let running = stand.serve(&server.url(), config);
    let address = Arc::new(Mutex::new(running.address.clone()));
    let is_over = AtomicBool::new(false);
    let mut random = stand.random();
    let client = |n: usize| {
        let mut talk = Talk::new(Some(&format!("client-{n}")));
        let mut turn = 0;
        while !is_over.load(Ordering::SeqCst) && turn < 400 {
            talk.say(&format!("Client <{n}> turn {turn}. {}", "Words of the turn. ".repeat(20)));
            while !is_over.load(Ordering::SeqCst) {
                let now = address.lock().unwrap().clone();
                let answer = talk.ask_again(&now);
                if answer.status == 200 && answer.is_whole {
                    break;
                }
                let is_known = !answer.is_whole || matches!(answer.status, 0 | 502 | 503 | 504);
                stand.must(is_known, Breach::Wrong, || {
                    format!("client {n}: {} {:.200}", answer.status, answer.text())
                });
                std::thread::sleep(Duration::from_millis(20));
            }
            turn += 1;
        }
        talk
    };
    let mut running = Some(running);
    let talks: Vec<Talk> = std::thread::scope(|scope| {
        let client = &client;
        let clients: Vec<_> = (0..CLIENTS).map(|n| scope.spawn(move || client(n))).collect();
        for _ in 0..kills {
            std::thread::sleep(Duration::from_millis(random.u64(60..700)));
            stand.tried(1);
            if let Some(gateway) = running.take() {
                gateway.kill();
            }
            let again = stand.serve(&server.url(), config);
            *address.lock().unwrap() = again.address.clone();
            running = Some(again);
        }
        std::thread::sleep(Duration::from_millis(500));
        is_over.store(true, Ordering::SeqCst);
        clients.into_iter().map(|it| it.join().expect("a client")).collect()
    });
    if let Some(gateway) = running {
        gateway.end();
    }
    let acknowledged: usize = talks.iter().map(|talk| talk.acknowledged.len()).sum();
    stand.must(acknowledged > CLIENTS * 3, Breach::Wrong, || {
        format!("{acknowledged} requests were answered, which is too few to tell anything")
    });
    // Words that were answered once only may be in memory still: a conversation becomes a file with its second request.
    let kept = talks.iter().filter(|talk| talk.acknowledged.len() > 1);
    stand.must_be_kept(kept.flat_map(|talk| &talk.acknowledged));
    stand.must_be_sound();
    let sessions = stand.kept_sessions().len();
    stand.must(sessions <= CLIENTS, Breach::Lost, || {
        format!("{CLIENTS} conversations are in {sessions} sessions")
    });
    let broken = server.broken();
    stand.must(broken.is_empty(), Breach::Wrong, || format!("unlawful: {}", broken[0].1));
}

fn compaction(stand: &Stand) {
    let times = stand.size(10, 60, 500);
    let mut random = stand.random();
    let original = std::fs::read(ctxhost_tests::root().join("examples/sessions/coding.jsonl"))
        .expect("the recording");
    let path = stand.path("work/session.jsonl");
    let name = path.display().to_string();
    for _ in 0..times {
        stand.tried(1);
        for entry in std::fs::read_dir(stand.path("work")).into_iter().flatten().flatten() {
            let _ = std::fs::remove_file(entry.path());
        }
        std::fs::write(&path, &original).expect("a session");
        let mut command = stand.command(&["compact", "--window", "32k", &name]);
        let mut child = stand.spawn(&mut command);
        // `wait` kills what is not over yet.
        stand.wait(&mut child, Duration::from_millis(random.u64(1..1_500)));
        let now = std::fs::read(&path).unwrap_or_default();
        stand.must(now.starts_with(&original), Breach::Lost, || {
            "what stood there has changed".to_owned()
        });
        let ran = stand.ctxhost(&["context", &name], Duration::from_secs(30));
        stand.must(ran.code == Some(0), Breach::Lost, || {
            format!("it does not open: {}", ran.said())
        });
        let again = stand.ctxhost(&["compact", "--window", "32k", &name], Duration::from_secs(30));
        stand.must(again.code.is_some(), Breach::Wrong, || {
            "it cannot be compacted again".to_owned()
        });
        let ran = stand.ctxhost(&["fsck", &name], Duration::from_secs(30));
        stand.must(ran.code == Some(0), Breach::Lost, || format!("fsck: {}", ran.text()));
    }
}
