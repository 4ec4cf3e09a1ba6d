//! OpenAI's chat completions, without streaming: enough for summaries at any compatible server.

use std::sync::Arc;
use std::time::Duration;

use ctxhost_engine_api::border::BoxFuture;
use ctxhost_engine_api::{Completion, CompletionRequest, EngineError, ErrorKind, Result};
use reqwest::StatusCode;
use serde::Deserialize;
use serde_json::{Value, json};

use super::Completer;

/// How the server is reached.
#[derive(Clone, PartialEq, Eq)]
pub struct OpenAiSettings {
    /// Such as `https://api.openai.com/v1`, with or without a slash at the end.
    pub base_url: String,
    /// The model's name.
    pub model: String,
    /// The key, already read from where it is kept; empty for servers without one.
    pub api_key: String,
    /// A request in all, in milliseconds.
    pub timeout_ms: u64,
    /// Upper limit of an answer where the request names none, in provider tokens.
    pub max_output_tokens: u64,
}

impl std::fmt::Debug for OpenAiSettings {
    /// Without the key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenAiSettings")
            .field("base_url", &self.base_url)
            .field("model", &self.model)
            .finish_non_exhaustive()
    }
}

/// Asks an OpenAI-compatible server.
pub struct OpenAiCompleter {
    wire: Arc<Wire>,
    runtime: tokio::runtime::Handle,
}

impl std::fmt::Debug for OpenAiCompleter {
    /// Without the key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenAiCompleter")
            .field("base_url", &self.wire.settings.base_url)
            .field("model", &self.wire.settings.model)
            .finish_non_exhaustive()
    }
}

impl OpenAiCompleter {
    /// A completer on the current tokio runtime: its connections live there, whichever thread of an
    /// engine waits for the answer.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::ModelFailed`] when no HTTP client can be built.
    pub fn new(settings: OpenAiSettings, runtime: tokio::runtime::Handle) -> Result<Self> {
        let client = reqwest::Client::builder()
            .timeout(Duration::from_millis(settings.timeout_ms))
            .build()
            .map_err(|error| EngineError::new(ErrorKind::ModelFailed, error.to_string()))?;
        Ok(OpenAiCompleter { wire: Arc::new(Wire { client, settings }), runtime })
    }
}

impl Completer for OpenAiCompleter {
    fn complete(&self, request: CompletionRequest) -> BoxFuture<Result<Completion>> {
        let (wire, runtime) = (self.wire.clone(), self.runtime.clone());
        Box::pin(async move {
            let task = runtime.spawn(async move { wire.complete(request).await });
            // A call that is given up gives up its request too.
            let _aborts = AbortOnDrop(task.abort_handle());
            let died = |_| EngineError::new(ErrorKind::Cancelled, "the host is shutting down");
            task.await.map_err(died)?
        })
    }
}

struct AbortOnDrop(tokio::task::AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

struct Wire {
    client: reqwest::Client,
    settings: OpenAiSettings,
}

impl Wire {
    async fn complete(&self, request: CompletionRequest) -> Result<Completion> {
        let url = format!("{}/chat/completions", self.settings.base_url.trim_end_matches('/'));
        let mut post = self.client.post(url).json(&self.body(&request));
        if !self.settings.api_key.is_empty() {
            post = post.bearer_auth(&self.settings.api_key);
        }
        let response = post.send().await.map_err(transport_error)?;
        let status = response.status();
        let text = response.text().await.map_err(transport_error)?;
        if !status.is_success() {
            return Err(refusal(status, &text));
        }
        let reply: Reply = serde_json::from_str(&text).map_err(|error| {
            EngineError::new(
                ErrorKind::ModelFailed,
                format!("the model's reply is no JSON: {error}"),
            )
        })?;
        reply.into_completion()
    }

    fn body(&self, request: &CompletionRequest) -> Value {
        let settings = &self.settings;
        let model = if request.model.is_empty() { &settings.model } else { &request.model };
        let max = match request.max_output_tokens {
            0 => settings.max_output_tokens,
            asked => asked.min(settings.max_output_tokens),
        };
        let mut messages = vec![json!({ "role": "user", "content": request.prompt })];
        if !request.system.is_empty() {
            messages.insert(0, json!({ "role": "system", "content": request.system }));
        }
        let mut body = json!({ "model": model, "messages": messages, "max_tokens": max });
        if let (Some(temperature), Some(fields)) = (request.temperature, body.as_object_mut()) {
            fields.insert("temperature".into(), temperature.into());
        }
        body
    }
}

#[derive(Deserialize)]
struct Reply {
    #[serde(default)]
    model: String,
    #[serde(default)]
    choices: Vec<Choice>,
    #[serde(default)]
    usage: Usage,
}

#[derive(Deserialize)]
struct Choice {
    message: ReplyMessage,
    finish_reason: Option<String>,
}

#[derive(Deserialize)]
struct ReplyMessage {
    content: Option<String>,
    #[serde(default)]
    tool_calls: Vec<Value>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Usage {
    prompt_tokens: u64,
    completion_tokens: u64,
}

impl Reply {
    fn into_completion(self) -> Result<Completion> {
        let fail = |kind, message: &str| Err(EngineError::new(kind, message));
        let Some(choice) = self.choices.into_iter().next() else {
            return fail(ErrorKind::ModelEmpty, "the model answered nothing");
        };
        if !choice.message.tool_calls.is_empty() {
            return fail(ErrorKind::ModelToolCall, "the model called a tool instead of answering");
        }
        if choice.finish_reason.as_deref() == Some("length") {
            return fail(ErrorKind::ModelLength, "the model's answer was cut at its length limit");
        }
        let text = choice.message.content.unwrap_or_default();
        if text.trim().is_empty() {
            return fail(ErrorKind::ModelEmpty, "the model answered nothing");
        }
        Ok(Completion {
            text,
            model: self.model,
            input_tokens: self.usage.prompt_tokens,
            output_tokens: self.usage.completion_tokens,
        })
    }
}

fn transport_error(error: reqwest::Error) -> EngineError {
    let kind = if error.is_timeout() { ErrorKind::ModelTimeout } else { ErrorKind::ModelFailed };
    EngineError::new(kind, format!("the model's server did not answer: {}", error.without_url()))
}

fn refusal(status: StatusCode, body: &str) -> EngineError {
    let said = serde_json::from_str::<Value>(body).ok();
    let error = said.as_ref().and_then(|said| said.get("error"));
    let field = |name| error.and_then(|error| error.get(name)).and_then(Value::as_str);
    let kind = match status.as_u16() {
        401 | 403 => ErrorKind::ModelAuth,
        429 => ErrorKind::ModelRateLimited,
        408 | 504 => ErrorKind::ModelTimeout,
        413 => ErrorKind::ModelOverflow,
        400 if field("code") == Some("context_length_exceeded") => ErrorKind::ModelOverflow,
        _ => ErrorKind::ModelFailed,
    };
    let message: String = field("message").unwrap_or("no reason given").chars().take(300).collect();
    EngineError::new(kind, format!("the model's server answered {status}: {message}"))
}
