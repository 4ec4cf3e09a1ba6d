//! A request that the upstream rejected as too large and that is shaped again.

use std::sync::atomic::{AtomicU32, Ordering};

use axum::body::Bytes;
use ctxhost_engine_api::*;
use serde_json::{Value, json};

use crate::proxy::{ClientRequest, Endpoint, Proxy, ProxyAction};
use ctxhost_agent::RuntimeBuilder;
use ctxhost_config::Config;
use ctxhost_dialects::{DialectName, FailureReason, ProviderError};
use ctxhost_engine::EngineSpec;

/// How often the engine was asked for a compaction.
static COMPACTIONS: AtomicU32 = AtomicU32::new(0);

/// How often it was asked for a plan.
static PLANS: AtomicU32 = AtomicU32::new(0);

/// An engine that keeps all entries at first, then only the last three, and requests a compaction.
struct Eager;

impl ContextEngine for Eager {
    const INFO: Info = Info::new("eager", "Eager", "1.0.0");

    fn create(_: Host, _: Value) -> Result<Self> {
        Ok(Eager)
    }

    async fn assemble(&self, view: Transcript, _: AssembleRequest) -> Result<Plan> {
        let entries = view.len() as u64;
        if PLANS.fetch_add(1, Ordering::Relaxed) == 0 {
            return Ok(Plan::keep_all(view.len()));
        }
        let mut plan = Plan::default();
        plan.keep(entries - 3..entries);
        plan.extras.compaction_wanted = Some("it would like to".into());
        Ok(plan)
    }

    async fn compact(&self, _: Transcript, _: CompactRequest) -> Result<Compaction> {
        COMPACTIONS.fetch_add(1, Ordering::Relaxed);
        Ok(Compaction::Delegate)
    }
}

#[tokio::test]
async fn a_retry_is_within_the_same_turn() {
    let folder = tempfile::tempdir().unwrap();
    let config = Config::parse("c", "[models.m]\nwindow_tokens = 100000\n").unwrap();
    let spec = EngineSpec::linked::<Eager>(json!({}));
    let builder = RuntimeBuilder::from_config(&config).engine_spec(spec).without_builtin_tools();
    let runtime = builder.store_folder(folder.path().join("engines")).build().await.unwrap();
    let proxy = Proxy::new(runtime, &config, folder.path());
    let messages = json!([
        { "role": "user", "content": "one" },
        { "role": "assistant", "content": "word ".repeat(200) },
        { "role": "user", "content": "do it" },
        { "role": "assistant", "content": [{ "type": "tool_use", "id": "c", "name": "t", "input": {} }] },
        { "role": "user", "content": [{ "type": "tool_result", "tool_use_id": "c", "content": "done" }] },
    ]);
    let body = json!({ "model": "m", "max_tokens": 10, "messages": messages });
    let request = ClientRequest {
        endpoint: Endpoint::generate(DialectName::AnthropicMessages),
        provider: "anthropic".into(),
        headers: axum::http::HeaderMap::new(),
        body: Bytes::from(body.to_string()),
    };
    let ProxyAction::Forward(first) = proxy.handle(&request).await else { panic!("answered here") };
    let failure = ProviderError {
        reason: FailureReason::ContextOverflow,
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
        is_byte_limit: false,
        has_clear_overflow_words: false,
        has_started: false,
    };
    let Some(ProxyAction::Forward(again)) = proxy.handle_refusal(first.in_flight, &failure).await
    else {
        panic!("not asked again");
    };
    assert!(again.report.tokens < first.report.tokens, "it is smaller");
    let compactions = COMPACTIONS.load(Ordering::Relaxed);
    assert_eq!(compactions, 0, "between turns is the time for what is only liked");
}
