//! Maps paths to endpoints, and other requests to the provider whose API they use.

use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, Method, Uri};

use super::proxy::Endpoint;
use ctxhost_dialects::DialectName;

/// The endpoint of a request; `None` for requests that are forwarded unshaped.
pub(super) fn endpoint_for(method: &Method, path: &str) -> Option<Endpoint> {
    if method != Method::POST {
        return None;
    }
    shaped_endpoint(path)
}

/// The endpoint of a path, below any prefix: clients append `/v1` or not, and providers have base paths of their own
/// (`/api/v1`, `/openai/deployments/{name}`, `/anthropic/v1`).
fn shaped_endpoint(path: &str) -> Option<Endpoint> {
    let segments: Vec<&str> = path.split('/').filter(|segment| !segment.is_empty()).collect();
    match segments.as_slice() {
        [.., "chat", "completions"] => Some(Endpoint::ChatCompletions),
        [.., "responses"] => Some(Endpoint::Responses),
        [.., "responses", "compact"] => Some(Endpoint::ResponsesCompact),
        [.., "responses", "input_tokens"] => Some(Endpoint::ResponsesCountTokens),
        [base @ .., "messages"] if is_anthropic_base(base) => Some(Endpoint::Messages),
        [base @ .., "messages", "count_tokens"] if is_anthropic_base(base) => {
            Some(Endpoint::CountTokens)
        }
        [.., "api", "chat"] => Some(Endpoint::OllamaChat),
        _ => generate_endpoint(path),
    }
}

/// Whether `messages` is Anthropic's endpoint here: OpenAI's threads have messages, too, behind the thread's id.
fn is_anthropic_base(base: &[&str]) -> bool {
    let is_version = |segment: &str| {
        segment.strip_prefix('v').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    base.last().is_none_or(|last| *last == "anthropic" || is_version(last))
}

/// `models/{model}:generateContent` and similar, for any version and prefix.
fn generate_endpoint(path: &str) -> Option<Endpoint> {
    let (folder, last) = path.rsplit_once('/')?;
    let (model, action) = last.rsplit_once(':')?;
    if model.is_empty() || !folder.ends_with("/models") {
        return None;
    }
    let model = model.to_owned();
    match action {
        "generateContent" => Some(Endpoint::Generate { model, is_stream: false }),
        "streamGenerateContent" => Some(Endpoint::Generate { model, is_stream: true }),
        "countTokens" => Some(Endpoint::GenerateCountTokens { model }),
        _ => None,
    }
}

/// The dialect of an unshaped request, by its path or headers.
pub(super) fn dialect_of(uri: &Uri, headers: &HeaderMap) -> DialectName {
    known_dialect_of(uri, headers).unwrap_or(DialectName::OpenAiCompletions)
}

/// The same; `None` if neither identifies a provider, so that the owner of its credentials is unknown.
pub(super) fn known_dialect_of(uri: &Uri, headers: &HeaderMap) -> Option<DialectName> {
    dialect_of_path(uri.path()).or_else(|| dialect_of_headers(uri, headers)).or_else(|| {
        let below = below_version(uri.path());
        begins_with_any(below, &OPENAI_PATHS).then_some(DialectName::OpenAiCompletions)
    })
}

/// Whether a path belongs to the gateway itself, valid or not.
pub(super) fn is_gateway_path(path: &str) -> bool {
    begins_with_any(path, &["ui", "v1/compress", "v1/retrieve"])
}

/// The path prefixes of OpenAI's API and of compatible servers.
const OPENAI_PATHS: [&str; 21] = [
    "models",
    "chat",
    "completions",
    "embeddings",
    "files",
    "uploads",
    "batches",
    "images",
    "audio",
    "videos",
    "moderations",
    "fine_tuning",
    "assistants",
    "threads",
    "vector_stores",
    "containers",
    "evals",
    "realtime",
    "organization",
    "engines",
    "edits",
];

/// The path prefixes of Ollama's API.
const OLLAMA_PATHS: [&str; 14] = [
    "api/generate",
    "api/chat",
    "api/tags",
    "api/show",
    "api/ps",
    "api/pull",
    "api/push",
    "api/create",
    "api/copy",
    "api/delete",
    "api/blobs",
    "api/embed",
    "api/embeddings",
    "api/version",
];

/// The methods of Google's models, after a colon.
const GOOGLE_VERBS: [&str; 11] = [
    "generateContent",
    "streamGenerateContent",
    "batchGenerateContent",
    "generateAnswer",
    "countTokens",
    "computeTokens",
    "embedContent",
    "batchEmbedContents",
    "predict",
    "predictLongRunning",
    "rawPredict",
];

/// The provider of a path that only one provider has.
fn dialect_of_path(path: &str) -> Option<DialectName> {
    if let Some(endpoint) = shaped_endpoint(path) {
        return Some(endpoint.dialect());
    }
    // A colon alone is no evidence: local servers use it in model names (`qwen3:8b`).
    let verb = path.rsplit('/').next().and_then(|last| last.rsplit_once(':')).map(|(_, verb)| verb);
    let is_verb = verb.is_some_and(|verb| GOOGLE_VERBS.contains(&verb));
    let is_google = begins_with_any(path, &["v1beta", "v1alpha", "upload", "v1/projects"])
        || path.starts_with("/v1internal")
        || is_verb && path.contains("/models/");
    let below = below_version(path);
    let rows: [(bool, DialectName); 5] = [
        (is_google, DialectName::GoogleGenerativeAi),
        (begins_with_any(path, &OLLAMA_PATHS), DialectName::Ollama),
        (begins_with_any(below, &["messages"]), DialectName::AnthropicMessages),
        (begins_with_any(below, &["responses", "conversations"]), DialectName::OpenAiResponses),
        (begins_with_any(below, &["chat"]), DialectName::OpenAiCompletions),
    ];
    rows.into_iter().find(|(is, _)| *is).map(|(_, dialect)| dialect)
}

/// A key in the query is Google's if the request has no other.
fn dialect_of_headers(uri: &Uri, headers: &HeaderMap) -> Option<DialectName> {
    let query = uri.query().unwrap_or_default();
    let has_key = || query.split('&').any(|pair| pair.split('=').next() == Some("key"));
    let is_anthropic = headers.keys().any(|name| name.as_str().starts_with("anthropic-"))
        || headers.contains_key("x-api-key");
    if is_anthropic {
        return Some(DialectName::AnthropicMessages);
    }
    let is_google =
        headers.contains_key("x-goog-api-key") || has_key() && !headers.contains_key(AUTHORIZATION);
    is_google.then_some(DialectName::GoogleGenerativeAi)
}

fn below_version(path: &str) -> &str {
    path.strip_prefix("/v1").filter(|rest| rest.starts_with('/')).unwrap_or(path)
}

/// Whether a path begins with one of these, as whole segments.
fn begins_with_any(path: &str, names: &[&str]) -> bool {
    let path = path.strip_prefix('/').unwrap_or(path);
    let mut rests = names.iter().filter_map(|name| path.strip_prefix(*name));
    rests.any(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_found_with_and_without_a_version() {
        let post = |path: &str| endpoint_for(&Method::POST, path);
        assert_eq!(post("/v1/messages"), Some(Endpoint::Messages));
        assert_eq!(post("/chat/completions"), Some(Endpoint::ChatCompletions));
        assert_eq!(post("/v1/responses/"), Some(Endpoint::Responses));
        assert_eq!(post("/v1/messages/count_tokens"), Some(Endpoint::CountTokens));
        let model = || "gemini-3-pro".to_owned();
        for version in
            ["/v1", "/v1beta", "/v1alpha", "/v1/projects/p/locations/l/publishers/google"]
        {
            let path = format!("{version}/models/gemini-3-pro:streamGenerateContent");
            assert_eq!(post(&path), Some(Endpoint::Generate { model: model(), is_stream: true }));
        }
        let count = post("/v1beta/models/gemini-3-pro:countTokens");
        assert_eq!(count, Some(Endpoint::GenerateCountTokens { model: model() }));
    }

    #[test]
    fn endpoints_are_found_below_the_base_paths_of_providers() {
        for (path, endpoint) in [
            ("/api/v1/chat/completions", Endpoint::ChatCompletions),
            ("/openai/deployments/d/chat/completions", Endpoint::ChatCompletions),
            ("/api/paas/v4/chat/completions", Endpoint::ChatCompletions),
            ("/v1//chat/completions", Endpoint::ChatCompletions),
            ("/openai/v1/responses", Endpoint::Responses),
            ("/backend-api/codex/responses", Endpoint::Responses),
            ("/openai/responses/compact", Endpoint::ResponsesCompact),
            ("/openai/v1/responses/input_tokens", Endpoint::ResponsesCountTokens),
            ("/anthropic/v1/messages", Endpoint::Messages),
            ("/anthropic/messages", Endpoint::Messages),
            ("/apps/anthropic/v1/messages/count_tokens", Endpoint::CountTokens),
            ("/api/chat", Endpoint::OllamaChat),
            ("/ollama/api/chat", Endpoint::OllamaChat),
        ] {
            assert_eq!(endpoint_for(&Method::POST, path), Some(endpoint.clone()), "{path}");
            assert_eq!(dialect_of_path(path), Some(endpoint.dialect()), "{path}");
        }
    }

    #[test]
    fn other_paths_have_no_endpoint() {
        assert_eq!(endpoint_for(&Method::GET, "/v1/responses"), None);
        for path in [
            "/",
            "/v1/embeddings",
            "/v1/responses/resp_1",
            "/v1/messages/batches",
            "/v1/threads/thread_1/messages",
            "/v1/chat/completions/chatcmpl_1/messages",
            "/v1beta/models/m:embedContent",
            "/v1beta/models/:generateContent",
            "/v1beta/caches/m:generateContent",
        ] {
            assert_eq!(endpoint_for(&Method::POST, path), None, "{path}");
        }
    }

    #[test]
    fn the_dialect_follows_from_path_and_headers() {
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
        assert_eq!(of("/api/tags", None), DialectName::Ollama);
        assert_eq!(of("/v1/models?key=1", None), DialectName::GoogleGenerativeAi);
        assert_eq!(of("/v1/messages/batches", None), DialectName::AnthropicMessages);
        assert_eq!(of("/v1/responses/input_tokens", None), DialectName::OpenAiResponses);
        assert_eq!(of("/v1/models", Some("x-api-key")), DialectName::AnthropicMessages);
        assert_eq!(of("/v1/organizations/me", Some("x-api-key")), DialectName::AnthropicMessages);
        assert_eq!(of("/v1/files?key=x", Some("authorization")), DialectName::OpenAiCompletions);
        assert_eq!(
            of("/v1/models/qwen3:8b", Some("authorization")),
            DialectName::OpenAiCompletions
        );
        assert_eq!(of("/v1/messages?key=x", None), DialectName::AnthropicMessages);
        for path in
            ["/v1/projects/p/models/m:embedContent", "/v1internal:load", "/v1/models/m:predict"]
        {
            assert_eq!(of(path, Some("authorization")), DialectName::GoogleGenerativeAi, "{path}");
        }
    }
}
