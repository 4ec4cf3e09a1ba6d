//! Why a request body of a client cannot be parsed, in words without the client's text.

use std::borrow::Cow;
use std::collections::HashMap;

use serde_json::error::Category;
use serde_json::value::RawValue;

use super::spans::span_of;

/// Why a body cannot be parsed. The gateway forwards such a body unchanged, without an engine.
///
/// Its message is logged, so it has nothing of the body: places, and kinds of values.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InboundError {
    /// The body is not a JSON request of the dialect.
    #[error("the body is not a request of this dialect: {reason}")]
    InvalidRequest {
        /// What was found and expected, with line and column.
        reason: String,
    },
    /// A message is not one of the dialect.
    #[error("message {number} does not match this dialect: {reason}")]
    InvalidMessage {
        /// The message's index, from 0, after the leading instructions.
        number: usize,
        /// What was found and expected.
        reason: Cow<'static, str>,
    },
}

impl InboundError {
    /// The error of a message that is JSON.
    pub(crate) fn in_message(number: usize, reason: &'static str) -> InboundError {
        InboundError::InvalidMessage { number, reason: reason.into() }
    }

    /// The error of a message that cannot be parsed as JSON.
    pub fn in_message_json(number: usize, error: &serde_json::Error) -> InboundError {
        InboundError::InvalidMessage { number, reason: describe_json_error(error, "").into() }
    }

    /// The same with the message's number counted from `before` messages earlier.
    #[must_use]
    pub fn after_items(self, before: usize) -> InboundError {
        match self {
            InboundError::InvalidMessage { number, reason } => {
                InboundError::InvalidMessage { number: before + number, reason }
            }
            other => other,
        }
    }
}

pub(crate) fn invalid_request(error: &serde_json::Error, json: &str) -> InboundError {
    InboundError::InvalidRequest { reason: describe_json_error(error, json) }
}

/// A parser's error without the value that it is about: serde quotes strings whole, and a string may be a conversation.
/// With `json`, the parsed object, it names the field.
pub fn describe_json_error(error: &serde_json::Error, json: &str) -> String {
    if error.classify() != Category::Data {
        // Errors of syntax quote nothing.
        return error.to_string();
    }
    let message = error.to_string();
    let place = format!("line {} column {}", error.line(), error.column());
    let is_about_fields = ["missing field `", "duplicate field `", "invalid length "];
    if is_about_fields.iter().any(|start| message.starts_with(start)) {
        // These name fields of ours.
        return message;
    }
    let Some((found, expected)) = found_and_expected(&message) else {
        return format!("a value of another form than expected at {place}");
    };
    let field = field_at(error, json);
    let field = field.map(|name| format!("`{name}`: ")).unwrap_or_default();
    format!("{field}found {found}, expected {expected}, at {place}")
}

/// The kinds of value that a message of serde names: `invalid type: string "...", expected a sequence at line 1 column 2`.
fn found_and_expected(message: &str) -> Option<(&str, &str)> {
    let rest = message.strip_prefix("invalid type: ").or(message.strip_prefix("invalid value: "))?;
    // The value may contain the same words, but what is expected comes last.
    let (found, expected) = rest.rsplit_once(", expected ")?;
    let is_kind = |c: char| c.is_ascii_alphabetic() || c == ' ';
    let kind = found.find(|c| !is_kind(c)).and_then(|end| found.get(..end));
    let (expected, _) = expected.rsplit_once(" at line ")?;
    let expected = if expected.starts_with("struct ") { "an object" } else { expected };
    Some((kind.unwrap_or(found).trim_end(), expected))
}

/// The field of an object in which an error is.
fn field_at<'a>(error: &serde_json::Error, json: &'a str) -> Option<Cow<'a, str>> {
    let lines_before = error.line().checked_sub(1)?;
    let line_start: usize = json.split_inclusive('\n').take(lines_before).map(str::len).sum();
    let at = line_start + error.column();
    let fields: HashMap<FieldName<'a>, &'a RawValue> = serde_json::from_str(json).ok()?;
    fields.into_iter().find_map(|(FieldName(name), value)| {
        let span = span_of(json, value.get());
        // The parser refuses a string at its end, and a list or an object at its start.
        (span.start <= at && at <= span.end).then_some(name)
    })
}

/// A key, borrowed where it has no escapes.
#[derive(PartialEq, Eq, Hash, serde::Deserialize)]
struct FieldName<'a>(#[serde(borrow)] Cow<'a, str>);

#[cfg(test)]
mod tests {
    use crate::anthropic::AnthropicInbound;
    use crate::gemini::GeminiInbound;
    use crate::inbound::{InboundDialect, parse_item};
    use crate::ollama::OllamaInbound;
    use crate::openai_chat::OpenAiChatInbound;
    use crate::openai_responses::OpenAiResponsesInbound;

    use super::*;

    const PRIVATE: &str = r#"PRIVATE "words", expected `nothing` at line 1"#;

    const DIALECTS: [(&dyn InboundDialect, &str); 5] = [
        (&AnthropicInbound, "messages"),
        (&OpenAiChatInbound, "messages"),
        (&OpenAiResponsesInbound, "input"),
        (&GeminiInbound, "contents"),
        (&OllamaInbound, "messages"),
    ];

    #[test]
    fn errors_of_bodies_contain_nothing_of_the_conversation() {
        let text = serde_json::Value::from(PRIVATE.repeat(1_000));
        for (dialect, list) in DIALECTS {
            let wrong = [
                format!(r#"{{"contents":{text},"messages":{text},"input":{{"a":{text}}}}}"#),
                format!(r#"{{"{list}":[],"{list}":{text}}}"#),
                format!(r#"[{text}]"#),
                text.to_string(),
                format!(r#"{{"{list}":[{text}]"#),
                format!(r#"{{"a":1,"{list}":"#),
            ];
            for json in wrong {
                let Err(error) = dialect.parse_body(&json) else { continue };
                let error = error.to_string();
                let has_text = error.contains("PRIVATE") || error.contains("words");
                assert!(!has_text && error.len() < 200, "{dialect:?}: {error}");
            }
        }
        let cut = format!(r#"{{"content":{text}"#);
        let error = InboundError::in_message_json(3, &parse_item(&cut).unwrap_err()).to_string();
        assert!(error.starts_with("message 3") && !error.contains("PRIVATE"), "{error}");
    }

    #[test]
    fn an_error_says_which_field_has_which_kind_of_value() {
        let check = |dialect: &dyn InboundDialect, json: &str, expected: &str| {
            let error = dialect.parse_body(json).unwrap_err().to_string();
            let error = error.strip_prefix("the body is not a request of this dialect: ").unwrap();
            assert_eq!(error, expected, "{json}");
        };
        let chat = &OpenAiChatInbound;
        check(
            chat,
            r#"{"model":"m","messages":"hi"}"#,
            "`messages`: found string, expected a sequence, at line 1 column 28",
        );
        check(
            chat,
            "{\n \"model\": \"m\",\n \"messages\": {\"role\": \"user\"}}",
            "`messages`: found map, expected a sequence, at line 3 column 13",
        );
        check(
            chat,
            r#"{"messages":-5}"#,
            "`messages`: found integer, expected a sequence, at line 1 column 14",
        );
        check(
            chat,
            r#"{"messages":null}"#,
            "`messages`: found null, expected a sequence, at line 1 column 16",
        );
        check(
            &GeminiInbound,
            r#"{"contents":"hi","tools":[]}"#,
            "`contents`: found string, expected a sequence, at line 1 column 16",
        );
        check(
            &OpenAiResponsesInbound,
            r#"{"input":{"a":1}}"#,
            "`input`: found map, expected a string or a list of items, at line 1 column 10",
        );
        check(chat, r#"{"model":"m"}"#, "missing field `messages` at line 1 column 13");
        check(chat, r#""hi""#, "found string, expected an object, at line 1 column 4");
        check(chat, r#"{"messages":[}"#, "expected value at line 1 column 14");
    }
}
