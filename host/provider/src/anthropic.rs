//! Anthropic's messages: how they are written, rules A-1 to A-22, and how answers stream.
//!
//! ```text
//!  messages ─► history (A-1 to A-11, A-14 to A-16, A-19, A-20) ─┐
//!  tools ────► tools   (A-9, A-10, A-18) ───────────────────────┼─► cache (A-12) ─► body
//!  level ────► thinking (A-13, A-14) ───────────────────────────┘
//! ```
//!
//! What the encoder cannot keep: A-2 and A-22 (the runtime knows the window and the model's limit) and
//! the pixels of A-19. Thinking is sent back in every turn and not in the latest alone (A-17), because
//! leaving it out changes the prefix that later thinking may be bound to (A-21).

mod cache;
mod decoder;
mod history;
mod thinking;
mod tools;

#[cfg(test)]
mod tests;

pub(super) use decoder::count as count_usage;

use serde_json::{Map, Value, json};

use super::dialect::{Decoder, Dialect};
use super::plain::decimal;
use super::request::ModelRequest;
use super::round::is_blank;
use thinking::Thinking;

const API: &str = "anthropic-messages";
const VERSION: &str = "2023-06-01";
const CONTEXT_EDITING_BETA: &str = "context-management-2025-06-27";
const THINKING_BINDING_BETA: &str = "thinking-binding-controls-2026-08-01";

/// Tokens of an answer where the request names no limit: the field is mandatory, and every model that
/// is still served gives as many.
const OUTPUT_DEFAULT_TOKENS: u64 = 8_192;

/// Anthropic's dialect, spoken by others too.
#[derive(Clone, Debug, Default)]
pub struct Anthropic {
    /// Lets the provider clear old tool results by itself; off by default, since the engine does that.
    pub context_editing: Option<ContextEditing>,
    /// Whether cached prompts live for an hour instead of five minutes: writing them costs 2 times the
    /// input price then and not 1.25 times.
    pub one_hour_cache: bool,
    /// Whether the provider shall leave out thinking whose conversation has changed before it, instead
    /// of refusing the request (A-21). Off by default: only the newest models know it.
    pub drop_unbound_thinking: bool,
}

/// When the provider clears old tool results (`clear_tool_uses_20250919`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ContextEditing {
    /// The prompt from which on it does, in provider tokens.
    pub trigger_tokens: u64,
    /// The newest calls that stay whole.
    pub keep_calls: u64,
    /// What it clears at least, or it does nothing: each clearing costs the cache. 0 for any number.
    pub clear_at_least_tokens: u64,
    /// Tools whose results are never cleared.
    pub exclude_tools: Vec<String>,
    /// Whether the arguments of the calls are cleared too.
    pub clear_arguments: bool,
}

impl Default for ContextEditing {
    /// The provider's own defaults.
    fn default() -> Self {
        ContextEditing {
            trigger_tokens: 100_000,
            keep_calls: 3,
            clear_at_least_tokens: 0,
            exclude_tools: Vec::new(),
            clear_arguments: false,
        }
    }
}

impl Dialect for Anthropic {
    fn api(&self) -> &'static str {
        API
    }

    fn path(&self, _request: &ModelRequest) -> String {
        "/v1/messages".to_owned()
    }

    fn window_query(&self, model: &str) -> Option<(String, Option<Value>)> {
        Some((format!("/v1/models/{model}"), None))
    }

    fn key_header(&self) -> (&'static str, &'static str) {
        ("x-api-key", "")
    }

    fn headers(&self, _request: &ModelRequest) -> Vec<(&'static str, String)> {
        let mut headers = vec![("anthropic-version", VERSION.to_owned())];
        let betas: Vec<_> = self.betas().collect();
        if !betas.is_empty() {
            headers.push(("anthropic-beta", betas.join(",")));
        }
        headers
    }

    fn encode(&self, request: &ModelRequest) -> Value {
        let mut body = self.prompt(request);
        body.insert("max_tokens".into(), output_tokens(request).into());
        body.insert("stream".into(), true.into());
        if let Some(temperature) = temperature(request, &body) {
            body.insert("temperature".into(), decimal(temperature));
        }
        Value::Object(body)
    }

    fn decoder(&self) -> Box<dyn Decoder> {
        Box::new(decoder::AnthropicDecoder::default())
    }

    fn count(&self, request: &ModelRequest) -> Option<(String, Value)> {
        Some(("/v1/messages/count_tokens".to_owned(), Value::Object(self.prompt(request))))
    }

    fn counted(&self, answer: &Value) -> Option<u64> {
        answer.get("input_tokens")?.as_u64()
    }
}

impl Anthropic {
    /// The fields that count as prompt.
    fn prompt(&self, request: &ModelRequest) -> Map<String, Value> {
        let mut messages = history::messages(request);
        let thinking = Thinking::of(request, output_tokens(request), &messages);
        let mut tools = tools::declared(request);
        let mut system = system(&request.system);
        cache::mark(&mut tools.list, &mut system, &mut messages, self.one_hour_cache);

        let mut body = Map::new();
        body.insert("model".into(), request.model.clone().into());
        insert_unless_empty(&mut body, "system", system);
        insert_unless_empty(&mut body, "tools", tools.list);
        if tools.are_history {
            body.insert("tool_choice".into(), json!({ "type": "none" }));
        }
        let messages: Vec<_> = messages.into_iter().map(Value::from).collect();
        body.insert("messages".into(), messages.into());
        thinking.write(&mut body, self.drop_unbound_thinking);
        if let Some(editing) = &self.context_editing {
            body.insert("context_management".into(), editing.field());
        }
        body
    }

    fn betas(&self) -> impl Iterator<Item = &'static str> {
        let editing = self.context_editing.as_ref().map(|_| CONTEXT_EDITING_BETA);
        let binding = self.drop_unbound_thinking.then_some(THINKING_BINDING_BETA);
        editing.into_iter().chain(binding)
    }
}

impl ContextEditing {
    fn field(&self) -> Value {
        let mut edit = json!({
            "type": "clear_tool_uses_20250919",
            "trigger": { "type": "input_tokens", "value": self.trigger_tokens },
            "keep": { "type": "tool_uses", "value": self.keep_calls },
            "clear_tool_inputs": self.clear_arguments,
        });
        if let Some(edit) = edit.as_object_mut() {
            if self.clear_at_least_tokens > 0 {
                let least = json!({ "type": "input_tokens", "value": self.clear_at_least_tokens });
                edit.insert("clear_at_least".into(), least);
            }
            if !self.exclude_tools.is_empty() {
                edit.insert("exclude_tools".into(), self.exclude_tools.clone().into());
            }
        }
        json!({ "edits": [edit] })
    }
}

fn system(text: &str) -> Vec<Value> {
    let block = || json!({ "type": "text", "text": text });
    if is_blank(text) { Vec::new() } else { vec![block()] }
}

fn output_tokens(request: &ModelRequest) -> u64 {
    match request.max_output_tokens {
        0 => OUTPUT_DEFAULT_TOKENS,
        tokens => tokens,
    }
}

/// The temperature, where it may be named: never with thinking (A-13).
fn temperature(request: &ModelRequest, body: &Map<String, Value>) -> Option<f32> {
    let may = !body.contains_key("thinking") && !thinking::is_adaptive(&request.model);
    request.temperature.filter(|_| may).map(|temperature| temperature.clamp(0.0, 1.0))
}

fn insert_unless_empty(body: &mut Map<String, Value>, key: &str, values: Vec<Value>) {
    if !values.is_empty() {
        body.insert(key.to_owned(), values.into());
    }
}
