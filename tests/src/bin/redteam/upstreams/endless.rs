//! Responses that are endless, enormous or missing.

use std::time::Duration;

use super::{ask, attack, event, head, liar, meets_lies, send, stream};
use crate::bodies::{CHAT, chat, gzip_of_zeros, user};
use crate::http;
use crate::origin::{Act, Origin};
use crate::report::Breach;
use crate::run::Attack;
use crate::stand::Stand;

/// As long as a command may take over an answer without an end; the limits of bytes come first.
const ENDLESS: Duration = Duration::from_secs(45);

pub(super) fn attacks() -> Vec<Attack> {
    vec![
        attack("endless answers", "streams and lines without end", endless),
        attack("a model without an end", "an answer to `chat` that never ends", commands),
        attack("bombs", "answers that are a thousand times as large as they came", bombs),
        attack(
            "silence",
            "an upstream that says nothing, and a gateway that is told to end",
            silence,
        ),
    ]
}

fn endless(stand: &Stand) {
    let mib = stand.size(64, 256, 1_024);
    let piece = event(&"word ".repeat(13_000));
    let cases: [(&str, Vec<u8>, Vec<u8>); 4] = [
        ("a stream", stream(&[&event("begin")]), piece),
        ("one line of a stream", stream(&[b"data: "]), vec![b'x'; 65_536]),
        ("a body", head("connection: close\r\n"), vec![b' '; 65_536]),
        (
            "one text",
            [head("connection: close\r\n"), b"{\"choices\":[{\"message\":{\"content\":\"".to_vec()]
                .concat(),
            vec![b'x'; 65_536],
        ),
    ];
    for (name, begin, piece) in cases {
        for streams in [true, false] {
            stand.tried(1);
            let times = (mib << 20) / piece.len() as u64;
            let origin =
                liar(vec![Act::Send(begin.clone()), Act::Repeat(piece.clone(), times), Act::Close]);
            let gateway = stand.serve(&origin.url(), "");
            let answer = ask(&gateway, streams);
            // As much as was sent has to come, or an error: the gateway neither hangs nor keeps all of it.
            let is_told = answer.is_late || answer.status != 200 || !answer.body.is_empty();
            stand.must(is_told, Breach::Wrong, || format!("{name}: an empty 200"));
            let most = 250;
            gateway.must_take_at_most(most, &format!("{name} of {mib} MiB"));
            gateway.must_answer(name);
            gateway.end();
            origin.stop();
        }
    }
    // Nobody reads: the upstream has to be held back.
    stand.tried(1);
    let origin = liar(vec![
        Act::Send(stream(&[&event("begin")])),
        Act::Repeat(event(&"word ".repeat(13_000)), 40_000),
    ]);
    let gateway = stand.serve(&origin.url(), "");
    let mut client = http::connect(&gateway.address).expect("a connection");
    let body = chat(&[user("LIE to me.")], true);
    let _ = std::io::Write::write_all(&mut client, &http::request("POST", CHAT, &[], &body));
    std::thread::sleep(Duration::from_secs(3));
    let taken = origin.sent() >> 20;
    stand
        .must(taken < 64, Breach::Unbounded, || format!("{taken} MiB are taken that nobody reads"));
    gateway.must_take_at_most(200, "a stream that nobody reads");
    drop(client);
    gateway.must_answer("after the stream that nobody reads");
    gateway.end();
    origin.stop();
}

/// What `chat` may hold of an answer without an end: the limits of an answer and of a stream, and what it takes
/// itself.
const COMMAND_MIB: u64 = 700;

/// A command that asks a model ends with an error.
fn commands(stand: &Stand) {
    let piece = event(&"word ".repeat(13_000));
    let body = head("connection: close\r\n");
    let begin = b"{\"choices\":[{\"message\":{\"role\":\"assistant\",\"content\":\"".to_vec();
    let pieces = stand.size(1 << 13, 1 << 15, 1 << 16);
    let answers = [
        ("a stream", vec![Act::Send(stream(&[&event("begin")])), Act::Repeat(piece, pieces)]),
        (
            "a body",
            vec![Act::Send([body, begin].concat()), Act::Repeat(vec![b'x'; 65_536], pieces)],
        ),
    ];
    for (name, acts) in answers {
        stand.tried(1);
        let origin = Origin::start(move |_| acts.clone());
        let config = format!(
            "agent.model = \"a/gpt-4.1\"\n\
             [providers.a]\ndialect = \"openai-chat\"\nbase_url = \"{}\"\nproxy = \"none\"\n\
             [models.\"a/gpt-4.1\"]\nwindow_tokens = 32000\n",
            origin.url()
        );
        std::fs::write(stand.path("work/ctxhost.toml"), config).expect("a config");
        let session = stand.path(&format!("work/{}.jsonl", name.replace(' ', "-")));
        let session = session.display().to_string();
        let mut command = stand.command(&["chat", "--session", &session, "-p", "Say something."]);
        command.env("OPENAI_API_KEY", "none");
        let ran = stand.run(&mut command, "chat", ENDLESS);
        stand.must(ran.code.is_none_or(|code| code != 0), Breach::Wrong, || {
            format!("{name}: `chat` takes it for a whole answer")
        });
        stand.must(ran.is_late || !ran.err.is_empty(), Breach::Wrong, || {
            format!("{name}: `chat` fails without a word")
        });
        stand.must(ran.peak_mib <= COMMAND_MIB, Breach::Unbounded, || {
            format!("{name}: `chat` takes {} MiB", ran.peak_mib)
        });
        origin.stop();
    }
}

fn bombs(stand: &Stand) {
    let bomb = gzip_of_zeros(stand.size(1 << 28, 1 << 30, 1 << 30) as usize);
    let lies = ["gzip", "br", "zstd", "gzip, gzip"].map(|coding| {
        let head =
            head(&format!("content-encoding: {coding}\r\ncontent-length: {}\r\n", bomb.len()));
        (coding, send(&[&head, &bomb]))
    });
    meets_lies(stand, lies.into(), |_, _| {});
}

fn silence(stand: &Stand) {
    for (name, acts) in [
        ("before the head", vec![Act::Hang(Duration::from_secs(60))]),
        (
            "in the head",
            vec![Act::Send(b"HTTP/1.1 200 OK\r\nx: ".to_vec()), Act::Hang(Duration::from_secs(60))],
        ),
        (
            "in a stream",
            vec![Act::Send(stream(&[&event("begin")])), Act::Hang(Duration::from_secs(60))],
        ),
    ] {
        stand.tried(1);
        let origin = liar(acts);
        let gateway = stand.serve(&origin.url(), "");
        let mut client = http::connect(&gateway.address).expect("a connection");
        let body = chat(&[user("LIE to me.")], true);
        let _ = std::io::Write::write_all(&mut client, &http::request("POST", CHAT, &[], &body));
        gateway.must_answer(name);
        // It is told to end while one still waits; `end` holds it to its time.
        gateway.end();
        origin.stop();
    }
}
