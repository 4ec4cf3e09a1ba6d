//! A minimal client of each dialect.

use std::sync::OnceLock;
use std::time::Duration;

use ctxhost_tests::rules::Wire;
use ctxhost_tests::scripted::ScriptedServer;
use reqwest::header::HeaderMap;
use serde_json::{Value, json};

/// What came back.
#[derive(Debug)]
pub(crate) struct Came {
    pub(crate) status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) text: String,
    pub(crate) chunks: Vec<Vec<u8>>,
}

impl Came {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }
}

/// What a stream said.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct ReceivedRequest {
    pub(crate) text: String,
    pub(crate) thinking: String,
    pub(crate) signature: String,
    /// Ids, names and arguments of calls.
    pub(crate) calls: Vec<(String, String, Value)>,
    pub(crate) stop: String,
    pub(crate) prompt_tokens: u64,
    pub(crate) cached_tokens: u64,
}

/// A client that fails rather than waits. One for all tests, because it reads certificates when it is
/// built; without a pool, because each test has a runtime of its own.
pub(crate) fn client() -> &'static reqwest::Client {
    static CLIENT: OnceLock<reqwest::Client> = OnceLock::new();
    _ = rustls::crypto::ring::default_provider().install_default();
    let build = || reqwest::Client::builder().no_proxy().pool_max_idle_per_host(0);
    CLIENT.get_or_init(|| build().timeout(Duration::from_secs(5)).build().unwrap())
}

/// The path and the body of a request with one message and perhaps one tool.
pub(crate) fn request(wire: Wire, text: &str, with_tool: bool) -> (String, Value) {
    let schema =
        json!({"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]});
    let function = json!({"type": "function", "function": {"name": "read", "parameters": schema}});
    let (path, mut body, tool) = match wire {
        Wire::OpenAiChat => (
            "/v1/chat/completions",
            json!({"model": "m", "stream": true, "stream_options": {"include_usage": true}, "max_tokens": 500,
                "messages": [{"role": "user", "content": text}]}),
            function,
        ),
        Wire::Responses => (
            "/v1/responses",
            json!({"model": "m", "stream": true, "store": false, "max_output_tokens": 500,
                "include": ["reasoning.encrypted_content"],
                "input": [{"role": "user", "content": [{"type": "input_text", "text": text}]}]}),
            json!({"type": "function", "name": "read", "parameters": schema}),
        ),
        Wire::Anthropic => (
            "/v1/messages",
            json!({"model": "m", "stream": true, "max_tokens": 500,
                "messages": [{"role": "user", "content": [{"type": "text", "text": text}]}]}),
            json!({"name": "read", "input_schema": schema}),
        ),
        Wire::Gemini => (
            "/v1beta/models/gemini-3-pro:streamGenerateContent?alt=sse",
            json!({"generationConfig": {"maxOutputTokens": 500},
                "contents": [{"role": "user", "parts": [{"text": text}]}]}),
            json!({"functionDeclarations": [{"name": "read", "parameters": schema}]}),
        ),
        Wire::Ollama => (
            "/api/chat",
            json!({"model": "m", "options": {"num_ctx": 32_000}, "messages": [{"role": "user", "content": text}]}),
            function,
        ),
    };
    if with_tool {
        body["tools"] = json!([tool]);
    }
    (path.to_owned(), body)
}

/// Sends a request.
pub(crate) async fn send(
    server: &ScriptedServer,
    path: &str,
    body: &Value,
) -> reqwest::Result<Came> {
    let url = format!("{}{path}", server.url());
    let post =
        client().post(url).header("anthropic-version", "2023-06-01").header("x-api-key", "k-123");
    let mut response = post.json(body).send().await?;
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    let mut chunks: Vec<Vec<u8>> = Vec::new();
    while let Some(chunk) = response.chunk().await? {
        chunks.push(chunk.to_vec());
    }
    let text = String::from_utf8(chunks.concat()).unwrap();
    Ok(Came { status, headers, text, chunks })
}

/// Sends a plain request.
pub(crate) async fn ask(server: &ScriptedServer, wire: Wire, text: &str) -> reqwest::Result<Came> {
    let (path, body) = request(wire, text, true);
    send(server, &path, &body).await
}

/// The JSON of each frame.
pub(crate) fn frames(wire: Wire, text: &str) -> Vec<Value> {
    let parse =
        |json: &str| serde_json::from_str(json).unwrap_or_else(|error| panic!("{error}: {json}"));
    if wire == Wire::Ollama {
        return text.lines().map(parse).collect();
    }
    let data = text.lines().filter_map(|line| line.strip_prefix("data: "));
    data.filter(|data| *data != "[DONE]").map(parse).collect()
}

/// Puts a stream together.
pub(crate) fn hear(wire: Wire, text: &str) -> ReceivedRequest {
    let mut received = ReceivedRequest::default();
    for frame in frames(wire, text) {
        match wire {
            Wire::OpenAiChat => received.chat(&frame),
            Wire::Responses => received.responses(&frame),
            Wire::Anthropic => received.anthropic(&frame),
            Wire::Gemini => received.gemini(&frame),
            Wire::Ollama => received.ollama(&frame),
        }
    }
    for (_, _, arguments) in &mut received.calls {
        if let Some(text) = arguments.as_str() {
            *arguments = serde_json::from_str(text).unwrap();
        }
    }
    received
}

fn add(to: &mut String, piece: &Value) {
    to.push_str(piece.as_str().unwrap_or_default());
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

impl ReceivedRequest {
    fn more_arguments(&mut self, piece: &Value) {
        let (_, _, arguments) = self.calls.last_mut().unwrap();
        *arguments = json!(text(arguments) + piece.as_str().unwrap());
    }

    fn chat(&mut self, frame: &Value) {
        let choice = &frame["choices"][0];
        add(&mut self.text, &choice["delta"]["content"]);
        add(&mut self.thinking, &choice["delta"]["reasoning_content"]);
        for call in choice["delta"]["tool_calls"].as_array().into_iter().flatten() {
            if call.get("id").is_some() {
                self.calls.push((text(&call["id"]), text(&call["function"]["name"]), json!("")));
            }
            self.more_arguments(&call["function"]["arguments"]);
        }
        add(&mut self.stop, &choice["finish_reason"]);
        self.prompt_tokens += frame["usage"]["prompt_tokens"].as_u64().unwrap_or(0);
        self.cached_tokens +=
            frame["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap_or(0);
    }

    fn responses(&mut self, frame: &Value) {
        let item = &frame["item"];
        match frame["type"].as_str().unwrap() {
            "response.output_text.delta" => add(&mut self.text, &frame["delta"]),
            "response.reasoning_summary_text.delta" => add(&mut self.thinking, &frame["delta"]),
            "response.function_call_arguments.delta" => self.more_arguments(&frame["delta"]),
            "response.output_item.added" if item["type"] == "function_call" => {
                self.calls.push((text(&item["call_id"]), text(&item["name"]), json!("")));
            }
            "response.output_item.done" => add(&mut self.signature, &item["encrypted_content"]),
            "response.completed" => {
                self.stop = "completed".into();
                let usage = &frame["response"]["usage"];
                self.prompt_tokens = usage["input_tokens"].as_u64().unwrap();
                self.cached_tokens =
                    usage["input_tokens_details"]["cached_tokens"].as_u64().unwrap();
            }
            _ => {}
        }
    }

    fn anthropic(&mut self, frame: &Value) {
        let (block, delta) = (&frame["content_block"], &frame["delta"]);
        match frame["type"].as_str().unwrap() {
            "message_start" => {
                let usage = &frame["message"]["usage"];
                let of = |field: &str| usage[field].as_u64().unwrap();
                self.cached_tokens = of("cache_read_input_tokens");
                self.prompt_tokens =
                    of("input_tokens") + of("cache_creation_input_tokens") + self.cached_tokens;
            }
            "content_block_start" if block["type"] == "tool_use" => {
                self.calls.push((text(&block["id"]), text(&block["name"]), json!("")));
            }
            "content_block_delta" if delta["type"] == "input_json_delta" => {
                self.more_arguments(&delta["partial_json"]);
            }
            "content_block_delta" => {
                add(&mut self.text, &delta["text"]);
                add(&mut self.thinking, &delta["thinking"]);
                add(&mut self.signature, &delta["signature"]);
            }
            "message_delta" => add(&mut self.stop, &delta["stop_reason"]),
            _ => {}
        }
    }

    fn gemini(&mut self, frame: &Value) {
        let candidate = &frame["candidates"][0];
        for part in candidate["content"]["parts"].as_array().into_iter().flatten() {
            add(&mut self.signature, &part["thoughtSignature"]);
            let to = if part["thought"] == true { &mut self.thinking } else { &mut self.text };
            add(to, &part["text"]);
            if let Some(call) = part.get("functionCall") {
                self.calls.push((text(&call["id"]), text(&call["name"]), call["args"].clone()));
            }
        }
        add(&mut self.stop, &candidate["finishReason"]);
        self.prompt_tokens = frame["usageMetadata"]["promptTokenCount"].as_u64().unwrap();
        self.cached_tokens =
            frame["usageMetadata"]["cachedContentTokenCount"].as_u64().unwrap_or(0);
    }

    fn ollama(&mut self, frame: &Value) {
        let message = &frame["message"];
        add(&mut self.text, &message["content"]);
        add(&mut self.thinking, &message["thinking"]);
        for call in message["tool_calls"].as_array().into_iter().flatten() {
            let function = &call["function"];
            self.calls.push((
                text(&call["id"]),
                text(&function["name"]),
                function["arguments"].clone(),
            ));
        }
        if frame["done"] == true {
            self.stop = text(&frame["done_reason"]);
            self.prompt_tokens = frame["prompt_eval_count"].as_u64().unwrap();
        }
    }
}
