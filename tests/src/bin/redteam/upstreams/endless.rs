//! Responses that are endless, enormous or missing.

use std::time::Duration;

use super::{ask, attack, event, head, liar, meets_lies, send, stream};
use crate::bodies::{CHAT, chat, gzip_of_zeros, user};
use crate::http;
use crate::origin::Act;
use crate::report::Breach;
use crate::run::Attack;
use crate::stand::Stand;

pub(super) fn attacks() -> Vec<Attack> {
    vec![
        attack("endless answers", "streams and lines without end", endless),
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
