//! One attempt: the request goes out, the answer comes in.

use reqwest::Response;
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;
use tokio::time::{Instant, timeout_at};

use super::HttpClient;
use super::builder;
use super::errors::ErrorBuilder;
use super::frames::{AnswerBody, FrameStream, StreamReadError};
use ctxhost_dialects::dialect::{Framing, ModelResponse, StreamError, StreamFrame};
use ctxhost_dialects::failure::{FailureReason, ProviderError, parse_refusal};
use ctxhost_dialects::message::{ChatBlock, StopReason};
use ctxhost_dialects::request::StreamPart;

/// The most of a refusal that is read, in bytes.
const REFUSAL_MAX_BYTES: usize = 64 * 1024;

/// The most of an answer that is held at once, a document or one frame, in bytes: more than any model writes.
const ANSWER_MAX_BYTES: usize = 64 * 1024 * 1024;

/// The last event of OpenAI's streams. Some servers keep the connection open after it.
const DONE: &str = "[DONE]";

/// What is sent, the same at every attempt.
#[derive(Debug)]
pub(super) struct HttpCall {
    pub(super) model: String,
    pub(super) path: String,
    pub(super) headers: Vec<(&'static str, String)>,
    /// JSON; a call without one is a GET.
    pub(super) body: String,
}

/// Whoever listens to an answer, and whether they heard anything.
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

/// A status of success, and when its body must begin.
pub(super) struct PendingResponse<'a> {
    response: Response,
    deadline: Instant,
    errors: ErrorBuilder<'a>,
}

impl HttpClient {
    /// Asks once.
    pub(super) async fn attempt(
        &self,
        call: &HttpCall,
        heard: &mut PartSink<'_>,
    ) -> Result<ModelResponse, ProviderError> {
        let answer = self.answer_once(call, heard).await;
        answer.map_err(|error| ProviderError { has_started: heard.has_started, ..error })
    }

    async fn answer_once(
        &self,
        call: &HttpCall,
        heard: &mut PartSink<'_>,
    ) -> Result<ModelResponse, ProviderError> {
        let PendingResponse { response, deadline, errors: failing } = self.send(call).await?;
        let body = AnswerBody::open(response, deadline, self.idle_timeout).await;
        let body = body.map_err(|trouble| match trouble {
            StreamReadError::IdleTimeout => {
                failing.first_byte_timeout(self.first_byte_timeout.as_millis())
            }
            other => failing.read_error(&other, self.idle_timeout.as_millis()),
        })?;
        if body.is_empty() {
            return Err(failing.empty_response(&ModelResponse::default()));
        }
        let answer = match self.dialect.framing() {
            Framing::Sse if body.is_document() => self.read_document(body, &failing, heard).await?,
            framing => {
                self.read_stream(
                    body.head(),
                    body.into_frames(framing, ANSWER_MAX_BYTES),
                    &failing,
                    heard,
                )
                .await?
            }
        };
        match has_content(&answer) {
            true => Ok(answer),
            false => Err(failing.empty_response(&answer)),
        }
    }

    /// Sends a request. A key that was refused is asked for again, once.
    pub(super) async fn send<'a>(
        &'a self,
        call: &'a HttpCall,
    ) -> Result<PendingResponse<'a>, ProviderError> {
        let (mut accepted, key) = self.send_with_key(call).await?;
        if accepted.response.status() == 401 && self.key.forget(key.as_ref()).await {
            tracing::info!(provider = %self.name, "the key was refused; running its command again");
            (accepted, _) = self.send_with_key(call).await?;
        }
        match accepted.response.status().is_success() {
            true => Ok(accepted),
            false => Err(self.refused(accepted).await),
        }
    }

    async fn send_with_key<'a>(
        &'a self,
        call: &'a HttpCall,
    ) -> Result<(PendingResponse<'a>, Option<SecretString>), ProviderError> {
        let key = self.key.read().await;
        let key = key.map_err(|error| {
            self.error_builder(&call.model, None).error(FailureReason::Auth, &error.to_string())
        })?;
        let failing = self.error_builder(&call.model, key.as_ref());
        let post = self
            .build_request(call, key.as_ref())
            .map_err(|no| failing.error(FailureReason::Auth, no))?;
        let deadline = Instant::now() + self.first_byte_timeout;
        let response = match timeout_at(deadline, post.send()).await {
            Ok(response) => response.map_err(|error| failing.unreachable(&error))?,
            Err(_) => return Err(failing.first_byte_timeout(self.first_byte_timeout.as_millis())),
        };
        Ok((PendingResponse { response, deadline, errors: failing }, key))
    }

    /// The request; headers of the config replace those of the same name.
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
            let (name, before) = self.dialect.key_header();
            let value = HeaderValue::from_str(&format!("{before}{}", key.expose_secret()));
            let mut value =
                value.map_err(|_| "the key holds characters that no header may hold")?;
            value.set_sensitive(true);
            headers.insert(HeaderName::from_static(name), value);
        }
        headers.extend(self.headers.clone());
        let url = builder::join_url(&self.base_url, &call.path);
        Ok(match call.body.is_empty() {
            true => self.http.get(url).headers(headers),
            false => self.http.post(url).headers(headers).body(call.body.clone()),
        })
    }

    async fn refused(&self, accepted: PendingResponse<'_>) -> ProviderError {
        let PendingResponse { response, deadline, errors: failing } = accepted;
        let status = response.status();
        let headers = response.headers().clone();
        if status.is_redirection() {
            let message =
                format!("{} sends on to another address; set base_url to it", failing.host);
            let error = failing.error(FailureReason::Format, &message);
            return ProviderError { status: Some(status.as_u16()), ..error };
        }
        // A refusal whose words do not come is a refusal all the same.
        let text = match AnswerBody::open(response, deadline, self.idle_timeout).await {
            Ok(body) => body.read_text(REFUSAL_MAX_BYTES).await.unwrap_or_default(),
            Err(_) => String::new(),
        };
        failing.refusal(&parse_refusal(Some(status.as_u16()), &text), Some(&headers))
    }

    async fn read_stream(
        &self,
        head: String,
        mut frames: FrameStream,
        failing: &ErrorBuilder<'_>,
        heard: &mut PartSink<'_>,
    ) -> Result<ModelResponse, ProviderError> {
        let mut decoder = self.dialect.new_decoder();
        let mut has_frames = false;
        let trouble = loop {
            let frame = match frames.next_frame() {
                Ok(Some(frame)) => frame,
                Ok(None) => match frames.read_more().await {
                    Ok(true) => continue,
                    Ok(false) => break None,
                    Err(trouble) => break Some(trouble),
                },
                Err(trouble) => break Some(trouble),
            };
            has_frames = true;
            let pushed = decoder.push(frame, &mut |part| heard.emit(part));
            pushed.map_err(|fault| failing.stream_error(&fault))?;
            if frame.data.trim() == DONE {
                break None;
            }
        };
        // An answer that is whole stays one, whatever became of the connection behind it.
        match (decoder.finish(), trouble) {
            (Ok(answer), _) => Ok(answer),
            (Err(StreamError::Cut), Some(trouble)) => {
                Err(failing.read_error(&trouble, self.idle_timeout.as_millis()))
            }
            (Err(StreamError::Cut), None) if !has_frames => Err(failing.invalid_response(&head)),
            (Err(fault), _) => Err(failing.stream_error(&fault)),
        }
    }

    /// Reads what came as one document where a stream was asked for: an error, or the answer of a
    /// server that does not stream.
    async fn read_document(
        &self,
        body: AnswerBody,
        failing: &ErrorBuilder<'_>,
        heard: &mut PartSink<'_>,
    ) -> Result<ModelResponse, ProviderError> {
        let text = body.read_text(ANSWER_MAX_BYTES).await;
        let text =
            text.map_err(|trouble| failing.read_error(&trouble, self.idle_timeout.as_millis()))?;
        let mut decoder = self.dialect.new_decoder();
        let frame = StreamFrame { event: "", data: &text };
        let pushed = decoder.push(frame, &mut |part| heard.emit(part));
        let answer = pushed.and_then(|()| decoder.finish());
        answer.map_err(|fault| match fault {
            StreamError::Refused(_) => failing.stream_error(&fault),
            StreamError::InvalidFrame { .. } | StreamError::Cut => failing.invalid_response(&text),
        })
    }

    /// One question whose answer is no stream.
    pub(super) async fn ask_json<T>(
        &self,
        call: &HttpCall,
        read: impl Fn(&Value) -> Result<T, StreamError>,
    ) -> Result<T, ProviderError> {
        let PendingResponse { response, deadline, errors: failing } = self.send(call).await?;
        let text = match AnswerBody::open(response, deadline, self.idle_timeout).await {
            Ok(body) => body.read_text(ANSWER_MAX_BYTES).await,
            Err(trouble) => Err(trouble),
        };
        let text =
            text.map_err(|trouble| failing.read_error(&trouble, self.idle_timeout.as_millis()))?;
        let answer = serde_json::from_str(&text).map_err(|_| failing.invalid_response(&text))?;
        read(&answer).map_err(|fault| failing.stream_error(&fault))
    }
}

/// Whether there is anything in an answer. One that was cut at its length counts without words: its
/// usage may show that the window was full.
fn has_content(answer: &ModelResponse) -> bool {
    let is_something = |block: &ChatBlock| match block {
        ChatBlock::Text { text, .. } => !text.trim().is_empty(),
        ChatBlock::Thinking { .. } => false,
        ChatBlock::ToolCall(_) | ChatBlock::Image { .. } => true,
        ChatBlock::ProviderItem { .. } | ChatBlock::Other(_) => true,
    };
    answer.stop_reason == StopReason::Length || answer.content.iter().any(is_something)
}
