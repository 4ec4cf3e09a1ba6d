//! Upstreams that lie: about lengths, ends, sizes, windows and where else to ask.

use std::time::Duration;

use serde_json::Value;

use crate::bodies::{CHAT, Talk, chat, gzip_of_zeros, user};
use crate::gateway::Gateway;
use crate::http::{self, Answer};
use crate::origin::{Act, Origin, decent, whole};
use crate::report::Breach;
use crate::run::Attack;
use crate::stand::Stand;

pub(crate) fn attacks() -> Vec<Attack> {
    let all: [(&str, &str, fn(&Stand)); 9] = [
        ("lengths", "lengths that are too long, too short, doubled or none", lengths),
        ("broken answers", "HTML, resets, strange bytes and heads that are none", broken),
        ("broken streams", "streams without an end, with torn events and doubled ids", streams),
        ("endless answers", "streams and lines without end", endless),
        ("bombs", "answers that are a thousand times as large as they came", bombs),
        ("redirects", "sends the client's key somewhere else", redirects),
        ("absurd numbers", "overflows and waits with numbers that cannot be", absurd),
        ("an agent", "the same lies to `chat`, which asks by itself", agent),
        ("silence", "an upstream that says nothing, and a gateway that is told to end", silence),
    ];
    let attack =
        |(name, tries, run)| Attack { group: "upstreams", name, tries, is_long: false, run };
    all.into_iter().map(attack).collect()
}

/// An upstream that lies to whoever says LIE, and is decent to everybody else.
fn liar(acts: Vec<Act>) -> Origin {
    Origin::start(move |seen| {
        let text = seen.text();
        let newest = serde_json::from_str::<Value>(&text).unwrap_or_default();
        let newest = newest["messages"].as_array().and_then(|all| all.last().cloned());
        match newest.is_some_and(|newest| newest.to_string().contains("LIE")) {
            true => acts.clone(),
            false => vec![Act::Send(decent("Noted."))],
        }
    })
}

fn ask(gateway: &Gateway<'_>, streams: bool) -> Answer {
    let body = chat(&[user("LIE to me.")], streams);
    let headers = [("content-type", "application/json"), ("connection", "close")];
    let bytes = http::request("POST", CHAT, &headers, &body);
    http::say(&gateway.address, &bytes, Duration::from_secs(15))
}

/// Meets each lie in the middle of a conversation, plainly and as a stream. The client is answered or told, the conversation goes on,
/// and all of it is kept. `judge` looks at what the client got.
fn meets_lies(stand: &Stand, lies: Vec<(&str, Vec<Act>)>, judge: impl Fn(&str, &Answer)) {
    for (name, acts) in lies {
        let origin = liar(acts);
        let gateway = stand.serve(&origin.url(), "");
        let mut talk = Talk::new(Some("steady"));
        for words in ["Before the lies.", "Still before."] {
            talk.ask(&gateway.address, &format!("{name}: {words}"));
        }
        for streams in [false, true] {
            stand.tried(1);
            let answer = ask(&gateway, streams);
            stand.must(!answer.is_late, Breach::Unbounded, || {
                format!("{name}: the client waits for 15 s")
            });
            judge(name, &answer);
        }
        // The same in the conversation that is kept. What the client got it sends again, or not.
        talk.say("LIE in the middle.");
        let answer = talk.ask_again(&gateway.address);
        stand.must(!answer.is_late, Breach::Unbounded, || format!("{name}: no answer in 30 s"));
        talk.messages.truncate(4);
        let answer = talk.ask(&gateway.address, &format!("{name}: after the lies."));
        stand.must(answer.status == 200, Breach::Wrong, || {
            format!(
                "{name}: the conversation does not go on: {} {:.200}",
                answer.status,
                answer.text()
            )
        });
        gateway.must_answer(name);
        gateway.must_take_at_most(300, name);
        gateway.end();
        stand.must_be_kept(talk.acknowledged.iter().filter(|words| words.starts_with(name)));
        stand.must_be_sound();
        origin.stop();
    }
}

fn head(lines: &str) -> Vec<u8> {
    format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n{lines}\r\n").into_bytes()
}

fn send(parts: &[&[u8]]) -> Vec<Act> {
    vec![Act::Send(parts.concat()), Act::Close]
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

/// The head of a stream, and its events.
fn stream(events: &[&[u8]]) -> Vec<u8> {
    let head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
    [head.as_slice(), &events.concat()].concat()
}

fn event(content: &str) -> Vec<u8> {
    let delta = serde_json::json!({ "content": content });
    let choice = serde_json::json!({ "index": 0, "delta": delta });
    format!("data: {}\n\n", serde_json::json!({ "id": "c", "choices": [choice] })).into_bytes()
}

fn call(index: u64, id: &str) -> Vec<u8> {
    let call = serde_json::json!({ "index": index, "id": id, "type": "function",
        "function": { "name": "look", "arguments": "{" } });
    let choice = serde_json::json!({ "index": 0, "delta": { "tool_calls": [call] } });
    format!("data: {}\n\n", serde_json::json!({ "id": "c", "choices": [choice] })).into_bytes()
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

fn redirects(stand: &Stand) {
    let elsewhere = Origin::start(|_| vec![Act::Send(decent("Thank you for the key."))]);
    let lies = [301, 302, 303, 307, 308].map(|status| {
        let text = format!(
            "HTTP/1.1 {status} Moved\r\nlocation: {}/v1/steal\r\ncontent-length: 0\r\n\r\n",
            elsewhere.url()
        );
        ("a redirect", vec![Act::Send(text.into_bytes())])
    });
    let mut lies: Vec<(&str, Vec<Act>)> = lies.into();
    let other = format!(
        "HTTP/1.1 200 OK\r\nalt-svc: h2=\"{0}\"; ma=9\r\nrefresh: 0;url=http://{0}\r\ncontent-length: 2\r\n\r\n{{}}",
        elsewhere.address
    );
    lies.push(("another service", vec![Act::Send(other.into_bytes())]));
    meets_lies(stand, lies, |_, _| {});
    let stolen = elsewhere.count();
    stand.must(stolen == 0, Breach::Escaped, || {
        let head = elsewhere.seen()[0].head.clone();
        format!("{stolen} requests went elsewhere: {head:.200}")
    });
    elsewhere.stop();
}

fn absurd(stand: &Stand) {
    let refusal = |status: u16, message: &str, more: &str| {
        let error = serde_json::json!({ "error": { "message": message, "type": "invalid_request_error",
            "code": "context_length_exceeded", "param": "messages" } });
        let body = error.to_string();
        let length = body.len();
        format!("HTTP/1.1 {status} No\r\ncontent-type: application/json\r\n{more}content-length: {length}\r\n\r\n{body}").into_bytes()
    };
    let overflow = |maximum: &str, asked: &str| {
        let text = format!(
            "This model's maximum context length is {maximum} tokens. However, your messages resulted in {asked} tokens."
        );
        vec![Act::Send(refusal(400, &text, ""))]
    };
    let wait = |value: &str| {
        let header = format!("retry-after: {value}\r\nx-ratelimit-reset-requests: {value}\r\n");
        vec![Act::Send(refusal(429, "Slow down.", &header))]
    };
    let lies = vec![
        ("a window of 0", overflow("0", "10")),
        ("a window of 1", overflow("1", "10")),
        (
            "a window beyond 64 bits",
            overflow("99999999999999999999999", "99999999999999999999999999"),
        ),
        ("a window of 2^64-1", overflow("18446744073709551615", "18446744073709551615")),
        ("a negative window", overflow("-4096", "-1")),
        ("a window with a fraction", overflow("4096.5", "1e300")),
        ("less asked than fits", overflow("200000", "3")),
        ("a wait of years", wait("99999999999")),
        ("a wait beyond 64 bits", wait("99999999999999999999999999")),
        ("a negative wait", wait("-5")),
        ("a wait until a year", wait("Fri, 31 Dec 9999 23:59:59 GMT")),
        ("a wait of no number", wait("soon")),
    ];
    meets_lies(stand, lies, |name, answer| {
        stand.must(answer.status >= 400, Breach::Wrong, || format!("{name}: {}", answer.status));
    });
}

/// `chat` ends in its time, says what is wrong, and its session stays sound.
fn agent(stand: &Stand) {
    let word = event("word");
    let lies = [
        ("HTML", vec![Act::Send(whole(200, "text/html", b"<html>Sign in to the hotel</html>"))]),
        ("no end", send(&[&stream(&[&word, &word])])),
        ("doubled ids", send(&[&stream(&[&call(0, "a"), &call(1, "a"), b"data: [DONE]\n\n"])])),
        ("no UTF-8", send(&[&stream(&[&word, b"data: \xff\xfe\n\n", b"data: [DONE]\n\n"])])),
        ("a huge index", send(&[&stream(&[&call(u64::MAX, "a"), b"data: [DONE]\n\n"])])),
        ("silence", vec![Act::Hang(Duration::from_secs(30))]),
        ("a reset", vec![Act::Send(stream(&[&word])), Act::Reset]),
        (
            "a long line",
            vec![
                Act::Send(stream(&[b"data: "])),
                Act::Repeat(vec![b'x'; 65_536], 1_024),
                Act::Close,
            ],
        ),
        (
            "steering words",
            send(&[&stream(&[&event("\u{1b}]0;owned\u{7}\u{1b}[2J"), b"data: [DONE]\n\n"])]),
        ),
    ];
    let some = stand.size(5, 99, 99) as usize;
    for (name, acts) in lies.into_iter().take(some) {
        stand.tried(1);
        let origin = liar(acts);
        let config = format!(
            "[agent]\nmodel = \"a/m\"\n[models.\"a/m\"]\nwindow_tokens = 20000\n\
             [providers.a]\ndialect = \"openai-chat\"\nbase_url = \"{}\"\nproxy = \"none\"\nretry_pause_ms = 1\n\
             retry_pause_max_ms = 4\nfirst_byte_timeout_ms = 1000\nidle_timeout_ms = 1000\nretry_after_max_ms = 1000\n",
            origin.url()
        );
        std::fs::write(stand.path("work/ctxhost.toml"), config).expect("a config");
        let session = stand.path("work/talk.jsonl").display().to_string();
        let limit = Duration::from_secs(30);
        let ran = stand.ctxhost(&["chat", "--session", &session, "-p", "LIE to me."], limit);
        stand.must(ran.peak_mib < 400, Breach::Unbounded, || {
            format!("{name}: {} MiB", ran.peak_mib)
        });
        let steers = ran.out.iter().chain(&ran.err).any(|byte| *byte == 0x1b || *byte == 7);
        stand.must(!steers, Breach::Escaped, || format!("{name}: the model steers the terminal"));
        let is_told = ran.is_late || ran.code == Some(0) || !ran.err.is_empty();
        stand.must(is_told, Breach::Wrong, || format!("{name}: it fails without a word"));
        let ran = stand.ctxhost(&["fsck", &session], limit);
        stand.must(ran.code == Some(0), Breach::Lost, || format!("{name}: fsck: {}", ran.text()));
        origin.stop();
    }
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
