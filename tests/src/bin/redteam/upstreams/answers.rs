//! Responses and streams with broken lengths, headers and ends.

use std::time::Duration;

use super::{attack, call, event, head, meets_lies, send, stream};
use crate::http::Answer;
use crate::origin::{Act, decent, whole};
use crate::report::Breach;
use crate::run::Attack;
use crate::stand::Stand;

pub(super) fn attacks() -> Vec<Attack> {
    vec![
        attack("lengths", "lengths that are too long, too short, doubled or none", lengths),
        attack("broken answers", "HTML, resets, strange bytes and heads that are none", broken),
        attack(
            "broken streams",
            "streams without an end, with torn events and doubled ids",
            streams,
        ),
    ]
}

/// What a client must not take for a whole answer.
fn is_no_whole(stand: &Stand, name: &str, answer: &Answer) {
    let looks_whole =
        answer.status == 200 && answer.is_whole && answer.header("content-length").is_some();
    stand.must(!looks_whole, Breach::Wrong, || {
        format!("{name}: the client gets 200 and a whole body of {} bytes", answer.body.len())
    });
}

fn lengths(stand: &Stand) {
    let body = b"{\"a\":1}";
    let torn = vec![
        ("a length that is too long", send(&[&head("content-length: 1000\r\n"), body])),
        (
            "a chunk that does not come",
            send(&[&head("transfer-encoding: chunked\r\n"), b"ff\r\n", body]),
        ),
        (
            "chunks without an end",
            send(&[&head("transfer-encoding: chunked\r\n"), b"7\r\n", body, b"\r\n"]),
        ),
        ("a chunk of no number", send(&[&head("transfer-encoding: chunked\r\n"), b"zz\r\n", body])),
    ];
    meets_lies(stand, torn, |name, answer| is_no_whole(stand, name, answer));
    let doubled = vec![
        ("a length that is too short", send(&[&head("content-length: 3\r\n"), body])),
        ("two lengths", send(&[&head("content-length: 3\r\ncontent-length: 7\r\n"), body])),
        (
            "a length beside chunks",
            send(&[
                &head("content-length: 3\r\ntransfer-encoding: chunked\r\n"),
                b"7\r\n",
                body,
                b"\r\n0\r\n\r\n",
            ]),
        ),
        ("a negative length", send(&[&head("content-length: -1\r\n"), body])),
    ];
    meets_lies(stand, doubled, |_, _| {});
}

fn broken(stand: &Stand) {
    let many: String = (0..5_000).map(|n| format!("x-{n}: y\r\n")).collect();
    let informational = "HTTP/1.1 100 Continue\r\n\r\n".repeat(2_000);
    let lies = vec![
        ("HTML", vec![Act::Send(whole(200, "text/html", b"<html>Sign in to the hotel</html>"))]),
        ("no HTTP", send(&[b"SSH-2.0-OpenSSH\r\n\r\n"])),
        ("a status that is none", send(&[b"HTTP/1.1 99999 No\r\n\r\n"])),
        ("a reset at once", vec![Act::Reset]),
        (
            "a reset in the body",
            vec![
                Act::Send(head("content-length: 9999\r\n")),
                Act::Send(vec![b' '; 500]),
                Act::Reset,
            ],
        ),
        ("nothing", vec![Act::Close]),
        ("no UTF-8", vec![Act::Send(whole(200, "application/json", b"{\"a\":\"\xff\xfe\xc0\"}"))]),
        ("5,000 headers", send(&[&head(&many), b"{}"])),
        ("a header of 10 MB", send(&[&head(&format!("x: {}\r\n", "y".repeat(10 << 20))), b"{}"])),
        ("2,000 times Continue", send(&[informational.as_bytes(), &decent("x")])),
        (
            "an answer without choices",
            vec![Act::Send(whole(200, "application/json", b"{\"choices\":[]}"))],
        ),
        ("null", vec![Act::Send(whole(200, "application/json", b"null"))]),
        (
            "deep JSON",
            vec![Act::Send(whole(200, "application/json", "[".repeat(100_000).as_bytes()))],
        ),
        ("204", send(&[b"HTTP/1.1 204 No Content\r\n\r\n"])),
        (
            "101",
            send(&[
                b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n",
            ]),
        ),
        ("a line end in a header", send(&[&head("x-a: b\r\n\tc\r\nx-b: d\x00e\r\n"), b"{}"])),
    ];
    let some = stand.size(8, 99, 99) as usize;
    meets_lies(stand, lies.into_iter().take(some).collect(), |_, _| {});
}

fn streams(stand: &Stand) {
    let word = event("word");
    let lies = vec![
        ("no end", send(&[&stream(&[&word, &word])])),
        (
            "doubled ids",
            send(&[&stream(&[&call(0, "a"), &call(1, "a"), &call(0, "a"), b"data: [DONE]\n\n"])]),
        ),
        ("no JSON", send(&[&stream(&[&word, b"data: {\"a\":\n\n", b"data: [DONE]\n\n"])])),
        ("no UTF-8", send(&[&stream(&[&word, b"data: \xff\xfe\n\n", b"data: [DONE]\n\n"])])),
        ("torn event", send(&[&stream(&[&word, b"data: {\"choices\""])])),
        ("after its end", send(&[&stream(&[b"data: [DONE]\n\n", &word, &word])])),
        ("an error in it", send(&[&stream(&[&word, b"data: {\"error\":{\"message\":7}}\n\n"])])),
        (
            "a reset in it",
            vec![Act::Send(stream(&[&word])), Act::Pause(Duration::from_millis(100)), Act::Reset],
        ),
        (
            "a huge index",
            send(&[&stream(&[
                &call(u64::MAX, "a"),
                &call(4_000_000_000, "b"),
                b"data: [DONE]\n\n",
            ])]),
        ),
        ("only comments", send(&[&stream(&[&b": ping\n\n".repeat(50_000)])])),
        ("no line ends", send(&[&stream(&[b"data: x\rdata: y\r\rdata: [DONE]\r\r"])])),
    ];
    let some = stand.size(6, 99, 99) as usize;
    meets_lies(stand, lies.into_iter().take(some).collect(), |_, _| {});
}
