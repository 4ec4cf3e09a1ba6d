//! Attacks on access control: wrong tokens, other origins and host names, paths outside the dashboard.

use std::time::{Duration, Instant};

use super::{attack, provider};
use crate::bodies::{CHAT, chat, user};
use crate::http;
use crate::report::Breach;
use crate::run::Attack;
use crate::stand::Stand;

pub(super) fn attacks() -> Vec<Attack> {
    vec![
        attack(
            "guessed tokens",
            "hundreds of wrong tokens: none opens, and somebody hears of it",
            guesses,
        ),
        attack("a weak token", "a token of five letters", weak),
        attack("strange pages", "pages of other origins and names bent to this machine", strangers),
        attack("paths out", "paths out of the dashboard and of the originals", paths),
    ]
}

/// A guess that is answered as late as this was slowed down: the documents promise up to 5 s.
const SLOW: Duration = Duration::from_secs(3);

const TOKEN: &str = "a-long-token-of-chance-4fd0c1a2b3e49d6c8b7f";

fn guesses(stand: &Stand) {
    let server = provider();
    let gateway = stand.serve_with(&server.url(), "", |command| {
        command.env("CTXHOST_TOKEN", TOKEN);
    });
    let mut guesses =
        vec![String::new(), " ".into(), TOKEN[..TOKEN.len() - 1].into(), format!("{TOKEN}x")];
    guesses.push(TOKEN.to_uppercase());
    guesses.push("x".repeat(30_000));
    let mut random = stand.random();
    let times = stand.size(150, 1_000, 5_000);
    guesses.extend((0..times).map(|_| (0..24).map(|_| random.alphanumeric()).collect()));
    let body = chat(&[user("Let me in.")], false);
    let mut slowed = 0;
    for guess in &guesses {
        stand.tried(1);
        let bearer = format!("Bearer {guess}");
        let named: [(&str, &str); 2] = [("x-ctxhost-token", guess), ("authorization", &bearer)];
        for header in named {
            let begun = Instant::now();
            let answer = http::ask(&gateway.address, "POST", CHAT, &[header], &body);
            slowed += usize::from(answer.status == 429 || begun.elapsed() > SLOW);
            stand.must(!(200..300).contains(&answer.status), Breach::Escaped, || {
                format!("{} {guess:.40?} is let in", header.0)
            });
        }
        if slowed >= 2 {
            break;
        }
    }
    stand
        .must(server.requests().is_empty(), Breach::Escaped, || "a guess went upstream".to_owned());
    stand.must(slowed >= 2, Breach::Wrong, || {
        format!("{} wrong tokens are not slowed down", guesses.len())
    });
    let is_heard = gateway.says(&["token"], Duration::from_secs(1));
    stand.must(is_heard, Breach::Wrong, || "wrong tokens are not logged".to_owned());
    let headers = [("x-ctxhost-token", TOKEN)];
    let begun = Instant::now();
    let answer = http::ask(&gateway.address, "POST", CHAT, &headers, &body);
    stand.must(answer.status == 200 && begun.elapsed() < SLOW, Breach::Wrong, || {
        format!("behind guesses the right token gets {} late or not at all", answer.status)
    });
    gateway.end();
}

/// It refuses to start, or says that the token is too short.
fn weak(stand: &Stand) {
    stand.tried(1);
    let server = provider();
    let mut command =
        stand.command(&["serve", "--listen", "127.0.0.1:0", "--upstream", &server.url()]);
    command.env("CTXHOST_TOKEN", "abcde");
    match stand.serve_by(command) {
        Err(said) => {
            let is_told = said.to_lowercase().contains("token");
            stand.must(is_told, Breach::Wrong, || format!("it says no word of the token: {said}"));
        }
        Ok(gateway) => {
            let words = ["short", "weak", "at least"];
            let said = gateway.said_text().to_lowercase();
            let is_told = words.iter().any(|word| said.contains(word));
            stand.must(is_told, Breach::Wrong, || "a token of five letters is taken".to_owned());
            gateway.end();
        }
    }
}

fn strangers(stand: &Stand) {
    let server = provider();
    let gateway = stand.serve(&server.url(), "");
    let body = chat(&[user("Spend the money.")], false);
    let headers: [&[(&str, &str)]; 9] = [
        &[("origin", "https://evil.example")],
        &[("origin", "null")],
        &[("origin", "http://localhost.evil.example")],
        &[("host", "evil.example")],
        &[("host", "localhost.evil.example")],
        &[("host", "127.0.0.1.nip.io")],
        &[("sec-fetch-site", "cross-site")],
        &[("host", "evil.example"), ("origin", "http://evil.example")],
        &[("host", "[::ffff:9.9.9.9]")],
    ];
    for headers in headers {
        for (method, path) in
            [("POST", CHAT), ("GET", "/ui"), ("GET", "/metrics"), ("POST", "/v1/compress")]
        {
            stand.tried(1);
            let body = if method == "POST" { body.as_slice() } else { b"" };
            let answer = http::ask(&gateway.address, method, path, headers, body);
            stand.must(!(200..300).contains(&answer.status), Breach::Escaped, || {
                format!("{method} {path} with {headers:?} gets {}", answer.status)
            });
            let allows = answer.header("access-control-allow-origin");
            stand.must(allows.is_none(), Breach::Escaped, || format!("{headers:?}: {allows:?}"));
        }
    }
    let seen = server.requests().len();
    stand.must(seen == 0, Breach::Escaped, || format!("{seen} requests went upstream"));
    // Without its link the dashboard shows nothing.
    for path in ["/ui", "/ui/", "/ui?token=", "/ui?token=0000", "/ui/data", "/ui/sessions"] {
        stand.tried(1);
        let answer = http::ask(&gateway.address, "GET", path, &[], b"");
        stand.must(!(200..300).contains(&answer.status), Breach::Escaped, || {
            format!("{path} opens without a token: {}", answer.status)
        });
    }
    let opened = http::ask(&gateway.address, "GET", &gateway.dashboard, &[], b"");
    stand.must(opened.status < 400, Breach::Wrong, || {
        format!("the link itself gets {}, so the rest tells nothing", opened.status)
    });
    let again = http::ask(&gateway.address, "GET", &gateway.dashboard, &[], b"");
    stand.must(!(200..300).contains(&again.status), Breach::Escaped, || {
        "the link opens a second time".to_owned()
    });
    gateway.end();
}

fn paths(stand: &Stand) {
    let server = provider();
    let gateway = stand.serve(&server.url(), "");
    let out =
        ["../", "..%2f", "%2e%2e/", "..\\", "....//", "%252e%252e%252f", "..;/", "%c0%ae%c0%ae/"];
    let victims = stand.path("victims/private.txt").display().to_string();
    for begin in ["/ui/", "/v1/retrieve/", "/metrics/", "/ui/assets/"] {
        for step in out {
            for file in ["etc/passwd", victims.trim_start_matches('/')] {
                stand.tried(1);
                let path = format!("{begin}{}{file}", step.repeat(12));
                let answer = http::ask(&gateway.address, "GET", &path, &[], b"");
                let text = answer.text();
                let leaks = text.contains("root:") || text.contains(&stand.secret);
                stand.must(!leaks, Breach::Escaped, || format!("{path} shows a file"));
                stand.must(answer.status != 0, Breach::Wrong, || format!("{path}: no answer"));
            }
        }
    }
    gateway.must_answer("after paths");
    gateway.end();
}
