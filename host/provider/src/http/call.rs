//! One attempt of a request, from the first byte sent to the last one received.

use reqwest::Response;
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;
use tokio::time::{Instant, timeout_at};

use super::HttpClient;
use super::builder;
use super::errors::ErrorBuilder;
use super::frames::{AnswerBody, FrameStream, StreamReadError};
use crate::refused_answer::is_refused_answer;
use ctxhost_dialects::dialect::{FrameFormat, ModelResponse, StreamError, StreamFrame};
use ctxhost_dialects::failure::{FailureReason, ProviderError, parse_refusal};
use ctxhost_dialects::message::{ChatBlock, StopReason};
use ctxhost_dialects::request::StreamPart;
use ctxhost_dialects::surrogates::{SurrogateJoiner, replace_surrogate_halves};

/// The most of a refusal's body that is read, in bytes.
const REFUSAL_MAX_BYTES: usize = 64 * 1024;

/// The largest document or frame that is buffered, in bytes: more than any model writes.
const ANSWER_MAX_BYTES: usize = 64 * 1024 * 1024;

/// The largest stream, in bytes: each token takes some hundred, and one without an end must not fill the memory.
pub(super) const STREAM_MAX_BYTES: usize = 256 * 1024 * 1024;

/// The last event of OpenAI's streams.
const DONE: &str = "[DONE]";

/// What every attempt of a request sends.
#[derive(Debug)]
pub(super) struct HttpCall {
    pub(super) model: String,
    pub(super) path: String,
    pub(super) headers: Vec<(&'static str, String)>,
    /// JSON; a call without a body is a GET.
    pub(super) body: String,
}

/// The receiver of an answer's parts.
pub(super) struct PartSink<'a> {
    parts: &'a mut (dyn FnMut(StreamPart<'_>) + Send),
    has_started: bool,
}

impl<'a> PartSink<'a> {
    pub(super) fn new(parts: &'a mut (dyn FnMut(StreamPart<'_>) + Send)) -> PartSink<'a> {
        PartSink { parts, has_started: false }
    }

    fn emit(&mut self, part: StreamPart<'_>) {
        self.has_started = true;
        (self.parts)(part);
    }
}

/// A response whose body is not read yet.
pub(super) struct PendingResponse<'a> {
    response: Response,
    /// When the body has to start.
    deadline: Instant,
    errors: ErrorBuilder<'a>,
}

impl HttpClient {
    pub(super) async fn attempt(
        &self,
        call: &HttpCall,
        sink: &mut PartSink<'_>,
    ) -> Result<ModelResponse, ProviderError> {
        let answer = self.read_answer(call, sink).await;
        answer.map_err(|error| ProviderError { has_started: sink.has_started, ..error })
    }

    async fn read_answer(
        &self,
        call: &HttpCall,
        sink: &mut PartSink<'_>,
    ) -> Result<ModelResponse, ProviderError> {
        let PendingResponse { response, deadline, errors } = self.send(call).await?;
        let body = AnswerBody::open(response, deadline, self.timeouts.idle).await;
        let body = body.map_err(|error| match error {
            StreamReadError::IdleTimeout => errors.first_byte_timeout(),
            other => errors.read_error(&other),
        })?;
        if body.is_empty() {
            return Err(errors.empty_response(&ModelResponse::default()));
        }
        let framing = self.dialect.framing();
        // Some servers ignore `stream: true` and answer with one JSON document.
        let answer = if framing == FrameFormat::Sse && body.is_document() {
            self.read_document(body, &errors, sink).await?
        } else {
            let head = body.head();
            let frames = body.into_frames(framing, ANSWER_MAX_BYTES, self.stream_max_bytes);
            self.read_stream(head, frames, &errors, sink).await?
        };
        // Also one that the provider's rules ended: its text was streamed, and the stop reason is reported with it.
        if has_content(&answer) {
            Ok(answer)
        } else if is_refused_answer(&answer.raw_stop_reason) {
            Err(errors.refused_answer(&answer))
        } else {
            Err(errors.empty_response(&answer))
        }
    }

    /// Sends a request; repeats it once with a new key if the key was refused.
    pub(super) async fn send<'a>(
        &'a self,
        call: &'a HttpCall,
    ) -> Result<PendingResponse<'a>, ProviderError> {
        let (mut pending, key) = self.send_with_key(call).await?;
        // Only once: a second refusal means that the command's key is wrong.
        if pending.response.status() == 401 && self.key.forget(key.as_ref()).await {
            tracing::info!(provider = %self.name, "the key was refused; running api_key_command again");
            (pending, _) = self.send_with_key(call).await?;
        }
        if pending.response.status().is_success() {
            Ok(pending)
        } else {
            Err(self.read_refusal(pending, &call.path).await)
        }
    }

    async fn send_with_key<'a>(
        &'a self,
        call: &'a HttpCall,
    ) -> Result<(PendingResponse<'a>, Option<SecretString>), ProviderError> {
        let key = self.key.read().await.map_err(|error| {
            self.error_builder(&call.model, None).error(FailureReason::Auth, &error.to_string())
        })?;
        let errors = self.error_builder(&call.model, key.as_ref());
        let request = self
            .build_request(call, key.as_ref())
            .map_err(|problem| errors.error(FailureReason::Auth, problem))?;
        // One deadline for headers and first byte: many servers send headers before they compute.
        let deadline = Instant::now() + self.timeouts.first_byte;
        let response = match timeout_at(deadline, request.send()).await {
            Ok(response) => response.map_err(|error| errors.unreachable(&error))?,
            Err(_) => return Err(errors.first_byte_timeout()),
        };
        Ok((PendingResponse { response, deadline, errors }, key))
    }

    fn build_request(
        &self,
        call: &HttpCall,
        key: Option<&SecretString>,
    ) -> Result<reqwest::RequestBuilder, &'static str> {
        let mut headers = HeaderMap::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers
            .insert(ACCEPT, HeaderValue::from_static("text/event-stream, application/json, */*"));
        for (name, value) in &call.headers {
            let header = HeaderName::from_bytes(name.as_bytes());
            if let (Ok(name), Ok(value)) = (header, HeaderValue::from_str(value)) {
                headers.insert(name, value);
            }
        }
        if let Some(key) = key {
            let (name, prefix) = self.dialect.key_header();
            let value = HeaderValue::from_str(&format!("{prefix}{}", key.expose_secret()));
            let mut value = value.map_err(|_| "the key has characters that headers cannot hold")?;
            value.set_sensitive(true);
            headers.insert(HeaderName::from_static(name), value);
        }
        // Last, so that headers of the config replace all others.
        headers.extend(self.headers.clone());
        let url = builder::join_url(&self.base_url, &call.path);
        Ok(if call.body.is_empty() {
            self.http.get(url).headers(headers)
        } else {
            self.http.post(url).headers(headers).body(call.body.clone())
        })
    }

    async fn read_refusal(&self, pending: PendingResponse<'_>, path: &str) -> ProviderError {
        let PendingResponse { response, deadline, errors } = pending;
        let status = response.status();
        let headers = response.headers().clone();
        if status.is_redirection() {
            let message =
                format!("{} redirects to another address; set base_url to it", errors.host);
            let error = errors.error(FailureReason::Format, &message);
            return ProviderError { status: Some(status.as_u16()), ..error };
        }
        // The status alone is a refusal, even if the body cannot be read.
        let read = async {
            let body = AnswerBody::open(response, deadline, self.timeouts.idle).await?;
            body.read_text(REFUSAL_MAX_BYTES).await
        };
        // Within the time of a first byte: nothing is computed for a refusal.
        let text = timeout_at(deadline, read).await.ok().and_then(Result::ok).unwrap_or_default();
        // A wrong base_url, and not a wrong model: APIs state that in JSON.
        if status == 404 && text.trim_start().starts_with('<') {
            return errors.no_api(status.as_u16(), path);
        }
        let mut error =
            errors.refusal(&parse_refusal(Some(status.as_u16()), &text), Some(&headers));
        if error.reason == FailureReason::Auth
            && let Some(source) = self.key.source()
        {
            error.message = format!("{}; the key is from {source}", error.message);
        }
        error
    }

    async fn read_stream(
        &self,
        head: String,
        mut frames: FrameStream,
        errors: &ErrorBuilder<'_>,
        sink: &mut PartSink<'_>,
    ) -> Result<ModelResponse, ProviderError> {
        let mut decoder = self.dialect.new_decoder();
        let mut joiner = SurrogateJoiner::default();
        let mut has_frames = false;
        let read_error = loop {
            let frame = match frames.next_frame() {
                Ok(Some(frame)) => frame,
                Ok(None) => match frames.read_more().await {
                    Ok(true) => continue,
                    Ok(false) => break None,
                    Err(error) => break Some(error),
                },
                Err(error) => break Some(error),
            };
            has_frames = true;
            let data = joiner.join(frame.data);
            let whole = StreamFrame { data: &data, ..frame };
            let pushed = decoder.push(whole, &mut |part| sink.emit(part));
            pushed.map_err(|error| errors.stream_error(&error))?;
            // Some servers keep the connection open after the last event.
            if frame.data.trim() == DONE {
                break None;
            }
        };
        // A complete answer counts even if the connection failed after it.
        match (decoder.finish(), read_error) {
            (Ok(answer), _) => Ok(answer),
            (Err(StreamError::Cut), Some(error)) => Err(errors.read_error(&error)),
            (Err(StreamError::Cut), None) if !has_frames => Err(errors.invalid_response(&head)),
            (Err(error), _) => Err(errors.stream_error(&error)),
        }
    }

    /// Reads a document in place of a stream: an error, or the answer of a server that does not
    /// stream.
    async fn read_document(
        &self,
        body: AnswerBody,
        errors: &ErrorBuilder<'_>,
        sink: &mut PartSink<'_>,
    ) -> Result<ModelResponse, ProviderError> {
        let text = body.read_text(ANSWER_MAX_BYTES).await;
        let text = text.map_err(|error| errors.read_error(&error))?;
        let mut decoder = self.dialect.new_decoder();
        let data = replace_surrogate_halves(&text);
        let frame = StreamFrame { event: "", data: &data };
        let pushed = decoder.push(frame, &mut |part| sink.emit(part));
        let answer = pushed.and_then(|()| decoder.finish());
        answer.map_err(|error| match error {
            StreamError::Refused(_) => errors.stream_error(&error),
            // A document of another kind: a wrong base_url often answers with an HTML page.
            StreamError::InvalidFrame { .. } | StreamError::Cut => errors.invalid_response(&text),
        })
    }

    /// One request whose response is a JSON document.
    pub(super) async fn ask_json<T>(
        &self,
        call: &HttpCall,
        parse: impl Fn(&Value) -> Result<T, StreamError>,
    ) -> Result<T, ProviderError> {
        let PendingResponse { response, deadline, errors } = self.send(call).await?;
        let text = match AnswerBody::open(response, deadline, self.timeouts.idle).await {
            Ok(body) => body.read_text(ANSWER_MAX_BYTES).await,
            Err(error) => Err(error),
        };
        let text = text.map_err(|error| errors.read_error(&error))?;
        let answer = serde_json::from_str(&replace_surrogate_halves(&text))
            .map_err(|_| errors.invalid_response(&text))?;
        parse(&answer).map_err(|error| errors.stream_error(&error))
    }
}

fn has_content(answer: &ModelResponse) -> bool {
    let is_content = |block: &ChatBlock| match block {
        ChatBlock::Text { text, .. } => !text.trim().is_empty(),
        ChatBlock::Thinking { .. } => false,
        ChatBlock::ToolCall(_) | ChatBlock::Image { .. } => true,
        ChatBlock::ProviderItem { .. } | ChatBlock::Other(_) => true,
    };
    // An answer cut at its length may be empty: its usage then shows whether the window was full.
    answer.stop_reason == StopReason::Length || answer.content.iter().any(is_content)
}
