//! Finds token counts and the id of answers without decoding them.

use std::borrow::Cow;

use memchr::memmem::Finder;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;
use serde_json::value::RawValue;

use super::message::TokenUsage;
use super::name::DialectName;
use super::{anthropic, gemini, ollama, openai_chat, openai_responses};

/// The deepest usage object: in a message of an event of a list. Bounds the recursion, since the
/// input may be nothing but nesting.
const DEPTH_MAX: u32 = 3;

/// The start of every usage field: `"usage"`, `"usageMetadata"`.
const USAGE_KEY: &str = "\"usage";

/// The field of Ollama's last line, which has its counts beside all others.
const OLLAMA_KEY: &str = "\"eval_count\"";

/// What an answer reports of itself.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct AnswerReport {
    /// Its token counts.
    pub usage: Option<TokenUsage>,
    /// Its id: a provider that stores answers knows it by this id.
    pub id: Option<String>,
    /// Whether the provider ran tools for it: it then counts the prompt again for each round, with what the tools found.
    pub has_provider_rounds: bool,
}

/// Finds the report in a stream.
#[derive(Debug)]
pub struct ReportScanner {
    dialect: DialectName,
    finder: Finder<'static>,
    first: Option<Vec<u8>>,
    last: Vec<u8>,
}

impl ReportScanner {
    /// A scanner for streams of a dialect.
    pub fn new(dialect: DialectName) -> ReportScanner {
        let key = if dialect == DialectName::Ollama { OLLAMA_KEY } else { USAGE_KEY };
        ReportScanner { dialect, finder: Finder::new(key), first: None, last: Vec::new() }
    }

    /// Scans the data of the next event.
    pub fn scan(&mut self, data: &[u8]) {
        // This runs on every byte that the gateway forwards. So nothing is parsed here, and only the
        // first and the last event with a usage are kept.
        let has_usage = |at| data.get(at..).is_some_and(is_not_null);
        if !self.finder.find_iter(data).any(has_usage) {
            return;
        }
        if self.first.is_none() {
            self.first = Some(data.to_owned());
        } else {
            self.last.clear();
            self.last.extend_from_slice(data);
        }
    }

    /// The report of the stream; empty without token counts.
    pub fn report(&self) -> AnswerReport {
        let Some(first) = self.first.as_deref() else { return AnswerReport::default() };
        read_report(self.dialect, [first, self.last.as_slice()])
    }
}

/// The report of a document or a list of them.
pub fn read_document_report(dialect: DialectName, document: &[u8]) -> AnswerReport {
    read_report(dialect, [document])
}

/// Merges usage objects in order: the last event of a stream omits counts of the first one.
fn read_report<'a>(
    dialect: DialectName,
    texts: impl IntoIterator<Item = &'a [u8]>,
) -> AnswerReport {
    let mut report = AnswerReport::default();
    for text in texts {
        let fields = report_fields(text, DEPTH_MAX);
        let usages = match dialect {
            DialectName::Ollama => counted_objects(text),
            _ => fields.iter().flat_map(ReportFields::usages).collect(),
        };
        for usage in usages {
            read_usage(dialect, &usage, report.usage.get_or_insert_default());
        }
        report.has_provider_rounds |= fields.iter().any(ReportFields::has_provider_rounds);
        // The innermost one is the answer's: an event may have an id of its own.
        report.id = fields.iter().rev().find_map(ReportFields::id).or(report.id);
    }
    report
}

fn read_usage(dialect: DialectName, object: &Value, usage: &mut TokenUsage) {
    match dialect {
        DialectName::AnthropicMessages => anthropic::usage::read_usage(object, usage),
        DialectName::OpenAiResponses => *usage = openai_responses::usage::read_usage(object),
        DialectName::OpenAiCompletions => *usage = openai_chat::usage::read_usage(object),
        DialectName::Ollama => *usage = ollama::usage::read_usage(object),
        DialectName::GoogleGenerativeAi => *usage = gemini::usage::read_usage(object),
    }
}

/// Whether a usage has a value: OpenAI's chunks have `"usage":null` until the last one.
fn is_not_null(sign: &[u8]) -> bool {
    let rest = sign.get(USAGE_KEY.len()..).unwrap_or_default();
    let value = rest.strip_prefix(b"\":").map(<[u8]>::trim_ascii_start);
    !value.is_some_and(|value| value.starts_with(b"null"))
}

/// The fields of an event or a document that are read, in any dialect.
#[derive(Clone, Copy, Deserialize)]
struct ReportFields<'a> {
    #[serde(borrow, default)]
    id: Option<&'a RawValue>,
    #[serde(borrow, default)]
    usage: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "usageMetadata")]
    usage_metadata: Option<&'a RawValue>,
    #[serde(borrow, default)]
    message: Option<&'a RawValue>,
    #[serde(borrow, default)]
    response: Option<&'a RawValue>,
    /// The blocks of an answer of Anthropic.
    #[serde(borrow, default)]
    content: Option<&'a RawValue>,
    /// The items of an answer of the Responses API.
    #[serde(borrow, default)]
    output: Option<&'a RawValue>,
}

/// A block or an item of an answer.
#[derive(Deserialize)]
struct AnswerPart<'a> {
    #[serde(borrow, default, rename = "type")]
    kind: Cow<'a, str>,
    #[serde(default)]
    call_id: Option<IgnoredAny>,
}

impl AnswerPart<'_> {
    /// Whether it is a call of a tool that the provider ran. A call that the client answers is a `tool_use`, or has a `call_id`.
    fn is_provider_call(&self) -> bool {
        self.kind.ends_with("_tool_use") || self.kind.ends_with("_call") && self.call_id.is_none()
    }
}

impl ReportFields<'_> {
    fn id(&self) -> Option<String> {
        self.id.and_then(|id| serde_json::from_str(id.get()).ok())
    }

    fn usages(&self) -> impl Iterator<Item = Value> {
        let usages = [self.usage, self.usage_metadata].into_iter().flatten();
        usages.filter_map(|usage| serde_json::from_str(usage.get()).ok()).filter(Value::is_object)
    }

    /// Whether the provider called the model more than once: for tools of its own, or to compact the prompt.
    fn has_provider_rounds(&self) -> bool {
        let mut lists = [self.content, self.output].into_iter().flatten();
        let has_call = |list: &RawValue| {
            let parts: Option<Vec<AnswerPart<'_>>> = serde_json::from_str(list.get()).ok();
            parts.is_some_and(|parts| parts.iter().any(AnswerPart::is_provider_call))
        };
        self.usages().any(|usage| counts_rounds(&usage)) || lists.any(has_call)
    }
}

/// Whether a usage object counts requests of the provider's tools, or several calls of the model.
fn counts_rounds(usage: &Value) -> bool {
    let tools = usage.get("server_tool_use").and_then(Value::as_object);
    let mut requests = tools.into_iter().flat_map(|counts| counts.values());
    let calls = usage.get("iterations").and_then(Value::as_array);
    requests.any(|count| count.as_u64() > Some(0)) || calls.is_some_and(|calls| calls.len() > 1)
}

/// The object in which Ollama has its counts: the last line of a stream, or the whole document.
fn counted_objects(text: &[u8]) -> Vec<Value> {
    let line: Option<Value> = serde_json::from_slice(text).ok();
    line.into_iter().filter(|line| line.get("eval_count").is_some()).collect()
}

/// The fields of an event, a document, or a list of documents, outer ones first.
fn report_fields(text: &[u8], depth: u32) -> Vec<ReportFields<'_>> {
    let Some(depth) = depth.checked_sub(1) else { return Vec::new() };
    let text = text.trim_ascii();
    // Gemini's streams without `alt=sse` are lists.
    if let Ok(list) = serde_json::from_slice::<Vec<&RawValue>>(text) {
        return list.iter().flat_map(|one| report_fields(one.get().as_bytes(), depth)).collect();
    }
    let Ok(fields) = serde_json::from_slice::<ReportFields<'_>>(text) else { return Vec::new() };
    let inner = [fields.message, fields.response].into_iter().flatten();
    let inner = inner.flat_map(|inner| report_fields(inner.get().as_bytes(), depth));
    std::iter::once(fields).chain(inner).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn has_rounds(dialect: DialectName, document: &Value) -> bool {
        let document = document.to_string();
        let mut scanner = ReportScanner::new(dialect);
        scanner.scan(document.as_bytes());
        let report = read_document_report(dialect, document.as_bytes());
        assert_eq!(scanner.report(), report, "a stream and a document say the same");
        report.has_provider_rounds
    }

    #[test]
    fn rounds_of_the_provider_are_seen_in_content_or_usage() {
        use DialectName::{AnthropicMessages, OpenAiCompletions, OpenAiResponses};
        let usage = json!({ "input_tokens": 9_000, "output_tokens": 7 });
        let anthropic = |kind: &str| json!({ "id": "m", "content": [{ "type": kind, "id": "t1" }], "usage": usage });
        assert!(has_rounds(AnthropicMessages, &anthropic("server_tool_use")));
        assert!(has_rounds(AnthropicMessages, &anthropic("mcp_tool_use")));
        assert!(!has_rounds(AnthropicMessages, &anthropic("tool_use")));
        let responses = |item: Value| {
            let answer = json!({ "id": "r", "output": [item], "usage": usage });
            json!({ "type": "response.completed", "response": answer })
        };
        let search = json!({ "type": "web_search_call", "id": "ws_1", "action": {} });
        assert!(has_rounds(OpenAiResponses, &responses(search)));
        let call = json!({ "type": "function_call", "id": "fc_1", "call_id": "c1", "name": "n" });
        assert!(!has_rounds(OpenAiResponses, &responses(call)));
        let message = json!({ "type": "message", "content": [] });
        assert!(!has_rounds(OpenAiResponses, &responses(message)));
        for (counts, expected) in [
            (json!({ "server_tool_use": { "web_search_requests": 2 } }), true),
            (json!({ "server_tool_use": { "web_search_requests": 0 } }), false),
            (json!({ "server_tool_use": null, "iterations": [{}] }), false),
            (json!({ "iterations": [{ "input_tokens": 4 }, { "input_tokens": 5 }] }), true),
        ] {
            let event = json!({ "type": "message_delta", "usage": counts });
            for dialect in [AnthropicMessages, OpenAiCompletions] {
                assert_eq!(has_rounds(dialect, &event), expected, "{event}");
            }
        }
    }
}
