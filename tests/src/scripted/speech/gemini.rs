//! Gemini.

use serde_json::{Value, json};

use super::*;
use crate::scripted::answer::{Block, Stop};

pub(super) struct Gemini;

impl Speech for Gemini {
    fn endpoint(&self, path: &str) -> Option<Endpoint> {
        match path.rsplit(':').next() {
            Some("generateContent" | "streamGenerateContent") => Some(Endpoint::Answer),
            Some("countTokens") => Some(Endpoint::Count),
            _ => None,
        }
    }

    fn streams(&self, inquiry: &Inquiry<'_>) -> bool {
        inquiry.path.contains(":streamGenerateContent")
    }

    fn model(&self, inquiry: &Inquiry<'_>) -> String {
        let last = inquiry.path.rsplit('/').next().unwrap_or_default();
        last.split(':').next().unwrap_or_default().to_owned()
    }

    fn output_tokens(&self, body: &Value) -> Option<u64> {
        body["generationConfig"]["maxOutputTokens"].as_u64()
    }

    fn said(&self, body: &Value) -> Vec<Said> {
        let mut said = Vec::new();
        let system = texts(&body["systemInstruction"]["parts"]);
        if !system.is_empty() {
            said.push(Said { by: Speaker::System, text: system });
        }
        said.extend(items(body, "contents").map(turn_said));
        said
    }

    fn tools(&self, body: &Value) -> Vec<Offer> {
        let functions = items(body, "tools").flat_map(|tool| items(tool, "functionDeclarations"));
        // Google's own SDK writes the last one.
        let names = ["parameters", "parametersJsonSchema", "parameters_json_schema"];
        let schema = |tool: &Value| names.into_iter().find(|name| tool.get(name).is_some());
        functions.map(|tool| offer(tool, schema(tool).unwrap_or("parameters"))).collect()
    }

    fn prefixes(&self) -> (&'static str, &'static str) {
        ("", "call-")
    }

    fn signs_calls(&self, model: &str) -> bool {
        model.contains("gemini-3")
    }

    fn frames(
        &self,
        answer: &Answer,
        inquiry: &Inquiry<'_>,
        pieces: &mut Pieces<'_>,
    ) -> Vec<Frame> {
        let mut all: Vec<(Vec<Value>, bool)> = Vec::new();
        for block in &answer.blocks {
            match block {
                Block::Think { text, .. } => {
                    let thought = |piece| (vec![json!({"text": piece, "thought": true})], false);
                    all.extend(pieces.of(text).into_iter().map(thought));
                }
                Block::Text { text, signature, .. } => {
                    let said = |piece| (vec![json!({"text": piece})], true);
                    all.extend(pieces.of(text).into_iter().map(said));
                    // The signature of a text comes alone, at its end.
                    if !signature.is_empty() {
                        all.push((vec![json!({"text": "", "thoughtSignature": signature})], false));
                    }
                }
                Block::Call { .. } => all.push((vec![part(block, &answer.model)], false)),
            }
        }
        if all.is_empty() {
            all.push((Vec::new(), false));
        }
        let last = all.len() - 1;
        let frame = |(at, (parts, said)): (usize, (Vec<Value>, bool))| {
            let chunk = chunk(answer, parts, at == last);
            let frame = if is_sse(inquiry) { data(&chunk) } else { element(&chunk, at, last) };
            if said { frame.said() } else { frame }
        };
        all.into_iter().enumerate().map(frame).collect()
    }

    fn whole(&self, answer: &Answer, _inquiry: &Inquiry<'_>) -> Value {
        let parts = answer.blocks.iter().map(|block| part(block, &answer.model)).collect();
        chunk(answer, parts, true)
    }

    fn counted(&self, tokens: u64) -> Value {
        json!({"totalTokens": tokens, "promptTokensDetails": [{"modality": "TEXT", "tokenCount": tokens}]})
    }

    fn refuse(&self, trouble: &Trouble) -> Refusal {
        let (status, word, message) = match trouble {
            Trouble::Overflow { .. } => (400, "INVALID_ARGUMENT", overflow(trouble)),
            Trouble::OutputLimit { asked, most } => (400, "INVALID_ARGUMENT", format!("Unable to submit request because it has a maxOutputTokens value of {asked} but the supported range is from 1 (inclusive) to {} (exclusive). Update the value and try again.", most + 1)),
            Trouble::Malformed(broken) => (400, "INVALID_ARGUMENT", broken.why.clone()),
            Trouble::RateLimited { retry_after_s } => (429, "RESOURCE_EXHAUSTED", format!("You exceeded your current quota, please check your plan and billing details. Please retry in {retry_after_s}s.")),
            Trouble::Overloaded => (503, "UNAVAILABLE", "The model is overloaded. Please try again later.".into()),
            Trouble::ServerError => (500, "INTERNAL", "An internal error has occurred. Please retry or report in https://developers.generativeai.google/guide/troubleshooting".into()),
            Trouble::Unauthorized => (401, "UNAUTHENTICATED", "API keys are not supported by this API. Expected OAuth2 access token or other authentication credentials that assert a principal.".into()),
            Trouble::NoCredit => (402, "FAILED_PRECONDITION", "Please enable billing on your project.".into()),
            Trouble::NoModel(model) => (404, "NOT_FOUND", format!("models/{model} is not found for API version v1beta, or is not supported for generateContent.")),
            Trouble::NotFound => (404, "NOT_FOUND", "Requested entity was not found.".into()),
        };
        let mut error = json!({"code": status, "message": message, "status": word});
        if let Trouble::RateLimited { retry_after_s } = trouble {
            error["details"] = json!([{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": format!("{retry_after_s}s")}]);
        }
        Refusal::new(status, json!({"error": error})).after(trouble)
    }

    fn break_off(&self, _answer: &Answer, trouble: &Trouble) -> Broke {
        Broke::Frame(data(&self.refuse(trouble).body))
    }
}

fn overflow(trouble: &Trouble) -> String {
    let Trouble::Overflow { prompt, output, window, form } = trouble else { return String::new() };
    // Gemini's limit is one of the input alone.
    let allowed = if prompt > window { *window } else { window.saturating_sub(*output) };
    match form {
        OverflowForm::Other => format!(
            "Unable to submit request because the input token count is {prompt} but model only supports up to {allowed}. Reduce the input token count and try again. You can also use the CountTokens API to calculate prompt token count and billable characters."
        ),
        _ => format!(
            "The input token count ({prompt}) exceeds the maximum number of tokens allowed ({allowed})."
        ),
    }
}

fn turn_said(turn: &Value) -> Said {
    let responses = items(turn, "parts").filter_map(|part| part.get("functionResponse"));
    let results: Vec<String> = responses.map(|result| result["response"].to_string()).collect();
    if !results.is_empty() {
        return Said { by: Speaker::Tool, text: results.join("\n") };
    }
    let by = speaker(turn["role"].as_str().unwrap_or_default());
    Said { by, text: texts(&turn["parts"]) }
}

fn is_sse(inquiry: &Inquiry<'_>) -> bool {
    inquiry.path.contains("alt=sse")
}

/// Without events a stream is one array that is written piece by piece.
fn element(chunk: &Value, at: usize, last: usize) -> Frame {
    let head = if at == 0 { "[" } else { "," };
    let tail = if at == last { "]" } else { "\r\n" };
    Frame { text: format!("{head}{chunk}{tail}"), is_said: false }
}

fn part(block: &Block, model: &str) -> Value {
    let (mut part, signature) = match block {
        Block::Think { text, .. } => return json!({"text": text, "thought": true}),
        Block::Text { text, signature, .. } => (json!({"text": text}), signature),
        Block::Call { call_id, tool, args, signature, .. } => {
            let mut call = json!({"name": tool, "args": args});
            if model.contains("gemini-3") {
                call["id"] = json!(call_id);
            }
            (json!({"functionCall": call}), signature)
        }
    };
    if !signature.is_empty() {
        part["thoughtSignature"] = json!(signature);
    }
    part
}

fn chunk(answer: &Answer, parts: Vec<Value>, is_last: bool) -> Value {
    let mut candidate = json!({"content": {"role": "model", "parts": parts}, "index": 0});
    if is_last {
        let reason = match answer.stop {
            Stop::Done | Stop::Calls => "STOP",
            Stop::Length | Stop::Window => "MAX_TOKENS",
        };
        candidate["finishReason"] = json!(reason);
    }
    let usage = &answer.usage;
    let mut counted = json!({"promptTokenCount": usage.prompt, "totalTokenCount": usage.prompt});
    if usage.cached > 0 {
        counted["cachedContentTokenCount"] = json!(usage.cached);
    }
    if is_last {
        counted["candidatesTokenCount"] = json!(usage.output - usage.thinking);
        counted["thoughtsTokenCount"] = json!(usage.thinking);
        counted["totalTokenCount"] = json!(usage.prompt + usage.output);
    }
    json!({"candidates": [candidate], "usageMetadata": counted, "modelVersion": answer.model, "responseId": answer.id})
}
