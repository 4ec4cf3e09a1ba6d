//! Ollama's own chat.

use serde_json::{Value, json};

use super::*;
use crate::scripted::answer::{Block, Stop};

/// The window of a server that nobody tells another one, in tokens.
const DEFAULT_WINDOW_TOKENS: u64 = 4_096;

pub(super) struct Ollama;

impl Speech for Ollama {
    fn endpoint(&self, path: &str) -> Option<Endpoint> {
        path.ends_with("/api/chat").then_some(Endpoint::Answer)
    }

    fn streams(&self, inquiry: &Inquiry<'_>) -> bool {
        inquiry.body["stream"] != false
    }

    /// The answer may use what the prompt leaves of the window, so none is reserved.
    fn output_tokens(&self, _body: &Value) -> Option<u64> {
        None
    }

    fn window_tokens(&self, body: &Value) -> Option<u64> {
        Some(body["options"]["num_ctx"].as_u64().unwrap_or(DEFAULT_WINDOW_TOKENS))
    }

    fn said(&self, body: &Value) -> Vec<Said> {
        let said = |message: &Value| Said {
            by: speaker(message["role"].as_str().unwrap_or_default()),
            text: string(&message["content"]),
        };
        items(body, "messages").map(said).collect()
    }

    fn tools(&self, body: &Value) -> Vec<Offer> {
        items(body, "tools").map(|tool| offer(&tool["function"], "parameters")).collect()
    }

    fn caching(&self, _body: &Value) -> Caching {
        Caching::Off
    }

    fn prefixes(&self) -> (&'static str, &'static str) {
        ("", "call_")
    }

    fn content_type(&self) -> &'static str {
        "application/x-ndjson"
    }

    fn frames(
        &self,
        answer: &Answer,
        _inquiry: &Inquiry<'_>,
        pieces: &mut Pieces<'_>,
    ) -> Vec<Frame> {
        let mut frames = Vec::new();
        for block in &answer.blocks {
            match block {
                Block::Think { text, .. } => {
                    let thought = |piece| {
                        line(&part(
                            answer,
                            json!({"role": "assistant", "content": "", "thinking": piece}),
                        ))
                    };
                    frames.extend(pieces.of(text).into_iter().map(thought));
                }
                Block::Text { text, .. } => {
                    let said = |piece| {
                        line(&part(answer, json!({"role": "assistant", "content": piece}))).said()
                    };
                    frames.extend(pieces.of(text).into_iter().map(said));
                }
                Block::Call { .. } => {
                    let calls = json!([call(block)]);
                    frames.push(line(&part(
                        answer,
                        json!({"role": "assistant", "content": "", "tool_calls": calls}),
                    )));
                }
            }
        }
        let mut last = part(answer, json!({"role": "assistant", "content": ""}));
        finish(&mut last, answer);
        frames.push(line(&last));
        frames
    }

    fn whole(&self, answer: &Answer, _inquiry: &Inquiry<'_>) -> Value {
        let (mut text, mut thinking) = (String::new(), String::new());
        for block in &answer.blocks {
            match block {
                Block::Think { text: more, .. } => thinking.push_str(more),
                Block::Text { text: more, .. } => text.push_str(more),
                Block::Call { .. } => {}
            }
        }
        let mut message = json!({"role": "assistant", "content": text});
        if !thinking.is_empty() {
            message["thinking"] = json!(thinking);
        }
        let calls = answer.blocks.iter().filter(|block| matches!(block, Block::Call { .. }));
        let calls: Vec<Value> = calls.map(call).collect();
        if !calls.is_empty() {
            message["tool_calls"] = json!(calls);
        }
        let mut whole = part(answer, message);
        finish(&mut whole, answer);
        whole
    }

    fn counted(&self, tokens: u64) -> Value {
        json!({"prompt_eval_count": tokens})
    }

    fn refuse(&self, trouble: &Trouble) -> Refusal {
        let (status, message) = match trouble {
            Trouble::Overflow { prompt, window, .. } => (
                400,
                format!(
                    "prompt too long; exceeded max context length by {} tokens",
                    prompt.saturating_sub(*window)
                ),
            ),
            Trouble::OutputLimit { asked, most } => {
                (400, format!("num_predict {asked} is above {most}"))
            }
            Trouble::Malformed(broken) => (400, broken.why.clone()),
            Trouble::RateLimited { .. } => (429, "too many requests".into()),
            Trouble::Overloaded => {
                (503, "server busy, please try again.  maximum pending requests exceeded".into())
            }
            Trouble::ServerError => {
                (500, "llama runner process has terminated: exit status 2".into())
            }
            Trouble::Unauthorized => (401, "unauthorized".into()),
            Trouble::NoCredit => {
                (402, "this model requires a subscription, upgrade for access".into())
            }
            Trouble::NoModel(model) => (404, format!("model '{model}' not found")),
            Trouble::NotFound => (404, "404 page not found".into()),
        };
        Refusal::new(status, json!({"error": message})).after(trouble)
    }

    fn break_off(&self, _answer: &Answer, trouble: &Trouble) -> Broke {
        Broke::Frame(line(&self.refuse(trouble).body))
    }

    /// The oldest message that is no system prompt goes; the newest one stays.
    fn forget(&self, body: &Value) -> Option<Value> {
        let messages = body["messages"].as_array()?;
        let oldest = messages.iter().position(|message| message["role"] != "system")?;
        if oldest + 1 >= messages.len() {
            return None;
        }
        let mut shorter = body.clone();
        shorter["messages"].as_array_mut()?.remove(oldest);
        Some(shorter)
    }
}

fn part(answer: &Answer, message: Value) -> Value {
    json!({"model": answer.model, "created_at": "2026-11-21T10:00:00.000000Z", "message": message, "done": false})
}

fn call(block: &Block) -> Value {
    let Block::Call { call_id, tool, args, .. } = block else { return Value::Null };
    json!({"id": call_id, "function": {"name": tool, "arguments": args}})
}

fn finish(last: &mut Value, answer: &Answer) {
    let reason = match answer.stop {
        Stop::Done | Stop::Calls => "stop",
        Stop::Length | Stop::Window => "length",
    };
    last["done"] = json!(true);
    last["done_reason"] = json!(reason);
    last["total_duration"] = json!(1_200_000_000);
    last["load_duration"] = json!(20_000_000);
    last["prompt_eval_count"] = json!(answer.usage.prompt);
    last["prompt_eval_duration"] = json!(300_000_000);
    last["eval_count"] = json!(answer.usage.output);
    last["eval_duration"] = json!(800_000_000);
}
