//! Which door a request comes through, by its path, and whose language is spoken behind it.

use axum::http::{HeaderMap, Method, Uri};

use super::exchange::Door;
use crate::provider::DialectName;

/// The door of a request; `None` for everything that is only passed on.
pub(super) fn door(method: &Method, path: &str) -> Option<Door> {
    if method != Method::POST {
        return None;
    }
    let below = path.strip_prefix("/v1/").or_else(|| path.strip_prefix('/'))?;
    match below.trim_end_matches('/') {
        "messages" => Some(Door::Messages),
        "messages/count_tokens" => Some(Door::CountTokens),
        "chat/completions" => Some(Door::ChatCompletions),
        "responses" => Some(Door::Responses),
        "responses/compact" => Some(Door::ResponsesCompact),
        _ => generate(path),
    }
}

/// `/v1beta/models/{model}:generateContent` and its like, in any version and below any prefix.
fn generate(path: &str) -> Option<Door> {
    let (folder, last) = path.rsplit_once('/')?;
    let (model, action) = last.rsplit_once(':')?;
    if model.is_empty() || !folder.ends_with("/models") {
        return None;
    }
    let model = model.to_owned();
    match action {
        "generateContent" => Some(Door::Generate { model, is_stream: false }),
        "streamGenerateContent" => Some(Door::Generate { model, is_stream: true }),
        "countTokens" => Some(Door::GenerateCount { model }),
        _ => None,
    }
}

impl Door {
    /// The dialect that is spoken behind it.
    pub fn dialect(&self) -> DialectName {
        match self {
            Door::Messages | Door::CountTokens => DialectName::AnthropicMessages,
            Door::ChatCompletions => DialectName::OpenAiCompletions,
            Door::Responses | Door::ResponsesCompact => DialectName::OpenAiResponses,
            Door::Generate { .. } | Door::GenerateCount { .. } => DialectName::GoogleGenerativeAi,
        }
    }

    /// Whether the model answers behind it, and does not only count or compact.
    pub(super) fn is_answered_by_a_model(&self) -> bool {
        matches!(
            self,
            Door::Messages | Door::ChatCompletions | Door::Responses | Door::Generate { .. }
        )
    }
}

/// Whose language a request speaks that comes through no door: the path tells, else its headers.
pub(super) fn dialect_of(uri: &Uri, headers: &HeaderMap) -> DialectName {
    let path = uri.path();
    let has_key = uri
        .query()
        .is_some_and(|query| query.split('&').any(|pair| pair.split('=').next() == Some("key")));
    let is_gemini = path.starts_with("/v1beta")
        || path.starts_with("/v1alpha")
        || path.starts_with("/upload/")
        || headers.contains_key("x-goog-api-key")
        || has_key;
    if is_gemini {
        return DialectName::GoogleGenerativeAi;
    }
    let below = path.strip_prefix("/v1").unwrap_or(path);
    if below.starts_with("/messages") || headers.contains_key("anthropic-version") {
        return DialectName::AnthropicMessages;
    }
    match below.starts_with("/responses") || below.starts_with("/conversations") {
        true => DialectName::OpenAiResponses,
        false => DialectName::OpenAiCompletions,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doors_are_found_with_and_without_a_version() {
        let post = |path: &str| door(&Method::POST, path);
        assert_eq!(post("/v1/messages"), Some(Door::Messages));
        assert_eq!(post("/chat/completions"), Some(Door::ChatCompletions));
        assert_eq!(post("/v1/responses/"), Some(Door::Responses));
        assert_eq!(post("/v1/messages/count_tokens"), Some(Door::CountTokens));
        let model = || "gemini-3-pro".to_owned();
        for version in
            ["/v1", "/v1beta", "/v1alpha", "/v1/projects/p/locations/l/publishers/google"]
        {
            let path = format!("{version}/models/gemini-3-pro:streamGenerateContent");
            assert_eq!(post(&path), Some(Door::Generate { model: model(), is_stream: true }));
        }
        let count = post("/v1beta/models/gemini-3-pro:countTokens");
        assert_eq!(count, Some(Door::GenerateCount { model: model() }));
    }

    #[test]
    fn everything_else_is_passed_on() {
        assert_eq!(door(&Method::GET, "/v1/responses"), None);
        for path in [
            "/",
            "/v1/embeddings",
            "/v1/responses/resp_1",
            "/v1/messages/batches",
            "/v1beta/models/m:embedContent",
            "/v1beta/models/:generateContent",
            "/v1beta/caches/m:generateContent",
        ] {
            assert_eq!(door(&Method::POST, path), None, "{path}");
        }
    }

    #[test]
    fn a_language_is_told_by_path_and_headers() {
        let of = |path: &'static str, name: Option<&'static str>| {
            let mut headers = HeaderMap::new();
            if let Some(name) = name {
                headers.insert(name, "x".parse().unwrap());
            }
            dialect_of(&Uri::from_static(path), &headers)
        };
        assert_eq!(of("/v1/models", None), DialectName::OpenAiCompletions);
        assert_eq!(of("/v1/models", Some("anthropic-version")), DialectName::AnthropicMessages);
        assert_eq!(of("/v1/models", Some("x-goog-api-key")), DialectName::GoogleGenerativeAi);
        assert_eq!(of("/v1/models?key=1", None), DialectName::GoogleGenerativeAi);
        assert_eq!(of("/v1/messages/batches", None), DialectName::AnthropicMessages);
        assert_eq!(of("/v1/responses/input_tokens", None), DialectName::OpenAiResponses);
    }
}
