//! Attacks with conversations: many at once, under one name, concurrent, aborted.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::{attack, provider};
use crate::bodies::{CHAT, Talk, chat, user};
use crate::http;
use crate::origin::{Act, Origin};
use crate::report::Breach;
use crate::run::Attack;
use crate::stand::Stand;

pub(super) fn attacks() -> Vec<Attack> {
    vec![
        attack(
            "more than the table",
            "more conversations at once than the gateway remembers",
            many,
        ),
        attack("one name for all", "many conversations under one name", one_name),
        attack(
            "forged names",
            "names of sessions with paths, line ends and 5,000 characters",
            forged,
        ),
        attack("the same at once", "the same request thirty times at the same moment", same),
        attack("aborted streams", "clients that go away in the middle of a stream", aborted),
    ]
}

/// Talks that go on side by side, each in a thread of its own, in so many turns.
fn side_by_side(stand: &Stand, address: &str, talks: Vec<Talk>, turns: usize) -> Vec<Talk> {
    let talk = |(n, mut talk): (usize, Talk)| {
        let mut random = fastrand::Rng::with_seed(stand.seed + n as u64);
        for turn in 0..turns {
            let words = format!("Talk <{n}> turn {turn}: the words of it.");
            let answer = talk.ask(address, &words);
            stand.must(answer.status == 200, Breach::Wrong, || {
                format!("talk {n} turn {turn}: {} {:.200}", answer.status, answer.text())
            });
            std::thread::sleep(Duration::from_millis(random.u64(..20)));
        }
        talk
    };
    std::thread::scope(|scope| {
        let talk = &talk;
        let running: Vec<_> =
            talks.into_iter().enumerate().map(|it| scope.spawn(move || talk(it))).collect();
        running.into_iter().map(|it| it.join().expect("a talk")).collect()
    })
}

fn many(stand: &Stand) {
    let (places, count, turns) = (8, stand.size(32, 100, 300) as usize, 4);
    stand.tried(count as u64);
    let server = provider();
    let config = format!("gateway.conversations = {places}\n");
    let gateway = stand.serve(&server.url(), &config);
    let talks = (0..count).map(|n| Talk::new(Some(&format!("talk-{n}")))).collect();
    let talks = side_by_side(stand, &gateway.address, talks, turns);
    let mut forgotten = 0;
    for talk in &talks {
        let names: BTreeSet<&String> = talk.sessions_named.iter().collect();
        forgotten += usize::from(names.len() != 1);
    }
    stand.must(forgotten == 0, Breach::Lost, || {
        format!("{forgotten} of {count} conversations got more than one session; {places} fit")
    });
    gateway.end();
    let kept = stand.kept_sessions().len();
    stand.must(kept == count, Breach::Wrong, || format!("{count} conversations, {kept} sessions"));
    stand.must_be_kept(talks.iter().take(12).flat_map(|talk| &talk.acknowledged));
    stand.must_be_sound();
    let broken = server.broken();
    stand.must(broken.is_empty(), Breach::Wrong, || format!("unlawful: {}", broken[0].1));
}

/// No conversation hears another one.
fn one_name(stand: &Stand) {
    let count = stand.size(10, 40, 100) as usize;
    stand.tried(count as u64);
    let server = provider();
    let gateway = stand.serve(&server.url(), "");
    let talks = (0..count).map(|_| Talk::new(Some("shared"))).collect();
    let talks = side_by_side(stand, &gateway.address, talks, 4);
    for seen in server.requests() {
        let body = seen.body.to_string();
        let mixed = (0..count).filter(|n| body.contains(&format!("Talk <{n}> "))).count();
        stand.must(mixed <= 1, Breach::Escaped, || format!("{mixed} conversations in one request"));
    }
    gateway.end();
    stand.must_be_kept(talks.iter().flat_map(|talk| &talk.acknowledged));
    stand.must_be_sound();
}

fn forged(stand: &Stand) {
    let server = provider();
    let gateway = stand.serve(&server.url(), "");
    let long = "x".repeat(5_000);
    let names = [
        "../../../victims/private.txt",
        "..",
        "/etc/passwd",
        "a/../../b",
        "..\\..\\a",
        "%2e%2e%2f%2e%2e",
        "a\tb",
        "con:",
        "...",
        ".",
        "",
        " ",
        "~/.ssh/id_ed25519",
        "a;rm -rf x",
        "$(id)",
        "a\u{1b}[31m",
        "ä",
        "*",
        ".hidden",
        "-rf",
        "a:b",
        &long,
    ];
    let before = stand.snapshot();
    for name in names {
        for header in
            ["x-ctxhost-session", "x-session-id", "session_id", "x-claude-code-session-id"]
        {
            stand.tried(1);
            let mut messages = vec![user("Begin.")];
            for _ in 0..2 {
                let answer = http::ask(
                    &gateway.address,
                    "POST",
                    CHAT,
                    &[(header, name)],
                    &chat(&messages, false),
                );
                stand.must(answer.status != 0, Breach::Wrong, || {
                    format!("{header}: {name:?}: no answer")
                });
                messages.push(serde_json::json!({ "role": "assistant", "content": "Noted." }));
                messages.push(user("Go on."));
            }
        }
    }
    gateway.must_answer("after forged names");
    gateway.end();
    stand.must_be_as(&before);
    // All that is written lies below the state folder.
    for below in ["", "home", "work"] {
        for entry in std::fs::read_dir(stand.path(below)).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let known = ["home", "state", "work", "victims", "ctxhost.toml", ".ssh", "config"];
            let is_known = known.contains(&name.as_str()) || name.starts_with("output-");
            stand.must(is_known, Breach::Escaped, || format!("{below}/{name} was made"));
        }
    }
    stand.must_be_sound();
}

fn same(stand: &Stand) {
    const TIMES: usize = 30;
    let server = provider();
    let gateway = stand.serve(&server.url(), "");
    let mut talk = Talk::new(Some("once"));
    for round in 0..stand.size(3, 10, 50) {
        stand.tried(TIMES as u64);
        talk.say(&format!("The words of round {round}."));
        let talks: Vec<Talk> = std::thread::scope(|scope| {
            let ask = || {
                let mut own = talk.clone();
                let answer = own.ask_again(&gateway.address);
                stand.must(answer.status == 200, Breach::Wrong, || {
                    format!("round {round}: {} {:.200}", answer.status, answer.text())
                });
                own
            };
            let asked: Vec<_> = (0..TIMES).map(|_| scope.spawn(ask)).collect();
            asked.into_iter().map(|it| it.join().expect("a talk")).collect()
        });
        talk = talks.into_iter().next().expect("a talk");
    }
    // Whoever comes after all of them still goes on with one conversation.
    for turn in 0..3 {
        talk.ask(&gateway.address, &format!("Alone again, {turn}."));
    }
    gateway.end();
    stand.must_be_kept(&talk.acknowledged);
    stand.must_be_sound();
}

/// The beginning of a stream, and so many of its pieces.
fn stream(pieces: u64) -> Vec<Act> {
    let head =
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    let piece = "data: {\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"word \"}}]}\n\n";
    let piece = format!("{:x}\r\n{piece}\r\n", piece.len());
    let mut acts = vec![Act::Send(head.to_vec())];
    for _ in 0..pieces {
        acts.push(Act::Send(piece.clone().into_bytes()));
        acts.push(Act::Pause(Duration::from_millis(20)));
    }
    acts.push(Act::Hang(Duration::from_secs(20)));
    acts
}

fn aborted(stand: &Stand) {
    let clients = stand.size(40, 200, 1_000);
    stand.tried(clients);
    let origin = Origin::start(|seen| {
        if seen.text().contains("\"stream\":true") {
            stream(200)
        } else {
            vec![Act::Send(crate::origin::decent("Noted."))]
        }
    });
    let gateway = stand.serve(&origin.url(), "");
    let mut random = stand.random();
    let waits: Vec<u64> = (0..clients).map(|_| random.u64(..600)).collect();
    std::thread::scope(|scope| {
        for (n, wait) in waits.into_iter().enumerate() {
            let address = gateway.address.clone();
            scope.spawn(move || {
                let Some(mut client) = http::connect(&address) else { return };
                let body = chat(&[user(&format!("Stream {n}."))], true);
                let _ = std::io::Write::write_all(
                    &mut client,
                    &http::request("POST", CHAT, &[], &body),
                );
                let _ = client.set_read_timeout(Some(Duration::from_millis(wait.max(1))));
                let _ = std::io::Read::read(&mut client, &mut [0; 512]);
            });
        }
    });
    let begun = Instant::now();
    let in_flight = || {
        let answer = http::ask(&gateway.address, "GET", "/metrics", &[], b"");
        let text = answer.text();
        let line = text.lines().find_map(|line| line.strip_prefix("ctxhost_in_flight "));
        line.and_then(|it| it.trim().parse::<f64>().ok())
    };
    while in_flight() != Some(0.0) && begun.elapsed() < Duration::from_secs(10) {
        std::thread::sleep(Duration::from_millis(100));
    }
    let left = in_flight();
    stand.must(left == Some(0.0), Breach::Unbounded, || {
        format!("{left:?} requests are still in flight 10 s after their clients went away")
    });
    gateway.must_answer("after aborted streams");
    gateway.end();
    origin.stop();
}
