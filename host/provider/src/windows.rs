//! Parses the windows that providers state in model lists and Ollama in `/api/show`.

use serde_json::Value;

/// Fields with a window, in provider tokens: of OpenAI-compatible servers (Groq, vLLM, OpenRouter,
/// Mistral, LM Studio), Anthropic and Gemini.
const FIELDS: [&str; 7] = [
    "context_window",
    "max_model_len",
    "context_length",
    "max_context_length",
    "loaded_context_length",
    "max_input_tokens",
    "inputTokenLimit",
];

/// Nested fields with a window.
const NESTED: [(&str, &str); 2] = [("top_provider", "context_length"), ("meta", "n_ctx")];

/// The windows in a model list or a single entry: name and provider tokens.
pub fn parse_windows(json: &[u8]) -> Vec<(String, u64)> {
    let Ok(list) = serde_json::from_slice::<Value>(json) else { return Vec::new() };
    let lists = ["data", "models"].into_iter().filter_map(|name| list.get(name)?.as_array());
    let entries = lists.flatten().chain(std::iter::once(&list));
    entries.filter_map(|entry| Some((name_of(entry)?.to_owned(), window_of(entry)?))).collect()
}

/// The window of one model in a response: a model list, its entry, or Ollama's `/api/show`.
pub fn parse_window(answer: &Value, model: &str) -> Option<u64> {
    if let Some(window) = ollama_window(answer) {
        return Some(window);
    }
    let listed = parse_windows(answer.to_string().as_bytes());
    listed.into_iter().find(|(name, _)| name == model).map(|(_, tokens)| tokens)
}

fn name_of(entry: &Value) -> Option<&str> {
    let name = entry.get("id").or_else(|| entry.get("name"))?.as_str()?;
    Some(name.trim_start_matches("models/"))
}

/// The smallest of an entry's windows: a server may have loaded less than the model supports.
fn window_of(entry: &Value) -> Option<u64> {
    let plain = FIELDS.iter().filter_map(|field| entry.get(*field));
    let nested = NESTED.iter().filter_map(|(object, field)| entry.get(*object)?.get(*field));
    // Some servers state 0 for unknown.
    plain.chain(nested).filter_map(Value::as_u64).filter(|tokens| *tokens > 0).min()
}

/// The window in Ollama's `/api/show`: that of the model file, else that of its training.
fn ollama_window(answer: &Value) -> Option<u64> {
    let set = answer.get("parameters").and_then(Value::as_str).and_then(|parameters| {
        // Ollama lists parameters as lines of text.
        let mut lines = parameters.lines().map(str::split_whitespace);
        lines.find_map(|mut words| {
            (words.next()? == "num_ctx").then(|| words.next()?.parse().ok())?
        })
    });
    let info = answer.get("model_info").and_then(Value::as_object);
    let trained = || {
        let mut lengths = info?.iter().filter(|(name, _)| name.ends_with(".context_length"));
        lengths.find_map(|(_, tokens)| tokens.as_u64())
    };
    set.or_else(trained).filter(|tokens| *tokens > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn each_server_has_its_own_field() {
        for (entry, tokens) in [
            (json!({"id": "m", "context_window": 131_072}), Some(131_072)),
            (json!({"id": "m", "max_model_len": 32_768}), Some(32_768)),
            (
                json!({"id": "m", "context_length": 200_000, "top_provider": {"context_length": 64_000}}),
                Some(64_000),
            ),
            (
                json!({"id": "m", "max_context_length": 128_000, "loaded_context_length": 8_192}),
                Some(8_192),
            ),
            (json!({"name": "models/m", "inputTokenLimit": 1_048_576}), Some(1_048_576)),
            (json!({"id": "m", "max_input_tokens": 200_000}), Some(200_000)),
            (json!({"id": "m", "context_length": 0}), None),
            (json!({"id": "m", "context_length": "8192"}), None),
            (json!({"id": "other", "context_length": 8_192}), None),
            (json!({"id": "m", "object": "model"}), None),
        ] {
            for answer in [json!({"data": [entry]}), json!({"models": [entry]}), entry.clone()] {
                assert_eq!(parse_window(&answer, "m"), tokens, "{answer}");
            }
        }
        assert!(parse_windows(b"no json").is_empty() && parse_windows(b"[1]").is_empty());
    }

    #[test]
    fn ollama_shows_what_is_set_before_what_was_trained() {
        let info = json!({"llama.context_length": 131_072, "general.architecture": "llama"});
        let trained = json!({"parameters": "stop \"x\"", "model_info": info});
        assert_eq!(parse_window(&trained, "any"), Some(131_072));
        let set = json!({"parameters": "stop \"x\"\nnum_ctx      16384\n", "model_info": info});
        assert_eq!(parse_window(&set, "any"), Some(16_384));
        assert_eq!(parse_window(&json!({"model_info": {}}), "any"), None);
    }
}
