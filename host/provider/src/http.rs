//! A provider behind HTTP: addresses, keys, timeouts, retries and frames, for every dialect.
//!
//! ```text
//!  cross_model ─► encode ─► HttpCall ─► send (key, 401) ─► AnswerBody ─► frames ─► decoder ─► AssistantMessage
//!                              ▲           refused, timed out, cut, invalid, empty
//!                              └─ RetryPolicy ◄── only before the first part
//! ```
//!
//! Keys are held in `SecretString`s, sent in headers marked as sensitive, and redacted in every text of
//! a provider.

mod builder;
mod call;
mod errors;
mod frames;
mod key;
mod retry;
mod timeouts;

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use futures_util::future::BoxFuture;
use reqwest::Url;
use reqwest::header::HeaderMap;
use secrecy::SecretString;
use serde_json::Value;
use tokio::sync::Mutex;

pub use key::{ApiKey, ApiKeyError};

use super::client::{ProviderClient, RetryWait, estimate_tokens};
use super::settings::{ConnectError, ProviderSettings};
use super::windows::parse_window;
use builder::ClientBuilder;
use call::{HttpCall, PartSink, STREAM_MAX_BYTES};
use ctxhost_dialects::cross_model;
use ctxhost_dialects::dialect::{Dialect, ModelResponse};
use ctxhost_dialects::failure::{Classifier, ProviderError};
use ctxhost_dialects::message::{AssistantMessage, ChatMessage};
use ctxhost_dialects::request::{ModelRequest, StreamPart};
use errors::ErrorBuilder;
use retry::RetryPolicy;
use timeouts::RequestTimeouts;

/// Statuses of servers without an endpoint that counts tokens.
const NO_COUNT_STATUSES: [u16; 3] = [404, 405, 501];

/// A provider behind HTTP, in any dialect.
pub struct HttpClient {
    name: String,
    dialect: Box<dyn Dialect>,
    http: reqwest::Client,
    base_url: Url,
    host: String,
    key: ApiKey,
    headers: HeaderMap,
    secrets: Vec<SecretString>,
    classifier: Arc<Classifier>,
    timeouts: RequestTimeouts,
    retry_policy: RetryPolicy,
    stream_max_bytes: usize,
}

impl std::fmt::Debug for HttpClient {
    /// Omits all fields that may hold a key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut debug = f.debug_struct("HttpClient");
        debug.field("name", &self.name).field("host", &self.host);
        debug.field("dialect", &self.dialect.api()).finish_non_exhaustive()
    }
}

impl HttpClient {
    /// A client; nothing is sent yet.
    ///
    /// # Errors
    ///
    /// [`ConnectError::Setting`] for an invalid address, proxy, header or phrase.
    pub fn new(
        name: &str,
        dialect: Box<dyn Dialect>,
        key: ApiKey,
        settings: &ProviderSettings,
    ) -> Result<HttpClient, ConnectError> {
        let builder = ClientBuilder { provider: name, settings };
        let base_url = builder.base_url()?;
        let (headers, secrets) = builder.headers()?;
        let port = base_url.port().map(|port| format!(":{port}")).unwrap_or_default();
        Ok(HttpClient {
            name: name.to_owned(),
            dialect,
            http: builder.http(&base_url)?,
            host: format!("{}{port}", base_url.host_str().unwrap_or_default()),
            base_url,
            key,
            headers,
            secrets,
            classifier: builder.classifier()?,
            timeouts: RequestTimeouts::from_settings(settings),
            retry_policy: RetryPolicy::from_settings(settings),
            stream_max_bytes: STREAM_MAX_BYTES,
        })
    }

    /// The request with messages that its model can read.
    fn adapt_request(&self, request: &ModelRequest) -> ModelRequest {
        let messages =
            cross_model::adapt_messages(&request.messages, self.api(), &self.name, &request.model);
        // Field by field, since `..request.clone()` would copy all messages only to drop them.
        ModelRequest {
            model: request.model.clone(),
            system: request.system.clone(),
            messages,
            tools: request.tools.clone(),
            max_output_tokens: request.max_output_tokens,
            window_tokens: request.window_tokens,
            thinking: request.thinking,
            temperature: request.temperature,
            cache_key: request.cache_key.clone(),
        }
    }

    fn call(&self, request: &ModelRequest, path: String, body: Option<Value>) -> HttpCall {
        HttpCall {
            model: request.model.clone(),
            path,
            headers: self.dialect.headers(request),
            body: body.map(|body| body.to_string()).unwrap_or_default(),
        }
    }

    fn error_builder<'a>(&'a self, model: &'a str, key: Option<&SecretString>) -> ErrorBuilder<'a> {
        ErrorBuilder {
            provider: &self.name,
            model,
            host: &self.host,
            secrets: self.secrets.iter().chain(key).cloned().collect(),
            classifier: &self.classifier,
            timeouts: self.timeouts,
        }
    }

    /// Sends a document to a path below the base URL that no dialect knows, and returns the answer.
    ///
    /// # Errors
    ///
    /// [`ProviderError`] of the last attempt.
    pub async fn post_json(
        &self,
        model: &str,
        path: &str,
        body: &Value,
    ) -> Result<Value, ProviderError> {
        let request = ModelRequest { model: model.to_owned(), ..ModelRequest::default() };
        let call = self.call(&request, path.to_owned(), Some(body.clone()));
        self.retry_policy.run(|| self.ask_json(&call, |answer| Ok(answer.clone()))).await
    }

    /// Sets provider, model and time of a message: only the same model may read it.
    fn stamp(&self, message: &mut ChatMessage, model: &str) {
        match message {
            ChatMessage::User(message) => message.timestamp = now_ms(),
            ChatMessage::ToolResult(message) => message.timestamp = now_ms(),
            ChatMessage::Assistant(message) => {
                message.provider.clone_from(&self.name);
                model.clone_into(&mut message.model);
                message.timestamp = now_ms();
            }
        }
    }

    fn assistant_message(&self, answer: ModelResponse, model: &str) -> AssistantMessage {
        let response_model = Some(answer.model).filter(|other| other != model).unwrap_or_default();
        AssistantMessage {
            content: answer.content,
            api: self.api().to_owned(),
            provider: self.name.clone(),
            model: model.to_owned(),
            response_model,
            response_id: answer.response_id,
            usage: answer.usage,
            stop_reason: answer.stop_reason,
            raw_stop_reason: answer.raw_stop_reason,
            timestamp: now_ms(),
            ..AssistantMessage::default()
        }
    }
}

/// Milliseconds since 1970.
fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

impl ProviderClient for HttpClient {
    fn name(&self) -> &str {
        &self.name
    }

    fn api(&self) -> &'static str {
        self.dialect.api()
    }

    fn generate<'a>(
        &'a self,
        request: &'a ModelRequest,
        parts: &'a mut (dyn FnMut(StreamPart<'_>) + Send),
    ) -> BoxFuture<'a, Result<AssistantMessage, ProviderError>> {
        self.generate_with_waits(request, parts, &|_| ())
    }

    fn generate_with_waits<'a>(
        &'a self,
        request: &'a ModelRequest,
        parts: &'a mut (dyn FnMut(StreamPart<'_>) + Send),
        on_wait: &'a (dyn Fn(RetryWait) + Send + Sync),
    ) -> BoxFuture<'a, Result<AssistantMessage, ProviderError>> {
        Box::pin(async move {
            let request = self.adapt_request(request);
            let body = self.dialect.encode(&request);
            let call = self.call(&request, self.dialect.path(&request), Some(body));
            // Each attempt borrows the sink, but the retry closure cannot hold it mutably.
            let sink = Mutex::new(PartSink::new(parts));
            let attempt = || async { self.attempt(&call, &mut *sink.lock().await).await };
            let answer = self.retry_policy.run_with_waits(attempt, on_wait).await?;
            Ok(self.assistant_message(answer, &call.model))
        })
    }

    fn count_tokens<'a>(
        &'a self,
        request: &'a ModelRequest,
    ) -> BoxFuture<'a, Result<u64, ProviderError>> {
        Box::pin(async move {
            let request = self.adapt_request(request);
            let Some((path, body)) = self.dialect.count_request(&request) else {
                return Ok(estimate_tokens(&request));
            };
            let call = self.call(&request, path, Some(body));
            let parse = |answer: &Value| Ok(self.dialect.parse_count(answer));
            // Servers that speak a dialect often lack its counting endpoint; an estimate is better than a failed turn.
            let cannot_count = |status: u16| NO_COUNT_STATUSES.contains(&status);
            match self.retry_policy.run(|| self.ask_json(&call, parse)).await {
                Ok(count) => Ok(count.unwrap_or_else(|| estimate_tokens(&request))),
                Err(error) if error.status.is_some_and(cannot_count) => {
                    Ok(estimate_tokens(&request))
                }
                Err(error) => Err(error),
            }
        })
    }

    fn query_window<'a>(
        &'a self,
        model: &'a str,
    ) -> BoxFuture<'a, Result<Option<u64>, ProviderError>> {
        Box::pin(async move {
            let Some((path, body)) = self.dialect.window_query(model) else { return Ok(None) };
            let request = ModelRequest { model: model.to_owned(), ..ModelRequest::default() };
            let call = self.call(&request, path, body);
            // Without retries: a window that is missing has a fallback.
            self.ask_json(&call, |answer| Ok(parse_window(answer, model))).await
        })
    }

    fn compact<'a>(
        &'a self,
        request: &'a ModelRequest,
    ) -> BoxFuture<'a, Result<Option<Vec<ChatMessage>>, ProviderError>> {
        Box::pin(async move {
            let request = self.adapt_request(request);
            let Some((path, body)) = self.dialect.compact_request(&request) else {
                return Ok(None);
            };
            let call = self.call(&request, path, Some(body));
            let parse = |answer: &Value| self.dialect.parse_compaction(answer);
            let mut messages = self.retry_policy.run(|| self.ask_json(&call, parse)).await?;
            messages.iter_mut().for_each(|message| self.stamp(message, &call.model));
            Ok(Some(messages))
        })
    }
}

#[cfg(test)]
mod tests;
