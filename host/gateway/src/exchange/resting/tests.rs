//! Requests to an engine that has said how long it has nothing to do.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex};

use axum::body::Bytes;
use ctxhost_engine_api::*;
use serde_json::{Value, json};

use crate::exchange::{Door, Exchange, Forward, Incoming, Taken};
use ctxhost_config::Config;
use ctxhost_engine::EngineSpec;
use ctxhost_provider::{ProviderError, Reason};
use ctxhost_runtime::RuntimeBuilder;

/// What the engine promises.
const IDLE_TOKENS: u64 = 1_000;

/// How often the engine of each test was asked.
static ASKED: LazyLock<Mutex<HashMap<String, u32>>> = LazyLock::new(Mutex::default);

fn asked(test: &str) -> u32 {
    ASKED.lock().unwrap().get(test).copied().unwrap_or_default()
}

/// What compactions of a test are counted as.
fn compactions_of(test: &str) -> String {
    format!("{test}, compactions")
}

/// An engine that keeps all and says so; from the second time on it does as its config tells it.
struct Idle {
    test: String,
    then: String,
}

impl ContextEngine for Idle {
    const INFO: Info = Info::new("idle", "Idle", "1.0.0");

    fn create(_: Host, config: Value) -> Result<Self> {
        let text = |key: &str| config[key].as_str().unwrap_or_default().to_owned();
        Ok(Idle { test: text("test"), then: text("then") })
    }

    async fn ingest(&self, _: Transcript, request: IngestRequest) -> Result<Ingested> {
        Ok(Ingested { entries: request.entries.end - request.entries.start })
    }

    async fn assemble(&self, view: Transcript, _: AssembleRequest) -> Result<Plan> {
        let mut all = ASKED.lock().unwrap();
        let times = all.entry(self.test.clone()).or_default();
        *times += 1;
        let mut plan = Plan::keep_all(view.len());
        plan.extras.idle_within_tokens = Some(IDLE_TOKENS);
        match self.then.as_str() {
            "fail" if *times > 1 => return Err(EngineError::failed("as it was told to")),
            "forget" if *times > 1 => {
                plan = Plan::default();
                plan.keep(view.len() as u64 - 1..view.len() as u64);
            }
            "like to compact" if *times > 2 => {
                plan = Plan::default();
                plan.keep(view.len() as u64 - 3..view.len() as u64);
                plan.extras.compaction_wanted = Some("it would like to".into());
            }
            "promise nothing" => plan.extras.idle_within_tokens = None,
            _ => {}
        }
        Ok(plan)
    }

    async fn compact(&self, _: Transcript, _: CompactRequest) -> Result<Compaction> {
        *ASKED.lock().unwrap().entry(compactions_of(&self.test)).or_default() += 1;
        Ok(Compaction::Delegate)
    }
}

/// A client and the gateway that it talks to.
struct Stage {
    test: &'static str,
    exchange: Exchange,
    messages: Vec<Value>,
    _folder: tempfile::TempDir,
}

impl Stage {
    async fn new(test: &'static str, then: &str) -> Stage {
        let folder = tempfile::tempdir().unwrap();
        let config = Config::parse("c", "[models.m]\nwindow_tokens = 100000\n").unwrap();
        let spec = EngineSpec::linked::<Idle>(json!({ "test": test, "then": then }));
        let builder = RuntimeBuilder::of(&config).engine_spec(spec).without_builtin_tools();
        let runtime = builder.store_folder(folder.path().join("engines")).build().await.unwrap();
        let exchange = Exchange::new(runtime, &config, folder.path());
        Stage { test, exchange, messages: Vec::new(), _folder: folder }
    }

    /// The person says this, and the request is taken; how often the engine was asked until then.
    async fn say(&mut self, content: Value) -> (Forward, u32) {
        if !self.messages.is_empty() {
            self.messages.push(json!({ "role": "assistant", "content": "yes" }));
        }
        self.messages.push(json!({ "role": "user", "content": content }));
        self.take().await
    }

    /// The request with all messages is taken.
    async fn take(&mut self) -> (Forward, u32) {
        let body = json!({ "model": "m", "max_tokens": 10, "messages": self.messages });
        let incoming = Incoming {
            door: Door::Messages,
            provider: "anthropic".into(),
            headers: axum::http::HeaderMap::new(),
            body: Bytes::from(body.to_string()),
        };
        let Taken::Forward(forward) = self.exchange.take(&incoming).await else {
            panic!("answered here");
        };
        let is_as_it_came = forward.body == incoming.body;
        assert_eq!(is_as_it_came, forward.truth.tokens == forward.truth.before_tokens);
        (forward, asked(self.test))
    }
}

/// What was sent without its engine, and with it.
async fn settled((mut forward, before): (Forward, u32), test: &str) -> (Forward, u32) {
    forward.ticket.settled().await;
    (forward, asked(test) - before)
}

#[tokio::test]
async fn an_engine_that_has_nothing_to_do_is_asked_when_the_request_is_out() {
    let test = "goes on at once";
    let mut stage = Stage::new(test, "").await;
    let (first, behind) = settled(stage.say(json!("one")).await, test).await;
    assert_eq!((first.truth.engine.as_str(), asked(test), behind), ("idle", 1, 0));
    for word in ["two", "three"] {
        let before = asked(test);
        let (forward, behind) = settled(stage.say(json!(word)).await, test).await;
        assert_eq!((asked(test) - before, behind), (1, 1), "{word} has not waited");
        assert_eq!(forward.truth.engine, "idle");
        let tokens = forward.truth.tokens;
        assert!(tokens.is_some());
        drop(forward);
        stage.messages.truncate(stage.messages.len() - 2);
        let (again, behind) = settled(stage.say(json!(word)).await, test).await;
        assert_eq!((again.truth.tokens, behind), (tokens, 0), "the same request is asked first");
    }
}

#[tokio::test]
async fn what_the_promise_is_not_about_is_asked_first() {
    let test = "asked first";
    let mut stage = Stage::new(test, "").await;
    drop(settled(stage.say(json!("one")).await, test).await);
    let image =
        json!([{ "type": "image", "source": { "type": "url", "url": "https://a.b/c.png" } }]);
    let (_, behind) = settled(stage.say(image).await, test).await;
    assert_eq!((asked(test), behind), (2, 0), "an image");
    let (_, behind) = settled(stage.say(json!("and?")).await, test).await;
    assert_eq!((asked(test), behind), (3, 0), "an image stands in it");
    let (_, behind) = settled(stage.say(json!("long ".repeat(1_000))).await, test).await;
    assert_eq!((asked(test), behind), (4, 0), "more than it promised");
    let test = "promises nothing";
    let mut stage = Stage::new(test, "promise nothing").await;
    for number in 1..4 {
        let (_, behind) = settled(stage.say(json!("word")).await, test).await;
        assert_eq!((asked(test), behind), (number, 0));
    }
}

#[tokio::test]
async fn an_engine_that_breaks_its_promise_is_asked_first_from_then_on() {
    let test = "breaks its promise";
    let mut stage = Stage::new(test, "forget").await;
    drop(settled(stage.say(json!("one")).await, test).await);
    let (second, behind) = settled(stage.say(json!("two")).await, test).await;
    assert_eq!((second.truth.tokens == second.truth.before_tokens, behind), (true, 1));
    let (third, behind) = settled(stage.say(json!("three")).await, test).await;
    assert_eq!((third.truth.tokens < third.truth.before_tokens, behind), (true, 0));
}

#[tokio::test]
async fn an_engine_that_fails_behind_an_answer_does_not_shape_the_next_request() {
    let test = "fails behind";
    let mut stage = Stage::new(test, "fail").await;
    drop(settled(stage.say(json!("one")).await, test).await);
    let (second, behind) = settled(stage.say(json!("two")).await, test).await;
    assert_eq!((second.truth.engine.as_str(), behind), ("idle", 1));
    let (third, _) = settled(stage.say(json!("three")).await, test).await;
    assert_eq!(third.truth.engine, "legacy");
}

#[tokio::test]
async fn what_is_asked_again_is_known_to_be_in_the_middle_of_a_turn() {
    let test = "asked again";
    let mut stage = Stage::new(test, "like to compact").await;
    drop(settled(stage.say(json!("one")).await, test).await);
    stage.messages.extend([
        json!({ "role": "assistant", "content": "word ".repeat(200) }),
        json!({ "role": "user", "content": "do it" }),
    ]);
    drop(settled(stage.take().await, test).await);
    stage.messages.extend([
        json!({ "role": "assistant", "content": [{ "type": "tool_use", "id": "c", "name": "t", "input": {} }] }),
        json!({ "role": "user", "content": [{ "type": "tool_result", "tool_use_id": "c", "content": "done" }] }),
    ]);
    let (third, behind) = settled(stage.take().await, test).await;
    assert_eq!(behind, 1, "it has not waited");
    let failure = ProviderError {
        reason: Reason::ContextOverflow,
        provider: "anthropic".into(),
        model: "m".into(),
        status: Some(400),
        code: "context_length_exceeded".into(),
        message: "prompt is too long".into(),
        retry_after_ms: None,
        observed_tokens: None,
        limit_tokens: None,
        prompt_tokens: None,
        is_ceiling: false,
        began: false,
    };
    let Some(Taken::Forward(again)) = stage.exchange.refused(third.ticket, &failure).await else {
        panic!("not asked again");
    };
    assert!(again.truth.tokens < third.truth.tokens, "it is smaller");
    assert_eq!(asked(&compactions_of(test)), 0, "between turns is the time for what is only liked");
}
