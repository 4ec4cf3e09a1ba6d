//! A request refused while its conversation advanced forks into one of its own.

use std::sync::Mutex;

use axum::body::{Body, Bytes};
use ctxhost_tests::rules::Wire;
use futures_util::stream;
use serde_json::json;
use tokio::sync::oneshot;

use crate::overflow::{long_conversation, path, request};
use crate::stage::{Gate, Upstream, client, plain};

const BELIEVED: &str = "[models.m]\nwindow_tokens = 200000\n";

/// The largest body that the upstream takes: that of a window of 20,000 tokens.
const LARGEST_BYTES: usize = 70_000;

fn too_large() -> String {
    let message = "prompt is too long: 40000 tokens > 20000 maximum";
    let error = json!({ "type": "invalid_request_error", "message": message });
    json!({ "type": "error", "error": error }).to_string()
}

fn answer() -> String {
    json!({ "type": "message", "role": "assistant", "content": [{ "type": "text", "text": "Yes." }] })
        .to_string()
}

/// An upstream that refuses what is too large. Its first refusal is held back until it is let go.
async fn upstream(let_go: oneshot::Receiver<()>) -> Upstream {
    let held = Mutex::new(Some(let_go));
    Upstream::start(move |seen| {
        if seen.body.len() <= LARGEST_BYTES {
            return plain(200, "application/json", answer());
        }
        let body = match held.lock().unwrap().take() {
            Some(let_go) => Body::from_stream(stream::once(async move {
                let_go.await.unwrap();
                Ok::<_, std::io::Error>(Bytes::from(too_large()))
            })),
            None => Body::from(too_large()),
        };
        plain(400, "application/json", body)
    })
    .await
}

struct Answered {
    session: String,
    compaction: String,
}

async fn ask(url: String, texts: Vec<String>) -> Answered {
    let body = request(Wire::Anthropic, &texts, false).to_string();
    let answer = client().post(format!("{url}{}", path(Wire::Anthropic, false))).body(body);
    let answer = answer.send().await.unwrap();
    let reported = |name: &str| answer.headers()[name].to_str().unwrap().to_owned();
    let (session, compaction) = (reported("x-ctxhost-session"), reported("x-ctxhost-compaction"));
    assert_eq!(answer.status(), 200, "{}", answer.text().await.unwrap());
    Answered { session, compaction }
}

#[tokio::test]
async fn a_refused_request_goes_on_beside_the_one_that_overtook_it() {
    let (release, let_go) = oneshot::channel();
    let upstream = upstream(let_go).await;
    let gate = Gate::before(&upstream.url, BELIEVED).await;
    let first = long_conversation();
    let mut second = first.clone();
    second.extend(["Go on.".to_owned(), "What did the second one say?".to_owned()]);
    let overtaken = tokio::spawn(ask(gate.url.clone(), first));
    while upstream.count() == 0 {
        tokio::time::sleep(std::time::Duration::from_millis(2)).await;
    }
    // It has the conversation of the first one, in whose session its words stand now.
    let overtook = ask(gate.url.clone(), second.clone()).await;
    assert_eq!(overtook.compaction, "applied");
    release.send(()).unwrap();
    let overtaken = overtaken.await.unwrap();
    assert_ne!(overtaken.session, overtook.session);
    let sent = upstream.last().body;
    assert!(sent.len() <= LARGEST_BYTES);
    let sent = std::str::from_utf8(&sent).unwrap();
    assert!(sent.contains("Part 80 of the plan.") && !sent.contains("the second one"), "{sent}");
    // Both live on where they are.
    second.extend(["Words.".to_owned(), "And then?".to_owned()]);
    assert_eq!(ask(gate.url.clone(), second).await.session, overtook.session);
    let mut first = long_conversation();
    first.extend(["Yes.".to_owned(), "Which part is next?".to_owned()]);
    assert_eq!(ask(gate.url.clone(), first).await.session, overtaken.session);
}
