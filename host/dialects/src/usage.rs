//! Finds token counts in answers without decoding them.

use memchr::memmem::Finder;
use serde::Deserialize;
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

/// Finds the usage objects in a stream.
#[derive(Debug)]
pub struct UsageScanner {
    dialect: DialectName,
    finder: Finder<'static>,
    first: Option<Vec<u8>>,
    last: Vec<u8>,
}

impl UsageScanner {
    /// A scanner for streams of a dialect.
    pub fn new(dialect: DialectName) -> UsageScanner {
        let key = if dialect == DialectName::Ollama { OLLAMA_KEY } else { USAGE_KEY };
        UsageScanner { dialect, finder: Finder::new(key), first: None, last: Vec::new() }
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

    /// The token counts of the stream; `None` without any.
    pub fn usage(&self) -> Option<TokenUsage> {
        let first = self.first.as_deref()?;
        read_usages(self.dialect, [first, self.last.as_slice()])
    }
}

/// The token counts of a document or a list of them; `None` without any.
pub fn read_document_usage(dialect: DialectName, document: &[u8]) -> Option<TokenUsage> {
    read_usages(dialect, [document])
}

/// Merges usage objects in order: the last event of a stream omits counts of the first one.
fn read_usages<'a>(
    dialect: DialectName,
    texts: impl IntoIterator<Item = &'a [u8]>,
) -> Option<TokenUsage> {
    let mut usage = None;
    let objects = |text| match dialect {
        DialectName::Ollama => counted_objects(text),
        _ => usage_objects(text, DEPTH_MAX),
    };
    for object in texts.into_iter().flat_map(objects) {
        read_usage(dialect, &object, usage.get_or_insert_default());
    }
    usage
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

/// The fields with a usage, in any dialect.
#[derive(Deserialize)]
struct UsageFields<'a> {
    #[serde(borrow, default)]
    usage: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "usageMetadata")]
    usage_metadata: Option<&'a RawValue>,
    #[serde(borrow, default)]
    message: Option<&'a RawValue>,
    #[serde(borrow, default)]
    response: Option<&'a RawValue>,
}

/// The object in which Ollama has its counts: the last line of a stream, or the whole document.
fn counted_objects(text: &[u8]) -> Vec<Value> {
    let line: Option<Value> = serde_json::from_slice(text).ok();
    line.into_iter().filter(|line| line.get("eval_count").is_some()).collect()
}

/// The usage objects of an event, a document, or a list of documents.
fn usage_objects(text: &[u8], depth: u32) -> Vec<Value> {
    let Some(depth) = depth.checked_sub(1) else { return Vec::new() };
    let text = text.trim_ascii();
    // Gemini's streams without `alt=sse` are lists.
    if let Ok(list) = serde_json::from_slice::<Vec<&RawValue>>(text) {
        return list.iter().flat_map(|one| usage_objects(one.get().as_bytes(), depth)).collect();
    }
    let Ok(fields) = serde_json::from_slice::<UsageFields<'_>>(text) else { return Vec::new() };
    let own = [fields.usage, fields.usage_metadata].into_iter().flatten();
    let own =
        own.filter_map(|usage| serde_json::from_str(usage.get()).ok()).filter(Value::is_object);
    let inner = [fields.message, fields.response].into_iter().flatten();
    let inner = inner.flat_map(|inner| usage_objects(inner.get().as_bytes(), depth));
    own.chain(inner).collect()
}
