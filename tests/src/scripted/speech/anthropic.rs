//! Anthropic Messages.

use serde_json::{Value, json};

use super::*;
use crate::scripted::answer::{Block, Stop};

pub(super) struct Anthropic;

impl Speech for Anthropic {
    fn endpoint(&self, path: &str) -> Option<Endpoint> {
        let last = path.rsplit('/').next()?;
        // Vertex has the model before a colon, Bedrock in the segment before.
        match last.rsplit(':').next()? {
            "rawPredict" if last.starts_with("count-tokens:") => Some(Endpoint::Count),
            "messages" | "rawPredict" | "streamRawPredict" | "invoke" => Some(Endpoint::Answer),
            "count_tokens" => Some(Endpoint::Count),
            _ => None,
        }
    }

    fn output_tokens(&self, body: &Value) -> Option<u64> {
        body["max_tokens"].as_u64()
    }

    fn said(&self, body: &Value) -> Vec<Said> {
        let mut said = Vec::new();
        let system = texts(&body["system"]);
        if !system.is_empty() {
            said.push(Said { by: Speaker::System, text: system });
        }
        let message = |message: &Value| {
            let result = items(message, "content").any(|block| block["type"] == "tool_result");
            let by = speaker(message["role"].as_str().unwrap_or_default());
            Said { by: if result { Speaker::Tool } else { by }, text: texts(&message["content"]) }
        };
        said.extend(items(body, "messages").map(message));
        said
    }

    fn tools(&self, body: &Value) -> Vec<Offer> {
        items(body, "tools").map(|tool| offer(tool, "input_schema")).collect()
    }

    fn caching(&self, body: &Value) -> Caching {
        let marked = ["tools", "system", "messages", "cache_control"].iter().any(|part| {
            let part = body.get(*part).map(Value::to_string).unwrap_or_default();
            part.contains("\"cache_control\":") || part.contains("\"ephemeral\"")
        });
        if marked { Caching::Marked } else { Caching::Off }
    }

    fn prefixes(&self) -> (&'static str, &'static str) {
        ("msg_01", "toolu_01")
    }

    fn frames(
        &self,
        answer: &Answer,
        _inquiry: &Inquiry<'_>,
        pieces: &mut Pieces<'_>,
    ) -> Vec<Frame> {
        let mut opening = message(answer, &[], None);
        opening["usage"] = usage(answer, 1);
        let mut frames = vec![
            event("message_start", &json!({"type": "message_start", "message": opening})),
            event("ping", &json!({"type": "ping"})),
        ];
        for (at, block) in answer.blocks.iter().enumerate() {
            let start =
                json!({"type": "content_block_start", "index": at, "content_block": begun(block)});
            frames.push(event("content_block_start", &start));
            for delta in deltas(block, pieces) {
                let said = delta["type"] == "text_delta";
                let frame = event(
                    "content_block_delta",
                    &json!({"type": "content_block_delta", "index": at, "delta": delta}),
                );
                frames.push(if said { frame.said() } else { frame });
            }
            frames.push(event(
                "content_block_stop",
                &json!({"type": "content_block_stop", "index": at}),
            ));
        }
        let delta = json!({"stop_reason": stop_reason(answer.stop), "stop_sequence": null});
        frames.push(event("message_delta", &json!({"type": "message_delta", "delta": delta, "usage": usage(answer, answer.usage.output)})));
        frames.push(event("message_stop", &json!({"type": "message_stop"})));
        frames
    }

    fn whole(&self, answer: &Answer, _inquiry: &Inquiry<'_>) -> Value {
        let content: Vec<Value> = answer.blocks.iter().map(finished).collect();
        let mut whole = message(answer, &content, Some(stop_reason(answer.stop)));
        whole["usage"] = usage(answer, answer.usage.output);
        whole
    }

    fn counted(&self, tokens: u64) -> Value {
        json!({"input_tokens": tokens})
    }

    fn refuse(&self, trouble: &Trouble) -> Refusal {
        let (status, kind, message) = match trouble {
            Trouble::Overflow { form: OverflowForm::TooLarge, .. } => (413, "request_too_large", "Request exceeds the maximum size".into()),
            Trouble::Overflow { .. } => (400, "invalid_request_error", overflow(trouble)),
            Trouble::OutputLimit { asked, most } => (400, "invalid_request_error", format!("max_tokens: {asked} > {most}, which is the maximum allowed number of output tokens for this model")),
            Trouble::Malformed(broken) => (400, "invalid_request_error", broken.why.clone()),
            Trouble::RateLimited { .. } => (429, "rate_limit_error", "This request would exceed your organization's rate limit. Please try again later.".into()),
            Trouble::Overloaded => (529, "overloaded_error", "Overloaded".into()),
            Trouble::ServerError => (500, "api_error", "Internal server error".into()),
            Trouble::Unauthorized => (401, "authentication_error", "invalid x-api-key".into()),
            Trouble::NoCredit => (402, "billing_error", "Your credit balance is too low to access the Anthropic API. Please go to Plans & Billing to upgrade or purchase credits.".into()),
            Trouble::NoModel(model) => (404, "not_found_error", format!("model: {model}")),
            Trouble::NotFound => (404, "not_found_error", "Not found".into()),
        };
        let error = json!({"type": kind, "message": message});
        let body =
            json!({"type": "error", "error": error, "request_id": "req_011CScriptedServer0000001"});
        Refusal::new(status, body).after(trouble)
    }

    fn break_off(&self, _answer: &Answer, trouble: &Trouble) -> Broke {
        match trouble {
            Trouble::Overflow { .. } => Broke::Stop,
            _ => {
                let error = json!({"type": "overloaded_error", "message": "Overloaded"});
                Broke::Frame(event("error", &json!({"type": "error", "error": error})))
            }
        }
    }
}

fn overflow(trouble: &Trouble) -> String {
    let Trouble::Overflow { prompt, output, window, form } = trouble else { return String::new() };
    if *form == OverflowForm::Other || prompt <= window {
        return format!(
            "input length and `max_tokens` exceed context limit: {prompt} + {output} > {window}, decrease input length or `max_tokens` and try again"
        );
    }
    format!("prompt is too long: {prompt} tokens > {window} maximum")
}

fn message(answer: &Answer, content: &[Value], stop: Option<&str>) -> Value {
    json!({
        "id": answer.id, "type": "message", "role": "assistant", "model": answer.model,
        "content": content, "stop_reason": stop, "stop_sequence": null,
    })
}

fn begun(block: &Block) -> Value {
    match block {
        Block::Think { .. } => json!({"type": "thinking", "thinking": "", "signature": ""}),
        Block::Text { .. } => json!({"type": "text", "text": ""}),
        Block::Call { call_id, tool, .. } => {
            json!({"type": "tool_use", "id": call_id, "name": tool, "input": {}})
        }
    }
}

fn finished(block: &Block) -> Value {
    match block {
        Block::Think { text, signature, .. } => {
            json!({"type": "thinking", "thinking": text, "signature": signature})
        }
        Block::Text { text, .. } => json!({"type": "text", "text": text}),
        Block::Call { call_id, tool, args, .. } => {
            json!({"type": "tool_use", "id": call_id, "name": tool, "input": args})
        }
    }
}

fn deltas(block: &Block, pieces: &mut Pieces<'_>) -> Vec<Value> {
    match block {
        Block::Think { text, signature, .. } => {
            let thought = |piece| json!({"type": "thinking_delta", "thinking": piece});
            let mut deltas: Vec<Value> = pieces.of(text).into_iter().map(thought).collect();
            deltas.push(json!({"type": "signature_delta", "signature": signature}));
            deltas
        }
        Block::Text { text, .. } => {
            let said = |piece| json!({"type": "text_delta", "text": piece});
            pieces.of(text).into_iter().map(said).collect()
        }
        Block::Call { args, .. } => {
            let more = |piece| json!({"type": "input_json_delta", "partial_json": piece});
            let mut deltas = vec![more(String::new())];
            deltas.extend(pieces.of(&args.to_string()).into_iter().map(more));
            deltas
        }
    }
}

fn stop_reason(stop: Stop) -> &'static str {
    match stop {
        Stop::Done => "end_turn",
        Stop::Calls => "tool_use",
        Stop::Length => "max_tokens",
        Stop::Window => "model_context_window_exceeded",
    }
}

fn usage(answer: &Answer, output: u64) -> Value {
    let usage = &answer.usage;
    json!({
        "input_tokens": usage.prompt - usage.cached - usage.written,
        "cache_creation_input_tokens": usage.written, "cache_read_input_tokens": usage.cached,
        "output_tokens": output, "service_tier": "standard",
    })
}
