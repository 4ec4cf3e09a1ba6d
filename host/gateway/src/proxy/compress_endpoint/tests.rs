//! What the compression API reports of messages.

use std::sync::Arc;

use axum::body::Bytes;
use axum::http::HeaderMap;
use serde_json::{Value, json};

use crate::proxy::{ClientRequest, CompressedMessages, CompressionLimits, Endpoint, Proxy};
use ctxhost_agent::RuntimeBuilder;
use ctxhost_config::Config;
use ctxhost_dialects::DialectName;

async fn proxy(folder: &std::path::Path) -> Arc<Proxy> {
    let config = Config::parse("c", "[models.m]\nwindow_tokens = 100000\n").unwrap();
    let builder = RuntimeBuilder::from_config(&config).without_builtin_tools();
    let runtime = builder.store_folder(folder.join("engines")).build().await.unwrap();
    Proxy::new(runtime, &config, folder)
}

fn request(body: &Value) -> ClientRequest {
    ClientRequest {
        endpoint: Endpoint::generate(DialectName::OpenAiCompletions),
        provider: "openai".into(),
        headers: HeaderMap::new(),
        body: Bytes::from(body.to_string()),
    }
}

async fn compress(proxy: &Arc<Proxy>, body: &Value) -> CompressedMessages {
    proxy.compress(&request(body), CompressionLimits::default()).await.unwrap().unwrap()
}

fn conversation() -> Value {
    let call = json!({ "id": "c", "type": "function", "function": { "name": "f", "arguments": "{\"a\":1}" } });
    let tool = json!({ "type": "function", "function": { "name": "f", "description": "word ".repeat(400) } });
    json!({
        "model": "m", "tools": [tool],
        "response_format": { "type": "json_object", "words": "word ".repeat(50) },
        "messages": [
            { "role": "system", "content": "word ".repeat(100) },
            { "role": "user", "content": "look \"here\"\n".repeat(50) },
            { "role": "assistant", "content": null, "tool_calls": [call] },
            { "role": "tool", "tool_call_id": "c", "content": "line\n".repeat(300) },
            { "role": "user", "content": "and now?" },
        ],
    })
}

#[tokio::test]
async fn unchanged_messages_are_counted_like_compressed_ones() {
    let folder = tempfile::tempdir().unwrap();
    let proxy = proxy(folder.path()).await;
    let body = conversation();
    let before_compression = proxy.estimate_request(&request(&body)).await;
    let compressed = compress(&proxy, &body).await;
    assert_eq!(before_compression, Some(compressed.before_tokens));
    assert_eq!(compressed.after_tokens, compressed.before_tokens);
    assert_eq!(proxy.estimate_request(&request(&json!({ "messages": [5] }))).await, None);
}

#[tokio::test]
async fn a_repeated_call_is_not_a_compaction_of_the_client() {
    let folder = tempfile::tempdir().unwrap();
    let proxy = proxy(folder.path()).await;
    let body = conversation();
    for call in 1..=2 {
        assert_eq!(compress(&proxy, &body).await.report.compaction, "none", "call {call}");
    }
}
