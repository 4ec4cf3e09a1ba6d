//! OpenAI Responses.

use serde_json::{Value, json};

use super::openai_chat::plain;
use super::*;
use crate::scripted::answer::{Block, Stop};

pub(super) struct Responses;

impl Speech for Responses {
    fn endpoint(&self, path: &str) -> Option<Endpoint> {
        match path.rsplit('/').next() {
            Some("responses") => Some(Endpoint::Answer),
            Some("compact") => Some(Endpoint::Compact),
            Some("input_tokens") => Some(Endpoint::Count),
            _ => None,
        }
    }

    fn output_tokens(&self, body: &Value) -> Option<u64> {
        body["max_output_tokens"].as_u64()
    }

    fn said(&self, body: &Value) -> Vec<Said> {
        let mut said = Vec::new();
        if let Some(text) = body["instructions"].as_str() {
            said.push(Said { by: Speaker::System, text: text.into() });
        }
        if let Some(text) = body["input"].as_str() {
            said.push(Said { by: Speaker::User, text: text.into() });
        }
        said.extend(items(body, "input").filter_map(item_said));
        said
    }

    fn tools(&self, body: &Value) -> Vec<Offer> {
        items(body, "tools").map(|tool| offer(tool, "parameters")).collect()
    }

    fn prefixes(&self) -> (&'static str, &'static str) {
        ("resp_", "call_")
    }

    fn frames(
        &self,
        answer: &Answer,
        inquiry: &Inquiry<'_>,
        pieces: &mut Pieces<'_>,
    ) -> Vec<Frame> {
        let mut events = Events::default();
        let opening = response(answer, inquiry, "in_progress", &[]);
        events.add("response.created", json!({"response": opening}));
        events.add("response.in_progress", json!({"response": opening}));
        for (at, block) in answer.blocks.iter().enumerate() {
            let done = item(block, inquiry);
            events.add(
                "response.output_item.added",
                json!({"output_index": at, "item": begun(&done)}),
            );
            events.add_block(at, block, pieces);
            events.add("response.output_item.done", json!({"output_index": at, "item": done}));
        }
        let name =
            if answer.stop == Stop::Length { "response.incomplete" } else { "response.completed" };
        events.add(name, json!({"response": self.whole(answer, inquiry)}));
        events.frames
    }

    fn whole(&self, answer: &Answer, inquiry: &Inquiry<'_>) -> Value {
        let output: Vec<Value> = answer.blocks.iter().map(|block| item(block, inquiry)).collect();
        let status = if answer.stop == Stop::Length { "incomplete" } else { "completed" };
        let mut whole = response(answer, inquiry, status, &output);
        if answer.stop == Stop::Length {
            whole["incomplete_details"] = json!({"reason": "max_output_tokens"});
        }
        whole["usage"] = usage(answer);
        whole
    }

    fn counted(&self, tokens: u64) -> Value {
        json!({"object": "response.input_tokens", "input_tokens": tokens})
    }

    fn refuse(&self, trouble: &Trouble) -> Refusal {
        let invalid = "invalid_request_error";
        let body = match trouble {
            Trouble::Overflow { prompt, window, form: OverflowForm::Other, .. } => openai_error(
                &format!(
                    "Input tokens exceed the configured limit of {window} tokens. Your messages resulted in {prompt} tokens. Please reduce the length of the messages."
                ),
                invalid,
                Some("input"),
                Some("context_length_exceeded"),
            ),
            Trouble::Overflow { .. } => {
                openai_error(OVERFLOW, invalid, Some("input"), Some("context_length_exceeded"))
            }
            Trouble::OutputLimit { asked, most } => openai_error(
                &format!(
                    "Invalid 'max_output_tokens': integer above maximum value. Expected a value <= {most}, but got {asked} instead."
                ),
                invalid,
                Some("max_output_tokens"),
                Some("integer_above_max_value"),
            ),
            Trouble::Malformed(broken) => {
                let code =
                    if broken.rule == "R-6" { Some("invalid_encrypted_content") } else { None };
                openai_error(&broken.why, invalid, Some("input"), code)
            }
            other => return plain(other),
        };
        Refusal::new(400, body)
    }

    fn break_off(&self, answer: &Answer, trouble: &Trouble) -> Broke {
        let (code, message) = match trouble {
            Trouble::Overflow { .. } => ("context_length_exceeded", OVERFLOW),
            _ => ("server_error", "An error occurred while processing your request."),
        };
        let failed = json!({
            "type": "response.failed", "sequence_number": 9_999,
            "response": {"id": answer.id, "object": "response", "created_at": 1_790_000_000, "status": "failed",
                "model": answer.model, "output": [], "usage": null, "incomplete_details": null,
                "error": {"code": code, "message": message}},
        });
        Broke::Frame(event("response.failed", &failed))
    }
}

const OVERFLOW: &str =
    "Your input exceeds the context window of this model. Please adjust your input and try again.";

fn item_said(item: &Value) -> Option<Said> {
    let (by, text) = match item["type"].as_str().unwrap_or("message") {
        "message" => (speaker(item["role"].as_str()?), texts(&item["content"])),
        "function_call" => (Speaker::Assistant, string(&item["arguments"])),
        "function_call_output" => (Speaker::Tool, texts(&item["output"])),
        _ => return None,
    };
    Some(Said { by, text })
}

fn response(answer: &Answer, inquiry: &Inquiry<'_>, status: &str, output: &[Value]) -> Value {
    let store = inquiry.body["store"].as_bool().unwrap_or(true);
    json!({
        "id": answer.id, "object": "response", "created_at": 1_790_000_000, "status": status,
        "error": null, "incomplete_details": null, "model": answer.model, "output": output,
        "parallel_tool_calls": true, "store": store, "usage": null, "metadata": {},
    })
}

/// A finished item.
fn item(block: &Block, inquiry: &Inquiry<'_>) -> Value {
    match block {
        Block::Think { id, text, signature } => {
            let summary = json!([{"type": "summary_text", "text": text}]);
            let mut item = json!({"id": id, "type": "reasoning", "summary": summary});
            if items(inquiry.body, "include").any(|what| what == "reasoning.encrypted_content") {
                item["encrypted_content"] = json!(signature);
            }
            item
        }
        Block::Text { id, text, .. } => json!({
            "id": id, "type": "message", "status": "completed", "role": "assistant",
            "content": [{"type": "output_text", "text": text, "annotations": [], "logprobs": []}],
        }),
        Block::Call { id, call_id, tool, args, .. } => json!({
            "id": id, "type": "function_call", "status": "completed", "call_id": call_id,
            "name": tool, "arguments": args.to_string(),
        }),
    }
}

/// The same item when it begins.
fn begun(item: &Value) -> Value {
    let mut begun = item.clone();
    let empty = match item["type"].as_str() {
        Some("reasoning") => ("summary", json!([])),
        Some("message") => ("content", json!([])),
        _ => ("arguments", json!("")),
    };
    begun[empty.0] = empty.1;
    if begun.get("status").is_some() {
        begun["status"] = json!("in_progress");
    }
    begun
}

/// Events with their running number.
#[derive(Default)]
struct Events {
    frames: Vec<Frame>,
}

impl Events {
    fn add(&mut self, name: &str, fields: Value) {
        let mut data = json!({"type": name, "sequence_number": self.frames.len()});
        if let (Some(data), Value::Object(fields)) = (data.as_object_mut(), fields) {
            data.extend(fields);
        }
        let frame = event(name, &data);
        let said = name == "response.output_text.delta";
        self.frames.push(if said { frame.said() } else { frame });
    }

    fn add_block(&mut self, at: usize, block: &Block, pieces: &mut Pieces<'_>) {
        match block {
            Block::Think { id, text, .. } => {
                let place = json!({"item_id": id, "output_index": at, "summary_index": 0});
                let part = |text: &str| json!({"part": {"type": "summary_text", "text": text}});
                self.add("response.reasoning_summary_part.added", with(&place, part("")));
                for piece in pieces.of(text) {
                    self.add(
                        "response.reasoning_summary_text.delta",
                        with(&place, json!({"delta": piece})),
                    );
                }
                self.add(
                    "response.reasoning_summary_text.done",
                    with(&place, json!({"text": text})),
                );
                self.add("response.reasoning_summary_part.done", with(&place, part(text)));
            }
            Block::Text { id, text, .. } => {
                let place = json!({"item_id": id, "output_index": at, "content_index": 0});
                let part = |text: &str| json!({"part": {"type": "output_text", "text": text, "annotations": []}});
                self.add("response.content_part.added", with(&place, part("")));
                for piece in pieces.of(text) {
                    self.add(
                        "response.output_text.delta",
                        with(&place, json!({"delta": piece, "logprobs": []})),
                    );
                }
                self.add(
                    "response.output_text.done",
                    with(&place, json!({"text": text, "logprobs": []})),
                );
                self.add("response.content_part.done", with(&place, part(text)));
            }
            Block::Call { id, args, .. } => {
                let place = json!({"item_id": id, "output_index": at});
                let args = args.to_string();
                for piece in pieces.of(&args) {
                    self.add(
                        "response.function_call_arguments.delta",
                        with(&place, json!({"delta": piece})),
                    );
                }
                self.add(
                    "response.function_call_arguments.done",
                    with(&place, json!({"arguments": args})),
                );
            }
        }
    }
}

fn with(place: &Value, more: Value) -> Value {
    let mut all = place.clone();
    if let (Some(all), Value::Object(more)) = (all.as_object_mut(), more) {
        all.extend(more);
    }
    all
}

fn usage(answer: &Answer) -> Value {
    let usage = &answer.usage;
    json!({
        "input_tokens": usage.prompt, "input_tokens_details": {"cached_tokens": usage.cached},
        "output_tokens": usage.output, "output_tokens_details": {"reasoning_tokens": usage.thinking},
        "total_tokens": usage.prompt + usage.output,
    })
}
