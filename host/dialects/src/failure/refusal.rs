//! Extracts the innermost code and message of an error body.
//!
//! Proxies nest errors: in objects, in arrays, and as JSON inside a string. The innermost is the
//! provider's own; the outer ones say "Provider returned error".

use serde_json::{Deserializer, Map, Value};

/// Nesting levels that are opened. Eight, as in Cline; observed bodies have at most four.
const DEPTH: u32 = 8;

/// Characters of a message that are kept. Some providers repeat the whole request in it.
const MESSAGE_CHARS: usize = 4_000;

/// Positions in a text that are tried as JSON; each one costs a parse.
const JSON_STARTS: usize = 4;

/// Fields with a nested error, innermost first.
const WRAPPINGS: &[&str] = &[
    "error",
    "errors",
    "response",
    "metadata",
    "raw",
    "base_resp",
    "detail",
    "cause",
    "body",
    "inner_error",
    "innererror",
];

/// Fields with a message.
const MESSAGES: &[&str] =
    &["message", "Message", "msg", "status_msg", "error_msg", "error_message", "errorMessage"];

/// Fields with a code, most specific first.
const CODES: &[&str] =
    &["code", "status", "error_type", "type", "__type", "error_code", "errorCode", "status_code"];

/// llama.cpp's fields for prompt and window, in tokens; its message omits them.
const COUNTED: [&str; 2] = ["n_prompt_tokens", "n_ctx"];

/// Types that say nothing but "error".
const EMPTY_WORDS: &[&str] = &["error", "response.failed", "object"];

/// A provider's refusal.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProviderRefusal {
    /// The HTTP status; `None` for an error inside a stream.
    pub status: Option<u16>,
    /// The provider's code or type, such as `context_length_exceeded`.
    pub code: String,
    /// The innermost message.
    pub message: String,
}

/// Parses an error body of any dialect: JSON, JSON in JSON, HTML, plain text or nothing.
///
/// `status` is the HTTP status. Without one, for frames of a stream, a status in the body is used.
pub fn parse_refusal(status: Option<u16>, body: &str) -> ProviderRefusal {
    let text = body.trim();
    let found = find_json_error(text, DEPTH).unwrap_or_default();
    let message = if !found.message.is_empty() {
        found.message
    } else if !found.code.is_empty() {
        found.code.clone()
    } else {
        python_message(text).unwrap_or_else(|| readable(text))
    };
    ProviderRefusal {
        status: status.or(found.status),
        code: found.code,
        message: message.chars().take(MESSAGE_CHARS).collect(),
    }
}

/// Whether a document or an event is a refusal, whatever its HTTP status.
pub fn is_refusal(value: &Value) -> bool {
    let has = |name: &str| value.get(name).is_some_and(|field| !field.is_null());
    let code = |value: &Value| value.as_i64().is_some_and(|code| code != 0);
    // Some providers send errors with status 200: MiniMax in `base_resp`, Baidu in `error_code`,
    // Spark in `code`.
    let base = value.get("base_resp").and_then(|base| base.get("status_code"));
    let is_answer = has("choices") || has("content") || has("candidates") || has("output");
    has("error")
        || base.is_some_and(code)
        || !is_answer
            && (has("error_code") || has("message") && value.get("code").is_some_and(code))
}

/// What is known of an error so far.
#[derive(Debug, Default)]
struct ErrorDetail {
    is_json: bool,
    /// Whether the message was extracted from JSON inside a text.
    is_unpacked: bool,
    status: Option<u16>,
    code: String,
    message: String,
}

impl ErrorDetail {
    /// This error, completed by the one around it.
    fn with_outer(self, outer: ErrorDetail) -> ErrorDetail {
        ErrorDetail {
            is_json: true,
            is_unpacked: self.is_unpacked || outer.is_unpacked,
            status: self.status.or(outer.status),
            code: if self.code.is_empty() { outer.code } else { self.code },
            message: if self.message.is_empty() { outer.message } else { self.message },
        }
    }
}

/// The error in the first JSON object or array of a text.
fn find_json_error(text: &str, depth: u32) -> Option<ErrorDetail> {
    // SDKs put text before the JSON: `400 {"error": ...}`.
    let starts = text.match_indices(['{', '[']).take(JSON_STARTS);
    let values = starts.filter_map(|(at, _)| first_value(text.get(at..)?));
    values
        .map(|value| extract(&value, depth))
        .find(|found| !found.message.is_empty() || found.is_json)
}

fn first_value(text: &str) -> Option<Value> {
    // As a stream, since text may follow the JSON.
    let value = Deserializer::from_str(text).into_iter::<Value>().next()?.ok()?;
    // A list of numbers in a sentence is not an error.
    let is_wrapping = match &value {
        Value::Object(object) => !object.is_empty(),
        Value::Array(items) => items.iter().any(|item| item.is_object() || item.is_string()),
        _ => false,
    };
    is_wrapping.then_some(value)
}

fn extract(value: &Value, depth: u32) -> ErrorDetail {
    let Some(deeper) = depth.checked_sub(1) else { return ErrorDetail::default() };
    match value {
        Value::Object(object) => extract_from_object(object, deeper),
        Value::Array(items) => items
            .iter()
            .map(|item| extract(item, deeper))
            .find(|found| !found.message.is_empty())
            .unwrap_or_default(),
        Value::String(text) => extract_from_text(text, deeper),
        _ => ErrorDetail::default(),
    }
}

fn extract_from_object(object: &Map<String, Value>, depth: u32) -> ErrorDetail {
    let own = ErrorDetail {
        is_json: true,
        is_unpacked: false,
        status: status_of(object),
        code: code_of(object),
        message: String::new(),
    };
    let message =
        MESSAGES.iter().filter_map(|name| object.get(*name)).map(|value| extract(value, depth));
    let message = message.into_iter().find(|found| !found.message.is_empty()).unwrap_or_default();
    let own = with_counts(message.with_outer(own), object);
    let inner =
        WRAPPINGS.iter().filter_map(|name| object.get(*name)).map(|value| extract(value, depth));
    match inner.into_iter().find(|found| !found.message.is_empty() || !found.code.is_empty()) {
        // A body that the message quotes whole is closer to the provider than other fields.
        Some(inner) if own.is_unpacked && !inner.is_unpacked => own.with_outer(inner),
        Some(inner) => inner.with_outer(own),
        None => own,
    }
}

/// The error with the sizes in fields beside the message.
fn with_counts(found: ErrorDetail, object: &Map<String, Value>) -> ErrorDetail {
    let [Some(prompt), Some(window)] = COUNTED.map(|name| object.get(name)?.as_u64()) else {
        return found;
    };
    // A message with numbers has its own sizes.
    if found.message.contains(|c: char| c.is_ascii_digit()) {
        return found;
    }
    let message = format!("{} (prompt {prompt} > window {window} tokens)", found.message);
    ErrorDetail { message, ..found }
}

/// The error inside a text, or the text itself.
fn extract_from_text(text: &str, depth: u32) -> ErrorDetail {
    let inner = find_json_error(text, depth).filter(|found| !found.message.is_empty());
    let inner = inner.map(|found| ErrorDetail { is_unpacked: true, ..found });
    let plain = || python_message(text).unwrap_or_else(|| text.trim().to_owned());
    inner.unwrap_or_else(|| ErrorDetail { message: plain(), ..ErrorDetail::default() })
}

/// The message of a printed Python dictionary, which proxies quote in place of JSON.
fn python_message(text: &str) -> Option<String> {
    let (_, rest) = text.split_once("'message': ")?;
    let quote = rest.chars().next().filter(|c| matches!(c, '\'' | '"'))?;
    let mut message = String::new();
    let mut characters = rest.chars().skip(1);
    loop {
        match characters.next()? {
            '\\' => message.extend(characters.next()),
            end if end == quote => break,
            character => message.push(character),
        }
    }
    Some(message).filter(|message| !message.trim().is_empty())
}

/// The HTTP status in an object.
fn status_of(object: &Map<String, Value>) -> Option<u16> {
    let numbers = ["status", "status_code", "code"].into_iter().filter_map(|name| object.get(name));
    numbers.filter_map(Value::as_u64).find_map(http_status)
}

fn http_status(number: u64) -> Option<u16> {
    u16::try_from(number).ok().filter(|status| (400..600).contains(status))
}

/// The code of an object: a word, or a number that is not an HTTP status.
fn code_of(object: &Map<String, Value>) -> String {
    let words = CODES.iter().filter_map(|name| match object.get(*name)? {
        Value::String(word) => Some(word.trim().to_owned()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    });
    words.into_iter().find(|word| is_specific_code(word)).unwrap_or_default()
}

fn is_specific_code(word: &str) -> bool {
    let is_status = word.parse::<u64>().is_ok_and(|number| number < 600);
    !word.is_empty() && !is_status && !EMPTY_WORDS.contains(&word)
}

/// The title of an HTML page; any other text unchanged.
fn readable(text: &str) -> String {
    let lower = text.to_ascii_lowercase();
    if !text.starts_with('<') && !lower.contains("<html") {
        return text.to_owned();
    }
    let between = |open: &str, close: &str| {
        let from = lower.find(open)? + open.len();
        let rest = lower.get(from..)?;
        let inside = from + rest.find('>')? + 1;
        text.get(inside..inside + lower.get(inside..)?.find(close)?)
    };
    // Pages of proxies name the status in their title.
    let title = between("<title", "</title").or_else(|| between("<h1", "</h1"));
    strip_tags(title.filter(|title| !title.trim().is_empty()).unwrap_or(text))
}

/// The words of a page without its tags.
fn strip_tags(page: &str) -> String {
    let mut words = String::new();
    let mut is_tag = false;
    for character in page.chars() {
        match character {
            '<' => is_tag = true,
            '>' => {
                is_tag = false;
                words.push(' ');
            }
            _ if !is_tag => words.push(character),
            _ => {}
        }
    }
    words.split_whitespace().collect::<Vec<_>>().join(" ")
}
