//! Attacks on HTTP: request smuggling, broken chunks, header floods, slow and half-closed clients.

use std::io::Write as _;
use std::time::{Duration, Instant};

use super::{FAIR, HASTY, attack};
use crate::bodies::{CHAT, chat, user};
use crate::http::{self, PATIENCE};
use crate::origin::{Act, Origin, decent};
use crate::report::Breach;
use crate::run::Attack;
use crate::stand::Stand;

pub(super) fn attacks() -> Vec<Attack> {
    vec![
        attack(
            "smuggling",
            "hides a second request behind lengths, chunks and headers that disagree",
            smuggling,
        ),
        attack("pipelining", "sends many requests before it reads an answer", pipelining),
        attack(
            "header floods",
            "headers without end: many, long ones, and ones without a line end",
            floods,
        ),
        attack("slow clients", "300 connections that say a byte now and then", slow),
        attack(
            "half-closed",
            "closes its side behind the request, and waits for the answer",
            half_closed,
        ),
        attack("noise", "random bytes, TLS and HTTP/2 beginnings on the port", noise),
    ]
}

/// Heads and bodies of which a second request must not come out. `SMUGGLED` stands for that request.
const CASES: [(&str, &str); 22] = [
    (
        "both lengths",
        "POST /v1/files HTTP/1.1\r\nhost: localhost\r\ncontent-length: 6\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\nSMUGGLED",
    ),
    (
        "both lengths, turned",
        "POST /v1/files HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\ncontent-length: 4\r\n\r\n5c\r\nSMUGGLED\r\n0\r\n\r\n",
    ),
    (
        "two lengths",
        "POST /v1/files HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\ncontent-length: 60\r\n\r\nSMUGGLED",
    ),
    (
        "a list of lengths",
        "POST /v1/files HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0, 60\r\n\r\nSMUGGLED",
    ),
    (
        "a signed length",
        "POST /v1/files HTTP/1.1\r\nhost: localhost\r\ncontent-length: +0\r\n\r\nSMUGGLED",
    ),
    (
        "a negative length",
        "POST /v1/files HTTP/1.1\r\nhost: localhost\r\ncontent-length: -1\r\n\r\nSMUGGLED",
    ),
    (
        "a huge length",
        "POST /v1/files HTTP/1.1\r\nhost: localhost\r\ncontent-length: 18446744073709551616\r\n\r\nSMUGGLED",
    ),
    (
        "a length in hex",
        "POST /v1/files HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0x0\r\n\r\nSMUGGLED",
    ),
    (
        "identity and chunked",
        "POST /v1/files HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked, identity\r\n\r\n0\r\n\r\nSMUGGLED",
    ),
    (
        "xchunked",
        "POST /v1/files HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: xchunked\r\n\r\n0\r\n\r\nSMUGGLED",
    ),
    (
        "a space before the colon",
        "POST /v1/files HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding : chunked\r\n\r\n0\r\n\r\nSMUGGLED",
    ),
    (
        "a folded header",
        "POST /v1/files HTTP/1.1\r\nhost: localhost\r\nx-a: b\r\n transfer-encoding: chunked\r\ncontent-length: 0\r\n\r\nSMUGGLED",
    ),
    (
        "a negative chunk",
        "POST /v1/files HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n-1\r\n\r\nSMUGGLED",
    ),
    (
        "a chunk of 0x0",
        "POST /v1/files HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n0x0\r\n\r\nSMUGGLED",
    ),
    (
        "a chunk beyond 64 bits",
        "POST /v1/files HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\nfffffffffffffffff\r\n\r\nSMUGGLED",
    ),
    (
        "a chunk without its end",
        "POST /v1/files HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n1\r\naaa\r\n0\r\n\r\nSMUGGLED",
    ),
    (
        "an endless chunk extension",
        "POST /v1/files HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n0;a=\n0\r\n\r\nSMUGGLED",
    ),
    ("two hosts", "GET /v1/files HTTP/1.1\r\nhost: localhost\r\nhost: evil.example\r\n\r\n"),
    (
        "another host in the line",
        "GET http://evil.example/smuggled HTTP/1.1\r\nhost: localhost\r\n\r\n",
    ),
    ("TRACE", "TRACE /smuggled HTTP/1.1\r\nhost: localhost\r\n\r\n"),
    (
        "CONNECT",
        "CONNECT localhost:1 HTTP/1.1\r\nhost: localhost\r\ncontent-length: 92\r\n\r\nSMUGGLED",
    ),
    ("no host", "GET /smuggled HTTP/1.1\r\n\r\n"),
];

const SMUGGLED: &str = "GET /smuggled HTTP/1.1\r\nhost: localhost\r\nx-a: bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb\r\n\r\n";

fn smuggling(stand: &Stand) {
    for (name, text) in CASES {
        stand.tried(1);
        let origin = Origin::start(|_| vec![Act::Send(decent("x"))]);
        let gateway = stand.serve(&origin.url(), HASTY);
        let bytes = text.replace("SMUGGLED", SMUGGLED).into_bytes();
        let came = http::say_and_read_all(&gateway.address, &bytes, Duration::from_millis(900));
        let came = String::from_utf8_lossy(&came).into_owned();
        let smuggled = origin.seen().iter().filter(|seen| seen.head.contains("/smuggled")).count();
        stand.must(smuggled == 0, Breach::Escaped, || {
            format!("{name}: the upstream gets the smuggled request; the client {came:.60?}")
        });
        let doubled = origin.seen().iter().any(|seen| {
            let head = seen.head.to_ascii_lowercase();
            let count = |name: &str| head.lines().filter(|line| line.starts_with(name)).count();
            count("content-length:") + count("transfer-encoding:") > 1 || count("host:") > 1
        });
        stand.must(!doubled, Breach::Escaped, || {
            format!("{name}: what the upstream gets can be read in two ways")
        });
        gateway.must_answer(name);
        gateway.end();
        origin.stop();
    }
}

fn pipelining(stand: &Stand) {
    const TIMES: usize = 50;
    stand.tried(TIMES as u64);
    let origin = Origin::start(|seen| {
        let path = seen.head.split(' ').nth(1).unwrap_or_default().to_owned();
        vec![Act::Send(crate::origin::whole(200, "text/plain", format!("[{path}]").as_bytes()))]
    });
    let gateway = stand.serve(&origin.url(), "");
    let one = |n: usize| http::request("GET", &format!("/v1/files/{n}"), &[], b"");
    let bytes: Vec<u8> = (0..TIMES).flat_map(one).collect();
    let came = http::say_and_read_all(&gateway.address, &bytes, Duration::from_secs(3));
    let came = String::from_utf8_lossy(&came).into_owned();
    let answers: Vec<String> =
        came.split('[').skip(1).filter_map(|it| Some(it.split_once(']')?.0.to_owned())).collect();
    // A server may close behind any answer; those that came are those of the first requests, in order.
    let in_order = answers.iter().enumerate().all(|(n, path)| path.ends_with(&format!("/{n}")));
    stand.must(in_order && !answers.is_empty(), Breach::Wrong, || format!("{answers:?}"));
    gateway.must_answer("after pipelining");
    gateway.end();
    origin.stop();
}

fn floods(stand: &Stand) {
    let origin = Origin::start(|_| vec![Act::Send(decent("x"))]);
    let gateway = stand.serve(&origin.url(), HASTY);
    let head = "GET /v1/files HTTP/1.1\r\nhost: localhost\r\n";
    let many: String = (0..20_000).map(|n| format!("x-{n}: y\r\n")).collect();
    let long = format!("x-long: {}\r\n", "y".repeat(32 << 20));
    let path = format!("GET /{} HTTP/1.1\r\nhost: localhost\r\n", "z".repeat(8 << 20));
    for (name, text) in [
        ("20,000 headers", format!("{head}{many}\r\n")),
        ("a header of 32 MB", format!("{head}{long}\r\n")),
        ("a path of 8 MB", format!("{path}\r\n")),
        ("a header without an end", format!("{head}x: {}", "y".repeat(32 << 20))),
    ] {
        stand.tried(1);
        let answer = http::say(&gateway.address, text.as_bytes(), PATIENCE);
        stand.must(!answer.is_late, Breach::Unbounded, || format!("{name}: no answer in 30 s"));
        stand.must(answer.status != 200, Breach::Wrong, || format!("{name}: taken"));
    }
    stand.must(origin.count() == 0, Breach::Escaped, || "a flood went on upstream".to_owned());
    gateway.must_take_at_most(200, "floods of headers");
    gateway.must_answer("after floods");
    gateway.end();
    origin.stop();
}

fn slow(stand: &Stand) {
    const CLIENTS: usize = 300;
    stand.tried(CLIENTS as u64);
    let origin = Origin::start(|_| vec![Act::Send(decent("x"))]);
    let gateway = stand.serve(&origin.url(), HASTY);
    let beginnings: [&[u8]; 4] = [
        b"",
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\nx: ",
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100000\r\n\r\n{",
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n",
    ];
    let mut clients: Vec<_> =
        (0..CLIENTS).filter_map(|_| http::connect(&gateway.address)).collect();
    for (at, client) in clients.iter_mut().enumerate() {
        let _ = client.write_all(beginnings[at % beginnings.len()]);
    }
    let begun = Instant::now();
    gateway.must_answer("beside 300 slow clients");
    stand.must(begun.elapsed() < FAIR, Breach::Unbounded, || {
        format!("a decent client waits {:.1} s", begun.elapsed().as_secs_f64())
    });
    // A byte each 100 ms, for longer than a client may take for its headers and at fewer bytes than a body has to bring.
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(12) && !clients.is_empty() {
        clients.retain_mut(|client| client.write_all(b"y").is_ok());
        std::thread::sleep(Duration::from_millis(100));
    }
    stand.must(clients.is_empty(), Breach::Unbounded, || {
        format!("{} slow clients still hold a place after 12 s; the limit is 0.5 s", clients.len())
    });
    gateway.must_take_at_most(200, "300 slow clients");
    gateway.end();
    origin.stop();
}

fn half_closed(stand: &Stand) {
    stand.tried(1);
    let origin = Origin::start(|_| {
        vec![Act::Pause(Duration::from_millis(200)), Act::Send(decent("For the half-closed."))]
    });
    let gateway = stand.serve(&origin.url(), "");
    let mut client = http::connect(&gateway.address).expect("a connection");
    let body = chat(&[user("x")], false);
    client.write_all(&http::request("POST", CHAT, &[], &body)).expect("sent");
    client.shutdown(std::net::Shutdown::Write).expect("half closed");
    let answer = http::read_answer(&mut client, PATIENCE);
    // Either is right: to answer, or to take it for gone. What must not be is a connection that stays.
    stand.must(!answer.is_late, Breach::Unbounded, || "the connection stays".to_owned());
    gateway.must_answer("after the half-closed");
    gateway.end();
    origin.stop();
}

fn noise(stand: &Stand) {
    let times = stand.size(200, 2_000, 20_000);
    stand.tried(times);
    let origin = Origin::start(|_| vec![Act::Send(decent("x"))]);
    let gateway = stand.serve(&origin.url(), HASTY);
    let mut random = stand.random();
    for n in 0..times {
        let Some(mut client) = http::connect(&gateway.address) else { continue };
        let mut bytes: Vec<u8> = (0..random.usize(1..400)).map(|_| random.u8(..)).collect();
        let beginnings: [&[u8]; 4] = [
            b"",
            b"\x16\x03\x01\x02\x00\x01",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            b"GET / HTTP/1.1\r\n",
        ];
        bytes.splice(0..0, beginnings[n as usize % 4].iter().copied());
        let _ = client.write_all(&bytes);
    }
    stand.must(origin.count() == 0, Breach::Escaped, || "noise went on upstream".to_owned());
    gateway.must_answer("after noise");
    gateway.must_take_at_most(200, "noise");
    gateway.end();
    origin.stop();
}
