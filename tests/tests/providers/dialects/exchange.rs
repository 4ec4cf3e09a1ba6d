//! Requests through the gateway without a socket.

use std::path::Path;
use std::sync::Arc;

use axum::body::Bytes;
use ctxhost_agent::{Runtime, RuntimeBuilder};
use ctxhost_config::Config;
use ctxhost_dialects::{FailureReason, ProviderError};
use ctxhost_engine_api::transcript::tokens;
use ctxhost_gateway::proxy::{
    ClientRequest, EndpointAction, LocalResponse, Proxy, ProxyAction, UpstreamRequest,
};
use ctxhost_models::ContextWindow;
use ctxhost_tests::rules::{self, Wire};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::client::{Client, MAX_OUTPUT_TOKENS, WIRES};

pub(crate) const WINDOW_TOKENS: u64 = 20_000;

/// A gateway without a server.
pub(crate) struct Gateway {
    pub(crate) exchange: Arc<Proxy>,
    pub(crate) runtime: Runtime,
}

impl Gateway {
    pub(crate) async fn open(state: &Path, window_tokens: u64) -> Gateway {
        Gateway::of(state, window_tokens, "legacy", "").await
    }

    /// The same with more in its config.
    pub(crate) async fn with(state: &Path, window_tokens: u64, config: &str) -> Gateway {
        Gateway::of(state, window_tokens, "legacy", config).await
    }

    pub(crate) async fn of(state: &Path, window_tokens: u64, engine: &str, more: &str) -> Gateway {
        let models = ["claude-sonnet-4-5", "gpt-5", "gemini-2.5-flash", "qwen3:8b"];
        let window = |model| format!("[models.\"{model}\"]\nwindow_tokens = {window_tokens}\n");
        let config = Config::parse("ctxhost.toml", &(models.map(window).concat() + more)).unwrap();
        let builder = RuntimeBuilder::from_config(&config).engine(engine).without_builtin_tools();
        let runtime = builder.store_folder(state.join("engines")).build().await.unwrap();
        Gateway { exchange: Proxy::new(runtime.clone(), &config, state), runtime }
    }

    pub(crate) async fn close(self) {
        drop(self.exchange);
        self.runtime.shutdown().await;
    }

    pub(crate) async fn forward(&self, request: &ClientRequest) -> UpstreamRequest {
        match self.exchange.handle(request).await {
            ProxyAction::Forward(forward) => forward,
            ProxyAction::Respond(answer) => panic!("answered: {}", text(&answer.body)),
        }
    }

    pub(crate) async fn ask(&self, client: &Client) -> UpstreamRequest {
        self.forward(&client.request()).await
    }
}

pub(crate) fn text(body: &Bytes) -> &str {
    std::str::from_utf8(body).unwrap()
}

fn refusal(limit_tokens: Option<u64>, observed_tokens: Option<u64>) -> ProviderError {
    ProviderError {
        reason: FailureReason::ContextOverflow,
        provider: "upstream".into(),
        model: "model".into(),
        status: Some(400),
        code: "context_length_exceeded".into(),
        message: "too large".into(),
        retry_after_ms: None,
        observed_tokens,
        limit_tokens,
        has_started: false,
        is_ceiling: false,
        is_byte_limit: false,
        has_clear_overflow_words: false,
        prompt_tokens: None,
    }
}

/// The numbers of a file that nobody could shorten without a loss.
fn file(number: usize, chars: usize) -> String {
    let line = |at: usize| format!("let value_{number}_{at} = compute({});\n", at * 31 + number);
    (0..)
        .map(line)
        .scan(0, |sum, line| {
            *sum += line.len();
            (*sum <= chars).then_some(line)
        })
        .collect()
}

pub(crate) fn assert_lawful(client: &Client, body: &Bytes) {
    let json: Value = serde_json::from_slice(body).unwrap();
    let broken = rules::check(client.wire, &client.path(), &client.headers, &json);
    let reported: Vec<String> = broken.iter().map(ToString::to_string).collect();
    assert!(reported.is_empty(), "{:?}: {}\n{json}", client.wire, reported.join("\n"));
}

/// An answer of some thousand tokens, which no engine makes smaller without a compaction.
pub(crate) fn long_answer(turn: usize) -> String {
    (0..100)
        .map(|at| format!("In step {turn}.{at} the parser reads line {}. ", at * 7 + turn))
        .collect()
}

/// One turn with a file in it.
pub(crate) fn work(client: &mut Client, turn: usize, chars: usize) {
    client.say(&format!("Please look at file {turn} and say what it computes."));
    client.read(&[file(turn, chars)]);
}

#[tokio::test]
async fn what_fits_is_sent_as_it_came() {
    for wire in WIRES {
        let state = tempfile::tempdir().unwrap();
        let gateway = Gateway::open(state.path(), 200_000).await;
        let mut client = Client::new(wire);
        let mut sessions = Vec::new();
        for turn in 0..4 {
            client.say(&format!("words {turn}"));
            sessions.push(assert_untouched(&gateway, &client).await);
            client.read(&[file(turn, 500), file(turn + 10, 300)]);
            sessions.push(assert_untouched(&gateway, &client).await);
            client.answer(&format!("answer {turn}"));
        }
        sessions.dedup();
        assert_eq!(sessions.len(), 1, "{wire:?}: {sessions:?}");
        gateway.close().await;
    }
}

async fn assert_untouched(gateway: &Gateway, client: &Client) -> String {
    let request = client.request();
    let forward = gateway.forward(&request).await;
    assert_eq!(forward.body, request.body, "{:?}", client.wire);
    assert_eq!((forward.report.engine.as_str(), forward.report.compaction), ("legacy", "none"));
    assert_eq!(forward.report.tokens, forward.report.before_tokens);
    assert!(forward.report.tokens.unwrap() > 0);
    forward.report.session
}

#[tokio::test]
async fn ten_windows_fit_and_a_restart_changes_no_byte() {
    for wire in WIRES {
        let state = tempfile::tempdir().unwrap();
        let mut gateway = Gateway::open(state.path(), WINDOW_TOKENS).await;
        let mut client = Client::new(wire);
        let (mut compactions, mut turn, mut restarts) = (0, 0, 0);
        while tokens::estimate(&client.body()) < 10 * WINDOW_TOKENS {
            work(&mut client, turn, 12_000);
            let forward = gateway.ask(&client).await;
            assert_lawful(&client, &forward.body);
            let size = tokens::estimate(text(&forward.body));
            assert!(size <= WINDOW_TOKENS - MAX_OUTPUT_TOKENS, "{wire:?} turn {turn}: {size}");
            let newest = format!("value_{turn}_0 ");
            assert!(text(&forward.body).contains(&newest), "{wire:?} turn {turn}");
            compactions += usize::from(forward.report.compaction == "applied");
            if turn == 12 || turn == 40 {
                gateway.close().await;
                gateway = Gateway::open(state.path(), WINDOW_TOKENS).await;
                let again = gateway.ask(&client).await;
                assert_eq!(text(&again.body), text(&forward.body), "{wire:?}: after a restart");
                assert_eq!(again.report.session, forward.report.session);
                assert_eq!(
                    again.report.compaction, "none",
                    "{wire:?}: what was compacted stays so"
                );
                restarts += 1;
            }
            client.answer(&format!("It computes value {turn}."));
            turn += 1;
        }
        assert!(compactions > 3 && restarts == 2, "{wire:?}: {compactions} in {turn} turns");
        gateway.close().await;
    }
}

#[tokio::test]
async fn whatever_the_engine_does_the_rules_are_kept() {
    for engine in ["window", "mask", "recall", "dag", "boundary", "head-tail", "mask+legacy"] {
        for wire in WIRES {
            let state = tempfile::tempdir().unwrap();
            let gateway = Gateway::of(state.path(), WINDOW_TOKENS, engine, "").await;
            let mut client = Client::new(wire);
            let mut engines = std::collections::BTreeSet::new();
            for turn in 0..12 {
                client.say(&format!("Please look at the files of part {turn}."));
                client.read(&[file(turn * 2, 5_000), file(turn * 2 + 1, 3_000)]);
                let forward = gateway.ask(&client).await;
                assert_lawful(&client, &forward.body);
                let size = tokens::estimate(text(&forward.body));
                assert!(size <= WINDOW_TOKENS - MAX_OUTPUT_TOKENS, "{engine} {wire:?}: {size}");
                engines.insert(forward.report.engine);
                client.answer(&format!("Part {turn} is fine."));
                client.say("Go on.");
                assert_lawful(&client, &gateway.ask(&client).await.body);
                client.answer("Yes.");
            }
            assert!(engines.iter().any(|it| it.contains(engine)), "{engine}: {engines:?}");
            gateway.close().await;
        }
    }
}

#[tokio::test]
async fn unparsable_bodies_are_forwarded_unchanged() {
    let state = tempfile::tempdir().unwrap();
    let gateway = Gateway::open(state.path(), 200_000).await;
    for body in
        ["", "{", "[]", r#"{"messages":[]}"#, r#"{"messages":[17]}"#, "\u{0}", r#"{"input":""}"#]
    {
        for client in WIRES.map(Client::new) {
            let body = Bytes::copy_from_slice(body.as_bytes());
            let request = ClientRequest { body: body.clone(), ..client.request() };
            let forward = gateway.forward(&request).await;
            assert_eq!((forward.body, forward.report.engine.as_str()), (body, "none"));
        }
    }
    gateway.close().await;
}

#[tokio::test]
async fn an_upstream_with_a_smaller_window_is_believed() {
    for wire in WIRES {
        let state = tempfile::tempdir().unwrap();
        let gateway = Gateway::open(state.path(), 200_000).await;
        let mut client = Client::new(wire);
        for turn in 0..20 {
            work(&mut client, turn, 12_000);
            client.answer(&long_answer(turn));
        }
        client.say("What did you find?");
        let forward = gateway.ask(&client).await;
        assert_eq!(forward.body, client.request().body);
        let size = tokens::estimate(text(&forward.body));
        let failure = refusal(Some(WINDOW_TOKENS), Some(size));
        let taken = gateway.exchange.handle_refusal(forward.in_flight, &failure).await;
        let Some(ProxyAction::Forward(smaller)) = taken else { panic!("{wire:?}: {taken:?}") };
        assert_lawful(&client, &smaller.body);
        let size = tokens::estimate(text(&smaller.body));
        assert!(size <= WINDOW_TOKENS - MAX_OUTPUT_TOKENS, "{wire:?}: {size}");
        assert_eq!(
            smaller.report.compaction,
            "applied",
            "{wire:?} {:?} {}",
            smaller.report,
            smaller.body.len()
        );
        let window = gateway.exchange.window(client.door().provider(), client.model());
        let known = window.map(|ContextWindow { tokens, is_certain, .. }| (tokens, is_certain));
        assert_eq!(known, Some((WINDOW_TOKENS, true)));
        // Nobody has to be told twice.
        client.answer("Much.");
        client.say("And then?");
        let next = gateway.ask(&client).await;
        assert!(tokens::estimate(text(&next.body)) <= WINDOW_TOKENS - MAX_OUTPUT_TOKENS);
        gateway.close().await;
    }
}

#[tokio::test]
async fn an_upstream_that_always_refuses_is_reported_as_its_own_client_expects() {
    let overflow = |wire, answer: &LocalResponse| {
        let body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        match wire {
            Wire::Anthropic => {
                body["error"]["message"].as_str().unwrap().starts_with("prompt is too long: ")
            }
            Wire::Gemini => {
                body["error"]["message"].as_str().unwrap().contains("input token count")
            }
            Wire::Ollama => {
                body["error"].as_str().unwrap().starts_with("the input length exceeds the context")
            }
            _ => body["error"]["code"] == json!("context_length_exceeded"),
        }
    };
    for wire in WIRES {
        let state = tempfile::tempdir().unwrap();
        let gateway = Gateway::open(state.path(), WINDOW_TOKENS).await;
        let mut client = Client::new(wire);
        for turn in 0..3 {
            work(&mut client, turn, 8_000);
            client.answer("Done.");
        }
        client.say("What did you find?");
        let mut forward = gateway.ask(&client).await;
        let mut sizes = vec![forward.body.len()];
        let mut is_compacted = false;
        let answer = loop {
            let taken =
                gateway.exchange.handle_refusal(forward.in_flight, &refusal(None, None)).await;
            match taken.unwrap() {
                ProxyAction::Forward(next) => forward = next,
                ProxyAction::Respond(answer) => break answer,
            }
            assert_lawful(&client, &forward.body);
            // What the first smaller form was compacted for is told of the next one, too.
            is_compacted |= forward.report.compaction == "applied";
            assert_eq!(is_compacted, forward.report.compaction == "applied", "{wire:?}");
            sizes.push(forward.body.len());
        };
        assert!(sizes.len() <= 4 && sizes.is_sorted_by(|a, b| a > b), "{wire:?}: {sizes:?}");
        assert_eq!(answer.status, 400);
        assert!(overflow(wire, &answer), "{wire:?}: {}", text(&answer.body));
        gateway.close().await;
    }
}

#[tokio::test]
async fn codex_hears_of_an_overflow_in_the_stream() {
    let state = tempfile::tempdir().unwrap();
    let gateway = Gateway::open(state.path(), WINDOW_TOKENS).await;
    let mut client = Client::new(Wire::Responses).with_header("x-codex-window-id", "thread:0");
    // No text of ours could be shortened to this.
    client.say("Go.");
    let forward = gateway.ask(&client).await;
    let failure = refusal(Some(20), None);
    let mut taken = gateway.exchange.handle_refusal(forward.in_flight, &failure).await;
    while let Some(ProxyAction::Forward(forward)) = taken {
        taken = gateway.exchange.handle_refusal(forward.in_flight, &failure).await;
    }
    let Some(ProxyAction::Respond(answer)) = taken else { panic!("{taken:?}") };
    assert_eq!((answer.status.as_u16(), answer.content_type), (200, "text/event-stream"));
    assert!(text(&answer.body).starts_with("event: response.failed\ndata: {"));
    assert!(text(&answer.body).contains("context_length_exceeded"));
    gateway.close().await;
}

#[tokio::test]
async fn a_compaction_that_codex_asks_its_provider_for_is_the_engines() {
    let state = tempfile::tempdir().unwrap();
    let gateway = Gateway::open(state.path(), 60_000).await;
    for is_trigger in [true, false] {
        let mut client = Client::new(Wire::Responses).with_header("x-codex-window-id", "thread:0");
        client.say(&format!("Remember the word pelican{is_trigger}."));
        client.answer("I do.");
        for turn in 0..16 {
            work(&mut client, turn, 12_000);
            client.answer(&format!("It computes value {turn}."));
        }
        let first = client.items.first().cloned().unwrap();
        let mut request = client.request();
        if is_trigger {
            client.items.push(json!({ "type": "compaction_trigger" }));
            request = client.request();
        } else {
            request.endpoint.action = EndpointAction::Compact;
        }
        let ProxyAction::Respond(answer) = gateway.exchange.handle(&request).await else {
            panic!("forwarded")
        };
        assert_eq!((answer.status.as_u16(), answer.report.compaction), (200, "applied"));
        let items = compactions(text(&answer.body));
        let [item] = &items[..] else { panic!("{}", text(&answer.body)) };
        let sealed = item["encrypted_content"].as_str().unwrap();
        assert!(sealed.contains("pelican") && sealed.len() < request.body.len() / 2);
        // It comes back, and the model reads it.
        let mut after = Client::new(Wire::Responses);
        after.items = vec![first, item.clone()];
        after.say("Which word?");
        let forward = gateway.ask(&after).await;
        assert_lawful(&after, &forward.body);
        assert!(!text(&forward.body).contains("ctxhost-summary-1"));
        assert!(text(&forward.body).contains("It computes value 15."));
        let before = text(&forward.body).to_owned();
        after.answer("Pelican.");
        after.say("Thanks.");
        let next = gateway.ask(&after).await;
        let input = |body: &str| serde_json::from_str::<Value>(body).unwrap()["input"].clone();
        assert_eq!(input(text(&next.body))[1], input(&before)[1], "the prefix stays");
        assert_eq!(next.report.session, forward.report.session);
    }
    gateway.close().await;
}

/// The compaction items of an answer, be it one of JSON or a stream that is complete.
fn compactions(answer: &str) -> Vec<Value> {
    let output = |value: &Value| value["output"].as_array().cloned().unwrap_or_default();
    let Ok(whole) = serde_json::from_str::<Value>(answer) else {
        let data = answer.lines().filter_map(|line| line.strip_prefix("data: "));
        let events: Vec<Value> = data.map(|data| serde_json::from_str(data).unwrap()).collect();
        let is = |event: &&Value, name: &str| event["type"] == name;
        assert!(events.last().is_some_and(|last| is(&last, "response.completed")));
        let done = events.iter().filter(|event| is(event, "response.output_item.done"));
        return done.map(|event| event["item"].clone()).collect();
    };
    output(&whole)
}

#[tokio::test]
async fn counting_keeps_nothing_and_counts_what_would_be_sent() {
    let state = tempfile::tempdir().unwrap();
    let gateway = Gateway::open(state.path(), WINDOW_TOKENS).await;
    let mut client = Client::new(Wire::Anthropic);
    let mut last = None;
    for turn in 0..20 {
        work(&mut client, turn, 12_000);
        last = Some(gateway.ask(&client).await);
        client.answer(&long_answer(turn));
    }
    client.say("How much is it?");
    let mut request = client.request();
    request.endpoint.action = EndpointAction::CountTokens;
    let counted = gateway.forward(&request).await;
    assert!(
        counted.body.len() < request.body.len() / 2,
        "{} of {} bytes {:?}",
        counted.body.len(),
        request.body.len(),
        counted.report
    );
    assert_lawful(&client, &counted.body);
    assert!(text(&counted.body).contains("How much is it?"));
    // The words were not kept, so other words go on with the same conversation.
    client.items.pop();
    client.say("Never mind.");
    let next = gateway.ask(&client).await;
    assert_eq!(next.report.session, last.unwrap().report.session);
    assert!(!text(&next.body).contains("How much is it?"));
    gateway.close().await;
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever a client does with its history, what it sends is lawful, fits, and is the same once more.
    #[test]
    fn any_walk_through_a_conversation(
        wire in prop::sample::select(WIRES.to_vec()),
        steps in prop::collection::vec((0..6_u8, 0..9_000_usize), 1..14),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async move {
            let state = tempfile::tempdir().unwrap();
            let mut gateway = Gateway::open(state.path(), WINDOW_TOKENS).await;
            let mut client = Client::new(wire);
            let mut moments: Vec<Client> = Vec::new();
            for (nth, (step, size)) in steps.into_iter().enumerate() {
                match step {
                    // Back to an earlier moment, and other words.
                    0 if !moments.is_empty() => client = moments[size % moments.len()].clone(),
                    1 => {
                        gateway.close().await;
                        gateway = Gateway::open(state.path(), WINDOW_TOKENS).await;
                    }
                    _ => {}
                }
                client.say(&format!("Words {nth}: {}", "and so on ".repeat(size / 200)));
                if step > 2 {
                    let files: Vec<String> = (0..step as usize - 2).map(|at| file(nth * 10 + at, size)).collect();
                    client.read(&files);
                }
                let forward = gateway.ask(&client).await;
                assert_lawful(&client, &forward.body);
                let size = tokens::estimate(text(&forward.body));
                assert!(size <= WINDOW_TOKENS - MAX_OUTPUT_TOKENS, "{size}");
                let again = gateway.ask(&client).await;
                assert_eq!(text(&again.body), text(&forward.body));
                client.answer(&format!("Answer {nth}."));
                moments.push(client.clone());
            }
            gateway.close().await;
        });
    }
}
