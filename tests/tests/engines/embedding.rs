//! An embedder behind HTTP, and engines that use it: linked, loaded into a thread, and in a sandbox.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Json, Router};
use ctxhost_engine::{
    EngineEnvironment, EngineInstance, EngineSpec, EngineTimeouts, HostClock, Isolation,
};
use ctxhost_engine_api::testing::TranscriptBuilder;
use ctxhost_engine_api::{AssembleRequest, Plan, SessionRef, Transcript};
use ctxhost_provider::{EndpointEmbedder, EndpointSettings};
use ctxhost_tests::{bundled_library, ctxhost};
use serde_json::{Value, json};
use tokio::runtime::{Handle, Runtime};

const PROMPT: &str = "Which woman grows spices?";

/// Words of one meaning have one dimension.
const MEANINGS: [&[&str]; 4] = [
    &["sister", "woman"],
    &["saffron", "spices"],
    &["farm", "grows"],
    &["week", "walk", "reading"],
];

/// A server of vectors.
#[derive(Clone, Default)]
struct VectorServer {
    bodies: Arc<Mutex<Vec<String>>>,
    fails: Arc<AtomicBool>,
}

impl VectorServer {
    /// Starts a server on the loopback; returns its address too.
    fn start(runtime: &Runtime) -> (VectorServer, String) {
        let server = VectorServer::default();
        let router = Router::new().route("/v1/embeddings", post(answer)).with_state(server.clone());
        let listener =
            runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).expect("a port");
        let url = format!("http://{}", listener.local_addr().unwrap());
        runtime.spawn(async move { axum::serve(listener, router).await });
        (server, url)
    }

    fn bodies(&self) -> Vec<String> {
        self.bodies.lock().unwrap().clone()
    }
}

async fn answer(State(server): State<VectorServer>, Json(body): Json<Value>) -> Response {
    server.bodies.lock().unwrap().push(body.to_string());
    if server.fails.load(Ordering::Relaxed) {
        return (StatusCode::BAD_REQUEST, "no").into_response();
    }
    let row = |(index, text): (usize, &Value)| {
        let text = text.as_str().unwrap_or_default().to_lowercase();
        let count = |words: &&[&str]| words.iter().filter(|word| text.contains(**word)).count();
        let vector: Vec<usize> = MEANINGS.iter().map(count).chain([1]).collect();
        json!({ "index": index, "embedding": vector })
    };
    let texts = body["input"].as_array().cloned().unwrap_or_default();
    let rows: Vec<Value> = texts.iter().enumerate().map(row).rev().collect();
    Json(json!({ "data": rows })).into_response()
}

/// A key as a provider gives them, from parts so that no scanner takes it for a real one.
fn secret() -> String {
    format!("sk-ant-api03-{}", "aB3dE5fG7h".repeat(8))
}

fn long_talk() -> Transcript {
    let mut talk = TranscriptBuilder::new();
    talk.user("Help me plan the year.").assistant("Gladly.");
    talk.user("What do you know of my family?")
        .assistant("Your sister Irene keeps a saffron farm near Teruel.");
    talk.user(&format!("The key of the booking is {}.", secret())).assistant("Noted.");
    for number in 0..120 {
        talk.user(&format!("What about week {number}?"));
        talk.assistant(
            &format!("Week {number} has room for a walk and some reading at home. ").repeat(4),
        );
    }
    talk.user(PROMPT);
    talk.transcript()
}

fn environment(url: Option<&str>) -> EngineEnvironment {
    let timeouts =
        EngineTimeouts { create_ms: 60_000, assemble_ms: 60_000, ..EngineTimeouts::default() };
    let mut environment = EngineEnvironment::new(timeouts, HostClock::default());
    let settings = |url: &str| EndpointSettings {
        url: url.to_owned(),
        model: "meanings".into(),
        api_key_env: None,
        timeout_ms: 20_000,
        batch_texts: 50,
        retries: 0,
    };
    environment.embedder = url
        .map(|url| Arc::new(EndpointEmbedder::new(settings(url), Handle::current()).unwrap()) as _);
    environment
}

fn forms() -> Vec<(&'static str, EngineSpec)> {
    let config = json!({ "embed_wait_ms": 20_000 });
    let file = |isolation| {
        let mut spec = EngineSpec::file("recall", &bundled_library("recall"), config.clone());
        spec.isolation = isolation;
        spec.sandbox.program = Some(ctxhost().get_program().into());
        spec
    };
    vec![
        ("linked", EngineSpec::bundled("recall", config.clone())),
        ("thread", file(Isolation::Thread)),
        ("process", file(Isolation::Process)),
    ]
}

async fn assemble(engine: &EngineInstance) -> Plan {
    let session = SessionRef { id: "s".into(), ..SessionRef::default() };
    let request =
        AssembleRequest { session, budget: 2_000, prompt: PROMPT.into(), ..Default::default() };
    engine.assemble(long_talk(), request).await.unwrap()
}

fn seen(plan: &Plan) -> String {
    let transcript = long_talk();
    let texts = plan.project(&transcript).into_iter().map(|item| item.text().into_owned());
    texts.collect::<Vec<_>>().join("\n")
}

#[test]
fn every_form_of_an_engine_finds_by_meaning_and_sends_no_secret() {
    let runtime = Runtime::new().unwrap();
    let (server, url) = VectorServer::start(&runtime);
    let mut plans = Vec::new();
    for (name, spec) in forms() {
        server.bodies.lock().unwrap().clear();
        let plan = runtime.block_on(async {
            let engine = EngineInstance::open(&spec, &environment(Some(&url))).unwrap();
            assemble(&engine).await
        });
        assert!(seen(&plan).contains("Teruel"), "{name}: {}", seen(&plan));
        let sent = server.bodies().concat();
        assert!(sent.contains("saffron") && sent.contains("booking is"), "{name}");
        assert!(!sent.contains(&secret()), "{name}");
        plans.push(plan);
    }
    assert!(plans.windows(2).all(|two| two[0] == two[1]), "the same in every form");
}

#[test]
fn a_failing_server_leaves_the_plan_of_an_engine_without_embedder() {
    let runtime = Runtime::new().unwrap();
    let (server, url) = VectorServer::start(&runtime);
    server.fails.store(true, Ordering::Relaxed);
    for (name, spec) in forms() {
        server.bodies.lock().unwrap().clear();
        runtime.block_on(async {
            let without = EngineInstance::open(&spec, &environment(None)).unwrap();
            let engine = EngineInstance::open(&spec, &environment(Some(&url))).unwrap();
            let plain = assemble(&without).await;
            assert!(!seen(&plain).contains("Teruel"), "{name}: no word in common");
            assert_eq!(assemble(&engine).await, plain, "{name}");
            assert_eq!(assemble(&engine).await, plain, "{name}");
            let status = engine.status().await.unwrap();
            assert!(status.summary.contains("ranked by words alone"), "{}", status.summary);
        });
        assert_eq!(server.bodies().len(), 1, "{name}: no second request within the pause");
    }
}
