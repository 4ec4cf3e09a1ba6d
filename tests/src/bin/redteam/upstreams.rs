//! Upstreams that lie about lengths, sizes, windows and redirects.

mod answers;
mod endless;
mod words;

use std::time::Duration;

use serde_json::Value;

use crate::bodies::{CHAT, Talk, chat, user};
use crate::gateway::Gateway;
use crate::http::{self, Answer};
use crate::origin::{Act, Origin, decent};
use crate::report::Breach;
use crate::run::Attack;
use crate::stand::Stand;

pub(crate) fn attacks() -> Vec<Attack> {
    [answers::attacks(), endless::attacks(), words::attacks()].concat()
}

fn attack(name: &'static str, tries: &'static str, run: fn(&Stand)) -> Attack {
    Attack::new("upstreams", name, tries, run)
}

/// An upstream that lies to whoever says LIE, and is decent to everybody else.
fn liar(acts: Vec<Act>) -> Origin {
    Origin::start(move |seen| {
        let text = seen.text();
        let newest = serde_json::from_str::<Value>(&text).unwrap_or_default();
        let newest = newest["messages"].as_array().and_then(|all| all.last().cloned());
        if newest.is_some_and(|newest| newest.to_string().contains("LIE")) {
            acts.clone()
        } else {
            vec![Act::Send(decent("Noted."))]
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
        let mut answer = talk.ask(&gateway.address, &format!("{name}: after the lies."));
        if answer.status == 502 {
            // A lie that ends its connection unannounced may do so while the next request is sent on it. A proxy must not
            // repeat that (RFC 9110, 9.2.2); its client does.
            answer = talk.ask_again(&gateway.address);
        }
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
