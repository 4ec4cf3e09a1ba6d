//! Which door a request comes through, by its path, and whose language is spoken behind it.

use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, Method, Uri};

use super::proxy::Endpoint;
use ctxhost_dialects::DialectName;

/// The door of a request; `None` for everything that is only passed on.
pub(super) fn endpoint_for(method: &Method, path: &str) -> Option<Endpoint> {
    if method != Method::POST {
        return None;
    }
    let below = path.strip_prefix("/v1/").or_else(|| path.strip_prefix('/'))?;
    match below.trim_end_matches('/') {
        "messages" => Some(Endpoint::Messages),
        "messages/count_tokens" => Some(Endpoint::CountTokens),
        "chat/completions" => Some(Endpoint::ChatCompletions),
        "responses" => Some(Endpoint::Responses),
        "responses/compact" => Some(Endpoint::ResponsesCompact),
        _ => generate_endpoint(path),
    }
}

/// `/v1beta/models/{model}:generateContent` and its like, in any version and below any prefix.
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

impl Endpoint {
    /// The dialect that is spoken behind it.
    pub fn dialect(&self) -> DialectName {
        match self {
            Endpoint::Messages | Endpoint::CountTokens => DialectName::AnthropicMessages,
            Endpoint::ChatCompletions => DialectName::OpenAiCompletions,
            Endpoint::Responses | Endpoint::ResponsesCompact => DialectName::OpenAiResponses,
            Endpoint::Generate { .. } | Endpoint::GenerateCountTokens { .. } => {
                DialectName::GoogleGenerativeAi
            }
        }
    }

    /// Whether the model answers behind it, and does not only count or compact.
    pub(super) fn is_generation(&self) -> bool {
        matches!(
            self,
            Endpoint::Messages
                | Endpoint::ChatCompletions
                | Endpoint::Responses
                | Endpoint::Generate { .. }
        )
    }
}

/// Whose language a request speaks that comes through no door: the path tells, else its headers.
pub(super) fn dialect_of(uri: &Uri, headers: &HeaderMap) -> DialectName {
    known_dialect_of(uri, headers).unwrap_or(DialectName::OpenAiCompletions)
}

/// The same; `None` where neither tells, so that nobody knows whose key it shows.
pub(super) fn known_dialect_of(uri: &Uri, headers: &HeaderMap) -> Option<DialectName> {
    dialect_of_path(uri.path()).or_else(|| dialect_of_headers(uri, headers)).or_else(|| {
        let below = below_version(uri.path());
        begins_with_any(below, &OPENAI_PATHS).then_some(DialectName::OpenAiCompletions)
    })
}

/// Whether a path is one of the gateway's own, rightly written or not.
pub(super) fn is_gateway_path(path: &str) -> bool {
    begins_with_any(path, &["ui", "v1/compress", "v1/retrieve"])
}

/// What OpenAI answers, and everybody who speaks like it.
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

/// What Google's models are asked to do, behind a colon.
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

/// Paths that one company alone has.
fn dialect_of_path(path: &str) -> Option<DialectName> {
    // A colon alone says nothing: local servers have it in the names of models.
    let verb = path.rsplit('/').next().and_then(|last| last.rsplit_once(':')).map(|it| it.1);
    let is_verb = verb.is_some_and(|verb| GOOGLE_VERBS.contains(&verb));
    let is_google = begins_with_any(path, &["v1beta", "v1alpha", "upload", "v1/projects"])
        || path.starts_with("/v1internal")
        || is_verb && path.contains("/models/");
    let below = below_version(path);
    let rows: [(bool, DialectName); 4] = [
        (is_google, DialectName::GoogleGenerativeAi),
        (begins_with_any(below, &["messages"]), DialectName::AnthropicMessages),
        (begins_with_any(below, &["responses", "conversations"]), DialectName::OpenAiResponses),
        (begins_with_any(below, &["chat"]), DialectName::OpenAiCompletions),
    ];
    rows.into_iter().find(|(is, _)| *is).map(|(_, dialect)| dialect)
}

/// A key in the address is Google's where no other one is shown.
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

/// Whether a path begins with one of these, which are whole segments.
fn begins_with_any(path: &str, names: &[&str]) -> bool {
    let path = path.strip_prefix('/').unwrap_or(path);
    let mut rests = names.iter().filter_map(|name| path.strip_prefix(*name));
    rests.any(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doors_are_found_with_and_without_a_version() {
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
    fn everything_else_is_passed_on() {
        assert_eq!(endpoint_for(&Method::GET, "/v1/responses"), None);
        for path in [
            "/",
            "/v1/embeddings",
            "/v1/responses/resp_1",
            "/v1/messages/batches",
            "/v1beta/models/m:embedContent",
            "/v1beta/models/:generateContent",
            "/v1beta/caches/m:generateContent",
        ] {
            assert_eq!(endpoint_for(&Method::POST, path), None, "{path}");
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
