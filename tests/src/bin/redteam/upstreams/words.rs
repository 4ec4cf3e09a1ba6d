//! Well-formed responses that mislead: redirects, waiting times, limits.

use std::time::Duration;

use super::{attack, call, event, liar, meets_lies, send, stream};
use crate::origin::{Act, Origin, decent, whole};
use crate::report::Breach;
use crate::run::Attack;
use crate::stand::Stand;

pub(super) fn attacks() -> Vec<Attack> {
    vec![
        attack("redirects", "sends the client's key somewhere else", redirects),
        attack("absurd numbers", "overflows and waits with numbers that cannot be", absurd),
        attack("an agent", "broken answers and streams to `chat`, which asks by itself", agent),
    ]
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
    let counted = |tokens: &str| {
        let text = format!(
            r#"{{"id":"c","object":"chat.completion","model":"some-model","choices":[{{"index":0,"finish_reason":"stop","message":{{"role":"assistant","content":"Counted."}}}}],"usage":{{"prompt_tokens":{tokens},"completion_tokens":{tokens},"total_tokens":{tokens},"prompt_tokens_details":{{"cached_tokens":{tokens}}}}}}}"#
        );
        vec![Act::Send(whole(200, "application/json", text.as_bytes()))]
    };
    let lies = ["18446744073709551615", "9223372036854775808", "1e300", "-7"];
    meets_lies(stand, lies.map(|tokens| ("a count", counted(tokens))).into(), |_, _| {});
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
