//! Clients that send their whole history with every request, in each dialect.

use axum::body::Bytes;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use ctxhost_dialects::DialectName;
use ctxhost_gateway::proxy::{ClientRequest, Endpoint, PathModel};
use ctxhost_tests::rules::Wire;
use serde_json::{Value, json};

/// The dialects that gateways are asked in.
pub(crate) const WIRES: [Wire; 5] = Wire::ALL;

/// What its requests ask for at the most, in tokens.
pub(crate) const MAX_OUTPUT_TOKENS: u64 = 2_000;

/// A client in the middle of a conversation.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    pub(crate) wire: Wire,
    pub(crate) items: Vec<Value>,
    pub(crate) headers: HeaderMap,
    system: String,
    calls: usize,
}

impl Client {
    pub(crate) fn new(wire: Wire) -> Client {
        let mut headers = HeaderMap::new();
        headers.insert("anthropic-version", HeaderValue::from_static("2023-06-01"));
        let system = "You are a coding agent. Answer briefly.".to_owned();
        Client { wire, items: Vec::new(), headers, system, calls: 0 }
    }

    pub(crate) fn with_header(mut self, name: &'static str, value: &str) -> Client {
        self.headers.insert(HeaderName::from_static(name), value.parse().unwrap());
        self
    }

    pub(crate) fn model(&self) -> &'static str {
        match self.wire {
            Wire::Anthropic => "claude-sonnet-4-5",
            Wire::Gemini => "gemini-2.5-flash",
            Wire::Ollama => "qwen3:8b",
            _ => "gpt-5",
        }
    }

    /// The person speaks.
    pub(crate) fn say(&mut self, text: &str) {
        self.items.push(match self.wire {
            Wire::Anthropic | Wire::OpenAiChat | Wire::Ollama => {
                json!({ "role": "user", "content": text })
            }
            Wire::Gemini => json!({ "role": "user", "parts": [{ "text": text }] }),
            _ => {
                let content = [json!({ "type": "input_text", "text": text })];
                json!({ "type": "message", "role": "user", "content": content })
            }
        });
    }

    /// The model answers in words.
    pub(crate) fn answer(&mut self, text: &str) {
        match self.wire {
            Wire::Anthropic => {
                let content = [thought(text), json!({ "type": "text", "text": text })];
                self.items.push(json!({ "role": "assistant", "content": content }));
            }
            Wire::OpenAiChat | Wire::Ollama => {
                self.items.push(json!({ "role": "assistant", "content": text }));
            }
            Wire::Gemini => {
                self.items.push(json!({ "role": "model", "parts": [{ "text": text }] }));
            }
            _ => {
                self.items.push(reasoning(self.items.len(), text));
                let content = [json!({ "type": "output_text", "text": text })];
                self.items
                    .push(json!({ "type": "message", "role": "assistant", "content": content }));
            }
        }
    }

    /// The model reads files, all at once.
    pub(crate) fn read(&mut self, contents: &[String]) {
        let first = self.calls;
        self.calls += contents.len();
        let numbered = || contents.iter().enumerate().map(|(nth, text)| (first + nth, text));
        let path = |number: usize| json!({ "path": format!("src/file{number}.rs") });
        match self.wire {
            Wire::Anthropic => {
                let call = |(number, _)| {
                    let id = format!("toolu_{number}");
                    json!({ "type": "tool_use", "id": id, "name": "read", "input": path(number) })
                };
                let blocks: Vec<Value> = std::iter::once(thought(&format!("read {first}")))
                    .chain(numbered().map(call))
                    .collect();
                self.items.push(json!({ "role": "assistant", "content": blocks }));
                let result = |(number, text): (usize, &String)| {
                    let id = format!("toolu_{number}");
                    json!({ "type": "tool_result", "tool_use_id": id, "content": text })
                };
                let results: Vec<Value> = numbered().map(result).collect();
                self.items.push(json!({ "role": "user", "content": results }));
            }
            Wire::OpenAiChat => {
                let call = |(number, _)| {
                    let function = json!({ "name": "read", "arguments": path(number).to_string() });
                    json!({ "id": format!("call_{number}"), "type": "function", "function": function })
                };
                let calls: Vec<Value> = numbered().map(call).collect();
                self.items
                    .push(json!({ "role": "assistant", "content": null, "tool_calls": calls }));
                for (number, text) in numbered() {
                    let id = format!("call_{number}");
                    self.items.push(json!({ "role": "tool", "tool_call_id": id, "content": text }));
                }
            }
            Wire::Gemini => {
                let call = |(number, _)| json!({ "functionCall": { "name": "read", "args": path(number) } });
                let calls: Vec<Value> = numbered().map(call).collect();
                self.items.push(json!({ "role": "model", "parts": calls }));
                let response = |(_, text): (usize, &String)| {
                    let response = json!({ "output": text });
                    json!({ "functionResponse": { "name": "read", "response": response } })
                };
                let responses: Vec<Value> = numbered().map(response).collect();
                self.items.push(json!({ "role": "user", "parts": responses }));
            }
            Wire::Ollama => {
                let call = |(number, _)| json!({ "function": { "name": "read", "arguments": path(number) } });
                let calls: Vec<Value> = numbered().map(call).collect();
                self.items.push(json!({ "role": "assistant", "content": "", "tool_calls": calls }));
                let result =
                    |(_, text)| json!({ "role": "tool", "tool_name": "read", "content": text });
                self.items.extend(numbered().map(result));
            }
            _ => {
                self.items.push(reasoning(self.items.len(), &format!("read {first}")));
                for (number, _) in numbered() {
                    self.items.push(json!({
                        "type": "function_call", "id": format!("fc_{number}"), "name": "read",
                        "call_id": format!("call_{number}"), "arguments": path(number).to_string(),
                    }));
                }
                for (number, text) in numbered() {
                    let id = format!("call_{number}");
                    self.items.push(
                        json!({ "type": "function_call_output", "call_id": id, "output": text }),
                    );
                }
            }
        }
    }

    /// The body of the next request.
    pub(crate) fn body(&self) -> String {
        let schema = json!({
            "type": "object", "properties": { "path": { "type": "string" } }, "required": ["path"],
        });
        let (model, max) = (self.model(), MAX_OUTPUT_TOKENS);
        let body = match self.wire {
            Wire::Anthropic => json!({
                "model": model,
                "max_tokens": max,
                "thinking": { "type": "enabled", "budget_tokens": 1_024 },
                "system": [{ "type": "text", "text": self.system }],
                "tools": [{ "name": "read", "description": "Reads a file.", "input_schema": schema }],
                "messages": marked(&self.items),
                "stream": true,
            }),
            Wire::OpenAiChat => {
                let function =
                    json!({ "name": "read", "description": "Reads.", "parameters": schema });
                let system = json!({ "role": "system", "content": self.system });
                let messages: Vec<&Value> = std::iter::once(&system).chain(&self.items).collect();
                json!({
                    "model": model,
                    "max_completion_tokens": max,
                    "tools": [{ "type": "function", "function": function }],
                    "messages": messages,
                    "stream": true,
                })
            }
            Wire::Gemini => json!({
                "systemInstruction": { "parts": [{ "text": self.system }] },
                "tools": [{ "functionDeclarations": [
                    { "name": "read", "description": "Reads.", "parameters": schema },
                ] }],
                "generationConfig": { "maxOutputTokens": max },
                "contents": self.items,
            }),
            Wire::Ollama => {
                let function =
                    json!({ "name": "read", "description": "Reads.", "parameters": schema });
                let system = json!({ "role": "system", "content": self.system });
                let messages: Vec<&Value> = std::iter::once(&system).chain(&self.items).collect();
                json!({
                    "model": model,
                    "options": { "num_ctx": 200_000, "num_predict": max },
                    "tools": [{ "type": "function", "function": function }],
                    "messages": messages,
                })
            }
            _ => json!({
                "model": model,
                "instructions": self.system,
                "max_output_tokens": max,
                "store": false,
                "include": ["reasoning.encrypted_content"],
                "tools": [{ "type": "function", "name": "read", "parameters": schema }],
                "input": self.items,
                "stream": true,
            }),
        };
        body.to_string()
    }

    pub(crate) fn door(&self) -> Endpoint {
        let dialect = match self.wire {
            Wire::Anthropic => DialectName::AnthropicMessages,
            Wire::OpenAiChat => DialectName::OpenAiCompletions,
            Wire::Gemini => DialectName::GoogleGenerativeAi,
            Wire::Ollama => DialectName::Ollama,
            _ => DialectName::OpenAiResponses,
        };
        let in_path = (self.wire == Wire::Gemini)
            .then(|| PathModel { id: self.model().to_owned(), is_stream: Some(true) });
        Endpoint { path_model: in_path, ..Endpoint::generate(dialect) }
    }

    pub(crate) fn path(&self) -> String {
        match self.wire {
            Wire::Anthropic => "/v1/messages".to_owned(),
            Wire::OpenAiChat => "/v1/chat/completions".to_owned(),
            Wire::Gemini => format!("/v1beta/models/{}:streamGenerateContent", self.model()),
            Wire::Ollama => "/api/chat".to_owned(),
            _ => "/v1/responses".to_owned(),
        }
    }

    /// The next request.
    pub(crate) fn request(&self) -> ClientRequest {
        let (door, headers) = (self.door(), self.headers.clone());
        let provider = door.provider().into();
        ClientRequest { endpoint: door, provider, headers, body: Bytes::from(self.body()) }
    }
}

fn thought(text: &str) -> Value {
    let signature = format!("signature of {text}");
    json!({ "type": "thinking", "thinking": "Let me see.", "signature": signature })
}

fn reasoning(number: usize, text: &str) -> Value {
    let encrypted = format!("encrypted {text}");
    let id = format!("rs_{number}");
    json!({ "type": "reasoning", "id": id, "summary": [], "encrypted_content": encrypted })
}

/// The mark for the provider's cache wanders with the newest message, and its text becomes a block.
fn marked(items: &[Value]) -> Vec<Value> {
    let mut items = items.to_vec();
    if let Some(last) = items.last_mut() {
        if let Some(text) = last["content"].as_str() {
            last["content"] = json!([{ "type": "text", "text": text }]);
        }
        if let Some(block) = last["content"].as_array_mut().and_then(|blocks| blocks.last_mut()) {
            block["cache_control"] = json!({ "type": "ephemeral" });
        }
    }
    items
}
