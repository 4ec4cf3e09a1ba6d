//! Attacks with size: many messages, deep nesting, decompression bombs, many bodies at once.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::{FAIR, attack, provider};
use crate::bodies::{CHAT, chat, user, zstd};
use crate::gateway::Gateway;
use crate::http::{self, Answer};
use crate::origin::{Act, Origin, decent};
use crate::report::Breach;
use crate::run::Attack;
use crate::stand::Stand;

pub(super) fn attacks() -> Vec<Attack> {
    vec![
        attack("many messages", "a first request of tens of thousands of messages", many_messages),
        attack("deep JSON", "lists in lists, and other JSON that no parser likes", deep),
        attack("compression bombs", "small bodies that become gigabytes", bombs),
        attack("large bodies at once", "ten or twenty bodies of 60 MiB at the same time", at_once),
        attack("bodies cut short", "hundreds of bodies that end anywhere", cut_short),
    ]
}

/// A request of `count` messages, and how long the slowest of other clients waited meanwhile, in seconds.
fn many(stand: &Stand, address: &str, count: usize) -> (Answer, f64) {
    let body = conversation(count);
    stand.tried(1);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let others = scope.spawn(|| {
            let mut worst: f64 = 0.0;
            let mut n = 0;
            while !is_over.load(Ordering::SeqCst) {
                n += 1;
                let begun = Instant::now();
                let body = chat(&[user(&format!("Another client, {n}."))], false);
                http::ask(address, "POST", CHAT, &[], &body);
                worst = worst.max(begun.elapsed().as_secs_f64());
                std::thread::sleep(Duration::from_millis(20));
            }
            worst
        });
        let headers = [("content-type", "application/json"), ("connection", "close")];
        let bytes = http::request("POST", CHAT, &headers, &body);
        let answer = http::say(address, &bytes, Duration::from_secs(30));
        is_over.store(true, Ordering::SeqCst);
        (answer, others.join().expect("a time"))
    })
}

/// Four times as many messages may take four times the processor's time. Growth by the square takes sixteen times.
const MOST_GROWTH: f64 = 12.0;
/// What a ratio needs to mean anything, in ticks of 10 ms.
const LEAST_TICKS: u64 = 10;

/// The processor's time that a first request of `count` messages takes the gateway, in ticks of 10 ms.
fn work(stand: &Stand, gateway: &Gateway<'_>, count: usize) -> u64 {
    stand.tried(1);
    let before = gateway.ticks();
    let body = conversation(count);
    let answer = http::ask(&gateway.address, "POST", CHAT, &[], &body);
    stand.must(answer.status == 200, Breach::Wrong, || {
        format!("{count} messages get {}: {:.200}", answer.status, answer.text())
    });
    gateway.ticks() - before
}

/// Time of a clock tells nothing on a busy machine, and a floor below which it does not count would hide every square.
fn growth(stand: &Stand, gateway: &Gateway<'_>) {
    let mut count = 2_500;
    // What is done once, at the first request.
    work(stand, gateway, count - 2);
    let mut few = work(stand, gateway, count);
    while few < LEAST_TICKS && count < 40_000 {
        count *= 2;
        few = work(stand, gateway, count);
    }
    let many = work(stand, gateway, 4 * count);
    let growth = many as f64 / few.max(1) as f64;
    stand.must(growth < MOST_GROWTH, Breach::Unbounded, || {
        format!("{count} messages take {few}0 ms of the processor, four times as many {many}0 ms")
    });
}

/// A body of so many short messages, an odd number of them.
fn conversation(count: usize) -> Vec<u8> {
    let role = |n: usize| if n.is_multiple_of(2) { "user" } else { "assistant" };
    let message =
        |n| serde_json::json!({ "role": role(n), "content": format!("Message {n} of {count}.") });
    let messages: Vec<_> = (0..count | 1).map(message).collect();
    chat(&messages, false)
}

fn many_messages(stand: &Stand) {
    let server = provider();
    // Smaller than each of these conversations: growth is compared with the engine's work in all of them.
    let gateway = stand.serve(&server.url(), "[models.some-model]\nwindow_tokens = 20000\n");
    let count = stand.size(20_000, 40_000, 40_000) as usize;
    growth(stand, &gateway);
    let (answer, others) = many(stand, &gateway.address, count);
    stand.must(!answer.is_late, Breach::Unbounded, || {
        format!("{count} messages are not answered in 30 s")
    });
    stand.must(answer.is_late || answer.status == 200, Breach::Wrong, || {
        format!("{count} messages get {}: {:.200}", answer.status, answer.text())
    });
    stand.must(others < FAIR.as_secs_f64(), Breach::Unbounded, || {
        format!("another client waits {others:.1} s beside {count} messages")
    });
    // As many as have ever stopped all threads of a small machine.
    let worst = std::thread::scope(|scope| {
        let ask = || many(stand, &gateway.address, count / 4).1;
        let asked: Vec<_> = (0..4).map(|_| scope.spawn(ask)).collect();
        asked.into_iter().map(|it| it.join().expect("a time")).fold(0.0, f64::max)
    });
    stand.must(worst < FAIR.as_secs_f64(), Breach::Unbounded, || {
        format!("beside four of {} messages another client waits {worst:.1} s", count / 4)
    });
    gateway.must_take_at_most(700, "many messages");
    gateway.end();
}

fn deep(stand: &Stand) {
    let server = provider();
    let gateway = stand.serve(&server.url(), "");
    let nested = |open: &str, close: &str, times: usize| {
        format!("{}{}", open.repeat(times), close.repeat(times))
    };
    let with = |content: String| {
        format!("{{\"model\":\"m\",\"messages\":[{{\"role\":\"user\",\"content\":{content}}}]}}")
    };
    let cases = [
        ("lists in lists", with(nested("[", "]", 200_000))),
        ("objects in objects", with(format!("{}1{}", "{\"a\":".repeat(100_000), "}".repeat(100_000)))),
        ("an open end", "[".repeat(1_000_000)),
        ("a number of a million digits", with("9".repeat(1_000_000))),
        ("60,000 keys", with(format!("{{{}\"z\":1}}", (0..60_000).map(|n| format!("\"k{n}\":1,")).collect::<String>()))),
        ("the same key again", format!("{{{}\"model\":\"m\"}}", "\"messages\":[],".repeat(100_000))),
        ("lone surrogates", with("\"\\ud800\\udfff\\ud800\"".to_owned())),
        ("no object", "7".to_owned()),
        ("null everywhere", "{\"model\":null,\"messages\":[null,{\"role\":null,\"content\":null}]}".to_owned()),
        ("strange types", "{\"model\":[1],\"messages\":{\"a\":1},\"stream\":\"yes\",\"max_tokens\":-1e400}".to_owned()),
        ("huge limits", with("\"Short.\"".to_owned()).replacen('{', "{\"max_tokens\":18446744073709551615,\"max_output_tokens\":18446744073709551615,\"target_tokens\":18446744073709551615,\"window_tokens\":1000000000,", 1)),
        ("a huge window", with("\"Short.\"".to_owned()).replacen('{', "{\"window_tokens\":18446744073709551615,\"target_tokens\":9,", 1)),
        ("calls without ids", "{\"model\":\"m\",\"messages\":[{\"role\":\"assistant\",\"tool_calls\":[{}]},{\"role\":\"tool\",\"content\":[{}]}]}".to_owned()),
    ];
    for door in
        [CHAT, "/v1/messages", "/v1/responses", "/v1beta/models/m:generateContent", "/v1/compress"]
    {
        for (name, body) in &cases {
            stand.tried(1);
            let body = match door {
                "/v1/responses" => body.replace("\"messages\"", "\"input\""),
                _ if door.starts_with("/v1beta") => body.replace("\"messages\"", "\"contents\""),
                _ => body.clone(),
            };
            let answer = http::ask(&gateway.address, "POST", door, &[], body.as_bytes());
            stand.must(answer.status != 0 && !answer.is_late, Breach::Wrong, || {
                format!("{name} at {door}: no answer")
            });
        }
    }
    gateway.must_answer("after deep JSON");
    gateway.must_take_at_most(700, "deep JSON");
    gateway.end();
}

/// A chat body with one text of so many bytes, compressed.
fn zstd_chat(bytes: usize) -> Vec<u8> {
    let head = b"{\"model\":\"some-model\",\"messages\":[{\"role\":\"user\",\"content\":\"";
    zstd(&[(head, 1), (b"a", bytes), (b"\"}],\"max_tokens\":100}", 1)])
}

fn bombs(stand: &Stand) {
    let origin = Origin::start(|_| vec![Act::Send(decent("Noted."))]);
    let gateway = stand.serve(&origin.url(), "");
    // A small one is taken, so that it is their size for which the others are refused.
    let headers = [("content-encoding", "zstd")];
    let small = http::ask(&gateway.address, "POST", CHAT, &headers, &zstd_chat(1_000));
    let is_heard = small.header("x-ctxhost-engine").is_some_and(|engine| engine != "none");
    stand.must(small.status == 200 && is_heard, Breach::Wrong, || {
        format!("a small zstd body gets {} {:.200}", small.status, small.text())
    });
    let before = gateway.peak_mib();
    for (name, coding, body) in [
        ("zstd of 4 GB", "zstd", zstd_chat(4 << 30)),
        ("zstd of 70 MB", "zstd", zstd_chat(70 << 20)),
        ("zstd in zstd", "zstd, zstd", zstd(&[(&zstd_chat(1 << 30), 1)])),
        ("gzip of 256 MB", "gzip", crate::bodies::gzip_of_zeros(1 << 28)),
        ("no zstd at all", "zstd", b"{\"messages\":[]}".to_vec()),
        ("zstd cut short", "zstd", zstd_chat(1 << 20)[..40].to_vec()),
        ("a coding that is none", "strange", zstd_chat(10)),
    ] {
        stand.tried(1);
        let headers = [("content-encoding", coding)];
        let answer = http::ask(&gateway.address, "POST", CHAT, &headers, &body);
        stand.must(answer.status != 0 && !answer.is_late, Breach::Wrong, || {
            format!("{name}: no answer")
        });
    }
    stand.must(before < 200, Breach::Wrong, || format!("{before} MiB before anything was sent"));
    gateway.must_take_at_most(450, "compression bombs");
    gateway.must_answer("after bombs");
    gateway.end();
    origin.stop();
}

/// What bodies may take, however many come: `gateway.max_bodies_bytes`, and nine times that while they are heard for the first time,
/// as the documents tell.
const BODIES_MIB: u64 = 256 * 9 + 100;

fn at_once(stand: &Stand) {
    // One that only counts bytes: what is slow or large has to be the gateway.
    let origin = Origin::start(|_| vec![Act::Send(decent("Noted."))]);
    let gateway = stand.serve(&origin.url(), "");
    let body = zstd_chat(60 << 20);
    let plain = stand.size(0, 4, 20);
    let clients = stand.size(10, 20, 20);
    stand.tried(clients + plain);
    let large = if plain > 0 { chat(&[user(&"b".repeat(60 << 20))], false) } else { Vec::new() };
    let ask = |coding: &'static str, body: &[u8]| {
        let headers = [("content-encoding", coding), ("content-type", "application/json")];
        let bytes = http::request("POST", CHAT, &headers, body);
        http::say(&gateway.address, &bytes, Duration::from_secs(40)).status
    };
    let statuses: Vec<u16> = std::thread::scope(|scope| {
        let compressed = (0..clients).map(|_| scope.spawn(|| ask("zstd", &body)));
        let compressed: Vec<_> = compressed.collect();
        let plainly = (0..plain).map(|_| scope.spawn(|| ask("identity", &large)));
        let plainly: Vec<_> = plainly.collect();
        compressed.into_iter().chain(plainly).map(|it| it.join().expect("a status")).collect()
    });
    let silent = statuses.iter().filter(|status| **status == 0).count();
    stand.must(silent == 0, Breach::Wrong, || format!("{silent} of {clients} get no answer"));
    gateway.must_take_at_most(BODIES_MIB, &format!("{clients} bodies of 60 MiB"));
    gateway.must_answer("after large bodies");
    gateway.end();
    origin.stop();
}

fn cut_short(stand: &Stand) {
    let times = stand.size(150, 1_000, 10_000);
    stand.tried(times);
    let server = provider();
    let gateway = stand.serve(&server.url(), "");
    let body = chat(&[user("A text with é and \" in it.")], true);
    let mut random = stand.random();
    for _ in 0..times {
        let mut bytes = body.clone();
        match random.u8(0..3) {
            0 => bytes.truncate(random.usize(1..bytes.len())),
            1 => {
                let at = random.usize(..bytes.len());
                bytes[at] = random.u8(..);
            }
            _ => {
                let (at, to) = (random.usize(..bytes.len()), random.usize(..bytes.len()));
                bytes.swap(at, to);
            }
        }
        let answer = http::ask(&gateway.address, "POST", CHAT, &[], &bytes);
        stand.must(answer.status != 0, Breach::Wrong, || {
            format!("no answer to {:?}", String::from_utf8_lossy(&bytes))
        });
    }
    gateway.must_answer("after damaged bodies");
    gateway.end();
}
