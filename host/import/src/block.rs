//! Builds blocks of Pi messages from the fields of other formats.

use serde_json::{Map, Value, json};

pub(super) fn text(text: impl Into<String>) -> Value {
    json!({ "type": "text", "text": text.into() })
}

pub(super) fn thinking(text: &str, signature: Option<&str>) -> Value {
    let mut block = json!({ "type": "thinking", "thinking": text });
    if let (Some(signature), Some(fields)) = (signature, block.as_object_mut()) {
        fields.insert("thinkingSignature".into(), signature.into());
    }
    block
}

/// A tool call. Pi requires an object as arguments, so any other value becomes its field `input`.
pub(super) fn tool_call(id: &str, name: &str, arguments: Value) -> Value {
    let arguments = match arguments {
        Value::Object(_) => arguments,
        Value::Null => json!({}),
        other => json!({ "input": other }),
    };
    json!({ "type": "toolCall", "id": id, "name": name, "arguments": arguments })
}

/// Parses arguments from a JSON string; an invalid one stays a string.
pub(super) fn arguments(written: &str) -> Value {
    if written.trim().is_empty() {
        return Value::Null;
    }
    serde_json::from_str(written).unwrap_or_else(|_| written.into())
}

pub(super) fn image(mime_type: &str, data: &str) -> Value {
    json!({ "type": "image", "data": data, "mimeType": mime_type })
}

/// An image by its URL: an image block for a base64 data URL, otherwise a text with the URL.
pub(super) fn image_at(url: &str) -> Value {
    match base64_image(url) {
        Some((mime_type, data)) => image(mime_type, data),
        None => text(format!("[image: {url}]")),
    }
}

/// MIME type and data of a base64 `data:` URL.
fn base64_image(url: &str) -> Option<(&str, &str)> {
    let (head, data) = url.strip_prefix("data:")?.split_once(',')?;
    let head = head.strip_suffix(";base64")?;
    let mime_type = head.split(';').next().filter(|mime| !mime.is_empty())?;
    Some((mime_type, data))
}

/// The text of a content: the string itself, or its text blocks joined by blank lines.
pub(super) fn joined_text(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(blocks) => {
            let texts: Vec<&str> =
                blocks.iter().filter_map(|block| string(block, "text")).collect();
            texts.join("\n\n")
        }
        _ => String::new(),
    }
}

/// The `type` of a block.
pub(super) fn kind(block: &Value) -> &str {
    string(block, "type").unwrap_or_default()
}

/// A string field of an object.
pub(super) fn string<'a>(value: &'a Value, name: &str) -> Option<&'a str> {
    value.get(name)?.as_str()
}

/// A token count in a field of an object; 0 if it is missing.
pub(super) fn tokens(value: &Value, name: &str) -> u64 {
    value.get(name).and_then(Value::as_u64).unwrap_or_default()
}

/// The usage of one reply, as counted by its provider.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ReplyUsage {
    /// Prompt tokens neither read from nor written to the cache.
    pub(super) input_tokens: u64,
    pub(super) output_tokens: u64,
    pub(super) cache_read_tokens: u64,
    pub(super) cache_write_tokens: u64,
}

impl ReplyUsage {
    /// In Pi's form. Pi sums up costs unconditionally, so the unknown prices are 0.
    pub(super) fn to_value(self) -> Value {
        let ReplyUsage { input_tokens, output_tokens, cache_read_tokens, cache_write_tokens } =
            self;
        let prompt_tokens =
            input_tokens.saturating_add(cache_read_tokens).saturating_add(cache_write_tokens);
        json!({
            "input": input_tokens,
            "output": output_tokens,
            "cacheRead": cache_read_tokens,
            "cacheWrite": cache_write_tokens,
            "totalTokens": prompt_tokens.saturating_add(output_tokens),
            "cost": { "input": 0, "output": 0, "cacheRead": 0, "cacheWrite": 0, "total": 0 },
        })
    }
}

/// A tool definition in Pi's form; an unknown shape is kept as it is.
pub(super) fn tool(defined: Value) -> Value {
    let inner = defined.get("function").unwrap_or(&defined);
    let schema = inner.get("parameters").or_else(|| inner.get("input_schema"));
    let (Some(name), Some(schema)) = (string(inner, "name"), schema) else { return defined };
    let mut tool = Map::new();
    tool.insert("name".into(), name.into());
    tool.insert("description".into(), string(inner, "description").unwrap_or_default().into());
    tool.insert("parameters".into(), schema.clone());
    Value::Object(tool)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_base64_addresses_become_images() {
        let png = json!({ "type": "image", "data": "AAAA", "mimeType": "image/png" });
        assert_eq!(image_at("data:image/png;base64,AAAA"), png);
        assert_eq!(image_at("data:image/png;name=a.png;base64,AAAA"), png);
        for url in ["https://a.example/b.png", "data:,hello", "data:;base64,AAAA", "data:"] {
            assert_eq!(image_at(url), text(format!("[image: {url}]")));
        }
    }

    #[test]
    fn arguments_are_always_an_object() {
        let of = |written: &str| tool_call("c", "t", arguments(written))["arguments"].clone();
        assert_eq!(of(r#"{"path":"a"}"#), json!({ "path": "a" }));
        assert_eq!(of(" "), json!({}));
        assert_eq!(of("null"), json!({}));
        assert_eq!(of("[1]"), json!({ "input": [1] }));
        assert_eq!(of(r#"{"path":"#), json!({ "input": r#"{"path":"# }));
    }

    #[test]
    fn tools_of_both_dialects() {
        let pi = json!({ "name": "read", "description": "reads", "parameters": {} });
        let openai = json!({ "type": "function", "function": pi });
        let anthropic = json!({ "name": "read", "description": "reads", "input_schema": {} });
        assert_eq!(tool(openai), pi);
        assert_eq!(tool(anthropic), pi);
        let built_in = json!({ "type": "web_search_20250305", "name": "web_search" });
        assert_eq!(tool(built_in.clone()), built_in);
    }
}
