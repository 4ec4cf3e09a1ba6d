//! Maps paths to endpoints, and other requests to the provider whose API they use.

use std::borrow::Cow;

use axum::http::header::AUTHORIZATION;
use axum::http::{HeaderMap, HeaderValue, Method, Request, Uri};

use super::proxy::EndpointAction::{Compact, CountTokens, Generate};
use super::proxy::{ARN_PREFIX, Endpoint};
use ctxhost_dialects::DialectName::{
    self, AnthropicMessages, GoogleGenerativeAi, Ollama, OpenAiCompletions, OpenAiResponses,
};

/// The endpoint of a request; `None` for requests that are forwarded unshaped.
pub(super) fn endpoint_for<B>(request: &Request<B>) -> Option<Endpoint> {
    // Of a signed body no byte may change.
    let may_change = request.method() == Method::POST && !is_signed(request.headers());
    may_change.then(|| shaped_endpoint(request.uri().path())).flatten()
}

/// Whether the request is signed as AWS requires where no key is sent.
fn is_signed(headers: &HeaderMap) -> bool {
    let authorization = headers.get(AUTHORIZATION).map(HeaderValue::as_bytes);
    authorization.is_some_and(|value| value.starts_with(b"AWS4-"))
}

/// The endpoint of a path, below any prefix: clients append `/v1` or not, and providers have base paths of their own
/// (`/api/v1`, `/openai/deployments/{name}`, `/anthropic/v1`). Clients may escape any character.
fn shaped_endpoint(path: &str) -> Option<Endpoint> {
    // An escaped slash may belong to a model's name, or be one that a client escaped needlessly.
    let segments: Vec<Cow<'_, str>> = path.split('/').map(unescape).collect();
    let segments = segments.iter().map(Cow::as_ref);
    endpoint_of(segments).or_else(|| endpoint_of(unescape(path).split('/')))
}

/// The endpoint of the segments of a path.
fn endpoint_of<'a>(segments: impl Iterator<Item = &'a str>) -> Option<Endpoint> {
    let segments: Vec<&str> = segments.filter(|segment| !segment.is_empty()).collect();
    let endpoint = body_endpoint(&segments).map(|endpoint| match deployment_of(&segments) {
        Some(name) => endpoint.with_deployment(name),
        None => endpoint,
    });
    endpoint.or_else(|| google_endpoint(&segments)).or_else(|| bedrock_endpoint(&segments))
}

/// The deployment that a path of Azure names.
fn deployment_of<'a>(segments: &[&'a str]) -> Option<&'a str> {
    let at = segments.iter().position(|segment| *segment == "deployments")?;
    segments.get(at + 1).copied()
}

/// The endpoint of the segments of a path, where the body names the model.
fn body_endpoint(segments: &[&str]) -> Option<Endpoint> {
    let (dialect, action) = match segments {
        [.., "chat", "completions"] => (OpenAiCompletions, Generate),
        [.., "responses"] => (OpenAiResponses, Generate),
        [.., "responses", "compact"] => (OpenAiResponses, Compact),
        [.., "responses", "input_tokens"] => (OpenAiResponses, CountTokens),
        [base @ .., "messages"] if is_anthropic_base(base) => (AnthropicMessages, Generate),
        [base @ .., "messages", "count_tokens"] if is_anthropic_base(base) => {
            (AnthropicMessages, CountTokens)
        }
        [.., "api", "chat"] => (Ollama, Generate),
        _ => return None,
    };
    Some(Endpoint::new(dialect, action))
}

/// Whether `messages` is Anthropic's endpoint here: OpenAI's threads have messages, too, behind the thread's id.
fn is_anthropic_base(base: &[&str]) -> bool {
    let is_version = |segment: &str| {
        segment.strip_prefix('v').is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit()))
    };
    base.last().is_none_or(|last| *last == "anthropic" || is_version(last))
}

/// `models/{model}:generateContent` and similar, for any version and prefix; tuned models have folders of their own.
/// Vertex serves Claude with Anthropic's bodies.
fn google_endpoint(segments: &[&str]) -> Option<Endpoint> {
    let [folder @ .., "models" | "tunedModels" | "endpoints", last] = segments else {
        return None;
    };
    let (model, action) = last.rsplit_once(':').filter(|(model, _)| !model.is_empty())?;
    let is_claude = folder.last() == Some(&"anthropic");
    let (dialect, action, is_stream) = match action {
        "generateContent" => (GoogleGenerativeAi, Generate, false),
        "streamGenerateContent" => (GoogleGenerativeAi, Generate, true),
        "countTokens" => (GoogleGenerativeAi, CountTokens, false),
        // Here the model is in the body.
        "rawPredict" if is_claude && model == "count-tokens" => {
            let endpoint = Endpoint::new(AnthropicMessages, CountTokens);
            return Some(Endpoint { upstream: GoogleGenerativeAi, ..endpoint });
        }
        "rawPredict" if is_claude => (AnthropicMessages, Generate, false),
        "streamRawPredict" if is_claude => (AnthropicMessages, Generate, true),
        _ => return None,
    };
    let endpoint = Endpoint::new(dialect, action).with_path_model(model, is_stream);
    Some(Endpoint { upstream: GoogleGenerativeAi, ..endpoint })
}

/// `/model/{id}/invoke`, where Bedrock serves Claude with Anthropic's bodies. Behind the ARN of a profile may be any model.
fn bedrock_endpoint(segments: &[&str]) -> Option<Endpoint> {
    let [.., "model", id, action] = segments else { return None };
    let is_stream = match *action {
        "invoke" => false,
        "invoke-with-response-stream" => true,
        _ => return None,
    };
    let is_claude = id.starts_with("anthropic.") || id.contains(".anthropic.");
    (is_claude || id.starts_with(ARN_PREFIX))
        .then(|| Endpoint::generate(AnthropicMessages).with_path_model(*id, is_stream))
}

/// A path with the characters that its escapes stand for (`%3A` is `:`); one whose bytes are no text stays as it is.
fn unescape(path: &str) -> Cow<'_, str> {
    let Some((start, rest)) = path.split_once('%') else { return Cow::Borrowed(path) };
    let mut bytes = start.as_bytes().to_vec();
    for piece in rest.split('%') {
        let digits =
            piece.get(..2).filter(|two| two.bytes().all(|digit| digit.is_ascii_hexdigit()));
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                bytes.extend_from_slice(piece.as_bytes().get(2..).unwrap_or_default());
            }
            None => {
                bytes.push(b'%');
                bytes.extend_from_slice(piece.as_bytes());
            }
        }
    }
    String::from_utf8(bytes).map_or(Cow::Borrowed(path), Cow::Owned)
}

/// Whether a request without an endpoint asks a model for an answer all the same, so that no engine keeps its conversation
/// inside a window.
pub(super) fn is_unshaped_generation<B>(request: &Request<B>) -> bool {
    let path = unescape(request.uri().path());
    let last = path.trim_end_matches('/').rsplit(['/', ':']).next();
    request.method() == Method::POST && last.is_some_and(|last| GENERATIONS.contains(&last))
}

/// How paths end on which models answer conversations, at any provider.
const GENERATIONS: [&str; 11] = [
    "chat",
    "converse",
    "converse-stream",
    "generateContent",
    "interactions",
    "invocations",
    "invoke",
    "invoke-with-response-stream",
    "rawPredict",
    "streamGenerateContent",
    "streamRawPredict",
];

/// The dialect of an unshaped request, by its path or headers.
pub(super) fn dialect_of(uri: &Uri, headers: &HeaderMap) -> DialectName {
    known_dialect_of(uri, headers).unwrap_or(DialectName::OpenAiCompletions)
}

/// The same; `None` if neither identifies a provider, so that the owner of its credentials is unknown.
pub(super) fn known_dialect_of(uri: &Uri, headers: &HeaderMap) -> Option<DialectName> {
    dialect_of_path(uri.path()).or_else(|| dialect_of_headers(uri, headers)).or_else(|| {
        let path = unescape(uri.path());
        begins_with_any(below_version(&path), &OPENAI_PATHS)
            .then_some(DialectName::OpenAiCompletions)
    })
}

/// Whether a path belongs to the gateway itself, valid or not.
pub(super) fn is_gateway_path(path: &str) -> bool {
    begins_with_any(&unescape(path), &["ui", "v1/compress", "v1/retrieve"])
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
        return Some(endpoint.upstream);
    }
    let path = &*unescape(path);
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

    fn post(path: &str) -> Option<Endpoint> {
        endpoint_for(&Request::post(path).body(()).unwrap())
    }

    fn google(endpoint: Endpoint) -> Endpoint {
        Endpoint { upstream: GoogleGenerativeAi, ..endpoint }
    }

    #[test]
    fn endpoints_are_found_with_and_without_a_version() {
        assert_eq!(post("/v1/messages"), Some(Endpoint::generate(AnthropicMessages)));
        assert_eq!(post("/chat/completions"), Some(Endpoint::generate(OpenAiCompletions)));
        assert_eq!(post("/v1/responses/"), Some(Endpoint::generate(OpenAiResponses)));
        let count = Endpoint::new(AnthropicMessages, CountTokens);
        assert_eq!(post("/v1/messages/count_tokens"), Some(count));
        let gemini = |action| Endpoint::new(GoogleGenerativeAi, action);
        for version in
            ["/v1", "/v1beta", "/v1alpha", "/v1/projects/p/locations/l/publishers/google"]
        {
            let path = format!("{version}/models/gemini-3-pro:streamGenerateContent");
            let expected = gemini(Generate).with_path_model("gemini-3-pro", true);
            assert_eq!(post(&path), Some(expected));
        }
        let count = gemini(CountTokens).with_path_model("gemini-3-pro", false);
        assert_eq!(post("/v1beta/models/gemini-3-pro:countTokens"), Some(count));
    }

    #[test]
    fn endpoints_are_found_below_the_base_paths_of_providers() {
        for (path, dialect, action) in [
            ("/api/v1/chat/completions", OpenAiCompletions, Generate),
            ("/api/paas/v4/chat/completions", OpenAiCompletions, Generate),
            ("/v1//chat/completions", OpenAiCompletions, Generate),
            ("/openai/v1/responses", OpenAiResponses, Generate),
            ("/backend-api/codex/responses", OpenAiResponses, Generate),
            ("/openai/responses/compact", OpenAiResponses, Compact),
            ("/openai/v1/responses/input_tokens", OpenAiResponses, CountTokens),
            ("/anthropic/v1/messages", AnthropicMessages, Generate),
            ("/anthropic/messages", AnthropicMessages, Generate),
            ("/apps/anthropic/v1/messages/count_tokens", AnthropicMessages, CountTokens),
            ("/api/chat", Ollama, Generate),
            ("/ollama/api/chat", Ollama, Generate),
        ] {
            assert_eq!(post(path), Some(Endpoint::new(dialect, action)), "{path}");
            assert_eq!(dialect_of_path(path), Some(dialect), "{path}");
        }
    }

    #[test]
    fn a_deployment_in_the_path_is_the_model_of_a_body_without_one() {
        for (end, dialect) in
            [("chat/completions", OpenAiCompletions), ("responses", OpenAiResponses)]
        {
            let endpoint = post(&format!("/openai/deployments/gpt-x/{end}")).unwrap();
            assert_eq!(endpoint, Endpoint::generate(dialect).with_deployment("gpt-x"));
            assert_eq!(endpoint.model("".into()), "gpt-x");
            assert_eq!(endpoint.model("named".into()), "named");
        }
        assert_eq!(post("/openai/deployments/gpt-x/embeddings"), None);
    }

    #[test]
    fn tuned_models_and_profiles_have_endpoints() {
        for (path, model) in [
            ("/v1beta/tunedModels/mine:generateContent", "mine"),
            ("/v1/projects/p/locations/l/endpoints/123:generateContent", "123"),
        ] {
            let expected = Endpoint::generate(GoogleGenerativeAi).with_path_model(model, false);
            assert_eq!(post(path), Some(expected), "{path}");
        }
        let arn = "arn:aws:bedrock:us-east-1:1:application-inference-profile/abc";
        let path = format!("/model/{}/invoke", arn.replace(':', "%3A").replace('/', "%2F"));
        let profile = Endpoint::generate(AnthropicMessages).with_path_model(arn, false);
        assert_eq!(post(&path), Some(profile.clone()));
        let body = |version: &str| format!(r#"{{{version}"messages":[]}}"#);
        assert!(profile.parse_body(&body(r#""anthropic_version":"x","#)).is_ok());
        assert!(profile.parse_body(&body("")).is_err(), "the model may be of another maker");
    }

    #[test]
    fn answers_that_no_engine_shapes_are_known_by_the_end_of_their_path() {
        let is_generation =
            |path: &str| is_unshaped_generation(&Request::post(path).body(()).unwrap());
        for path in [
            "/v1internal:streamGenerateContent",
            "/model/anthropic.claude-v1%3A0/converse",
            "/serving-endpoints/x/invocations/",
            "/v1beta/interactions",
        ] {
            assert!(is_generation(path), "{path}");
            assert_eq!(post(path), None, "{path}");
        }
        for path in ["/v1/embeddings", "/v1/models/m:embedContent", "/v1/messages/batches"] {
            assert!(!is_generation(path), "{path}");
        }
        assert!(!is_unshaped_generation(&Request::get("/v1/chat").body(()).unwrap()));
    }

    #[test]
    fn claude_is_found_in_clouds() {
        let models = "/v1/projects/p/locations/global/publishers/anthropic/models";
        let claude = || Endpoint::generate(AnthropicMessages);
        let id = "claude-sonnet-4-5@20250929";
        for (action, is_stream) in [("rawPredict", false), ("streamRawPredict", true)] {
            let path = format!("{models}/{id}:{action}");
            let expected = google(claude().with_path_model(id, is_stream));
            assert_eq!(post(&path), Some(expected));
            assert_eq!(dialect_of_path(&path), Some(GoogleGenerativeAi));
        }
        let count = google(Endpoint::new(AnthropicMessages, CountTokens));
        assert_eq!(post(&format!("{models}/count-tokens:rawPredict")), Some(count));

        let id = "us.anthropic.claude-sonnet-4-5-20250929-v1:0";
        for colon in [":", "%3A"] {
            let path = format!("/model/{}/invoke-with-response-stream", id.replace(':', colon));
            assert_eq!(post(&path), Some(claude().with_path_model(id, true)));
        }
        let path = format!("/model/{id}/invoke");
        let signed = |scheme: &str| {
            let header = format!("{scheme} Credential=x");
            endpoint_for(&Request::post(&path).header(AUTHORIZATION, header).body(()).unwrap())
        };
        assert_eq!(signed("Bearer"), Some(claude().with_path_model(id, false)));
        assert_eq!(signed("AWS4-HMAC-SHA256"), None);
    }

    #[test]
    fn escapes_are_read_as_what_they_stand_for() {
        let gemini = |model: &str| {
            Some(Endpoint::generate(GoogleGenerativeAi).with_path_model(model, false))
        };
        for path in [
            "/v1beta/models/gemini-x%3AgenerateContent",
            "/v1beta/models/gemini-x%3agenerateContent",
            "/v1beta%2Fmodels%2Fgemini-x:generateContent",
            "/v1beta/%6dodels/gemini%2Dx:generateContent",
        ] {
            assert_eq!(post(path), gemini("gemini-x"), "{path}");
            assert_eq!(dialect_of_path(path), Some(GoogleGenerativeAi), "{path}");
        }
        assert_eq!(post("/v1beta/models/org%2Fm:generateContent"), gemini("org/m"));
        assert_eq!(post("/v1beta/models/m%253A1:generateContent"), gemini("m%3A1"));
        assert_eq!(post("/v1/chat%2Fcompletions"), Some(Endpoint::generate(OpenAiCompletions)));
        assert_eq!(post("/v1/%6Dessages"), Some(Endpoint::generate(AnthropicMessages)));
        assert!(is_gateway_path("/v1%2Fcompress") && is_gateway_path("/%75i"));
        for path in
            ["/v1/chat%2fcompletion%73%2F%", "/v1/chat/completions%", "/v1/mess%zzages", "/%FF/%"]
        {
            assert_eq!(post(path), None, "{path}");
        }
    }

    #[test]
    fn other_paths_have_no_endpoint() {
        assert_eq!(endpoint_for(&Request::get("/v1/responses").body(()).unwrap()), None);
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
            "/v1/projects/p/locations/l/publishers/mistralai/models/m:rawPredict",
            "/model/amazon.nova-pro-v1:0/invoke",
            "/model/anthropic.claude-v1:0/converse",
        ] {
            assert_eq!(post(path), None, "{path}");
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
