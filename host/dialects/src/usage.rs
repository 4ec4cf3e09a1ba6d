//! What an answer says of tokens, read in passing, without the rest of it.

use memchr::memmem::Finder;
use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::message::TokenUsage;
use super::name::DialectName;
use super::{anthropic, gemini, openai_chat, openai_responses};

/// How deep a usage may stand: in a message, of an event, of a list. What an upstream sends may be nothing
/// but depth, and a stack has an end.
const DEPTH_MAX: u32 = 3;

/// What every usage begins with: `"usage"`, `"usageMetadata"`.
const USAGE_KEY: &[u8] = b"\"usage";

/// Finds what the events of a stream say of tokens. Nothing is parsed before the end: the first and the last
/// event with a usage are kept.
#[derive(Debug)]
pub struct UsageScanner {
    dialect: DialectName,
    finder: Finder<'static>,
    first: Option<Vec<u8>>,
    last: Vec<u8>,
}

impl UsageScanner {
    /// A scanner of a stream in a dialect.
    pub fn new(dialect: DialectName) -> UsageScanner {
        UsageScanner { dialect, finder: Finder::new(USAGE_KEY), first: None, last: Vec::new() }
    }

    /// Takes the data of the next event.
    pub fn scan(&mut self, data: &[u8]) {
        let says_usage = |at| data.get(at..).is_some_and(is_not_null);
        if !self.finder.find_iter(data).any(says_usage) {
            return;
        }
        if self.first.is_none() {
            self.first = Some(data.to_owned());
        } else {
            self.last.clear();
            self.last.extend_from_slice(data);
        }
    }

    /// What the stream counts; `None` where it says nothing of it.
    pub fn usage(&self) -> Option<TokenUsage> {
        let first = self.first.as_deref()?;
        read_usages(self.dialect, [first, self.last.as_slice()])
    }
}

/// What a document in a dialect, or a list of them, counts; `None` where it says nothing of it.
pub fn read_document_usage(dialect: DialectName, document: &[u8]) -> Option<TokenUsage> {
    read_usages(dialect, [document])
}

/// What a stream does not say again at its end stays as it said it at its beginning.
fn read_usages<'a>(
    dialect: DialectName,
    texts: impl IntoIterator<Item = &'a [u8]>,
) -> Option<TokenUsage> {
    let mut usage = None;
    for said in texts.into_iter().flat_map(|text| usage_objects(text, DEPTH_MAX)) {
        read_usage(dialect, &said, usage.get_or_insert_default());
    }
    usage
}

fn read_usage(dialect: DialectName, said: &Value, usage: &mut TokenUsage) {
    match dialect {
        DialectName::AnthropicMessages => anthropic::usage::read_usage(said, usage),
        DialectName::OpenAiResponses => *usage = openai_responses::usage::read_usage(said),
        DialectName::OpenAiCompletions | DialectName::Ollama => {
            *usage = openai_chat::usage::read_usage(said);
        }
        DialectName::GoogleGenerativeAi => *usage = gemini::usage::read_usage(said),
    }
}

/// OpenAI's chunks say `"usage":null` until the last one.
fn is_not_null(sign: &[u8]) -> bool {
    let rest = sign.get(USAGE_KEY.len()..).unwrap_or_default();
    let value = rest.strip_prefix(b"\":").map(<[u8]>::trim_ascii_start);
    !value.is_some_and(|value| value.starts_with(b"null"))
}

/// Where a usage may stand, in any dialect.
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

/// The usage objects of an event, of a document, or of a list of documents.
fn usage_objects(text: &[u8], depth: u32) -> Vec<Value> {
    let Some(depth) = depth.checked_sub(1) else { return Vec::new() };
    let text = text.trim_ascii();
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
