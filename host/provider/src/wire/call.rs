//! One attempt: the request goes out, the answer comes in.

use reqwest::Response;
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;
use tokio::time::{Instant, timeout_at};

use super::HttpClient;
use super::build;
use super::failing::Failing;
use super::frames::{Body, Frames, Trouble};
use ctxhost_dialects::dialect::{Answer, Frame, Framing, StreamFault};
use ctxhost_dialects::failure::{ProviderError, Reason, refusal_of};
use ctxhost_dialects::message::{Content, StopReason};
use ctxhost_dialects::request::StreamPart;

/// The most of a refusal that is read, in bytes.
const REFUSAL_MAX_BYTES: usize = 64 * 1024;

/// The most of an answer that is held at once, a document or one frame, in bytes: more than any model writes.
const ANSWER_MAX_BYTES: usize = 64 * 1024 * 1024;

/// The last event of OpenAI's streams. Some servers keep the connection open after it.
const DONE: &str = "[DONE]";

/// What is sent, the same at every attempt.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) model: String,
    pub(super) path: String,
    pub(super) headers: Vec<(&'static str, String)>,
    /// JSON; a call without one is a GET.
    pub(super) body: String,
}

/// Whoever listens to an answer, and whether they heard anything.
pub(super) struct Heard<'a> {
    parts: &'a mut (dyn FnMut(StreamPart<'_>) + Send),
    began: bool,
}

impl<'a> Heard<'a> {
    pub(super) fn new(parts: &'a mut (dyn FnMut(StreamPart<'_>) + Send)) -> Heard<'a> {
        Heard { parts, began: false }
    }

    fn hear(&mut self, part: StreamPart<'_>) {
        self.began = true;
        (self.parts)(part);
    }
}

/// A status of success, and when its body must begin.
pub(super) struct Accepted<'a> {
    response: Response,
    deadline: Instant,
    failing: Failing<'a>,
}

impl HttpClient {
    /// Asks once.
    pub(super) async fn attempt(
        &self,
        call: &Call,
        heard: &mut Heard<'_>,
    ) -> Result<Answer, ProviderError> {
        let answer = self.answer_once(call, heard).await;
        answer.map_err(|error| ProviderError { began: heard.began, ..error })
    }

    async fn answer_once(
        &self,
        call: &Call,
        heard: &mut Heard<'_>,
    ) -> Result<Answer, ProviderError> {
        let Accepted { response, deadline, failing } = self.send(call).await?;
        let body = Body::open(response, deadline, self.idle).await;
        let body = body.map_err(|trouble| match trouble {
            Trouble::Silent => failing.too_slow(self.first_byte.as_millis()),
            other => failing.troubled(&other, self.idle.as_millis()),
        })?;
        if body.is_empty() {
            return Err(failing.empty(&Answer::default()));
        }
        let answer = match self.dialect.framing() {
            Framing::Sse if body.is_document() => self.read_document(body, &failing, heard).await?,
            framing => {
                self.read_stream(
                    body.head(),
                    body.frames(framing, ANSWER_MAX_BYTES),
                    &failing,
                    heard,
                )
                .await?
            }
        };
        match says_something(&answer) {
            true => Ok(answer),
            false => Err(failing.empty(&answer)),
        }
    }

    /// Sends a request. A key that was refused is asked for again, once.
    pub(super) async fn send<'a>(&'a self, call: &'a Call) -> Result<Accepted<'a>, ProviderError> {
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
        call: &'a Call,
    ) -> Result<(Accepted<'a>, Option<SecretString>), ProviderError> {
        let key = self.key.read().await;
        let key = key.map_err(|error| {
            self.failing(&call.model, None).error(Reason::Auth, &error.to_string())
        })?;
        let failing = self.failing(&call.model, key.as_ref());
        let post = self.post(call, key.as_ref()).map_err(|no| failing.error(Reason::Auth, no))?;
        let deadline = Instant::now() + self.first_byte;
        let response = match timeout_at(deadline, post.send()).await {
            Ok(response) => response.map_err(|error| failing.unreachable(&error))?,
            Err(_) => return Err(failing.too_slow(self.first_byte.as_millis())),
        };
        Ok((Accepted { response, deadline, failing }, key))
    }

    /// The request; headers of the config replace those of the same name.
    fn post(
        &self,
        call: &Call,
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
        let url = build::join(&self.base_url, &call.path);
        Ok(match call.body.is_empty() {
            true => self.http.get(url).headers(headers),
            false => self.http.post(url).headers(headers).body(call.body.clone()),
        })
    }

    async fn refused(&self, accepted: Accepted<'_>) -> ProviderError {
        let Accepted { response, deadline, failing } = accepted;
        let status = response.status();
        let headers = response.headers().clone();
        if status.is_redirection() {
            let message =
                format!("{} sends on to another address; set base_url to it", failing.host);
            let error = failing.error(Reason::Format, &message);
            return ProviderError { status: Some(status.as_u16()), ..error };
        }
        // A refusal whose words do not come is a refusal all the same.
        let text = match Body::open(response, deadline, self.idle).await {
            Ok(body) => body.text(REFUSAL_MAX_BYTES).await.unwrap_or_default(),
            Err(_) => String::new(),
        };
        failing.refused(&refusal_of(Some(status.as_u16()), &text), Some(&headers))
    }

    async fn read_stream(
        &self,
        head: String,
        mut frames: Frames,
        failing: &Failing<'_>,
        heard: &mut Heard<'_>,
    ) -> Result<Answer, ProviderError> {
        let mut decoder = self.dialect.decoder();
        let mut has_frames = false;
        let trouble = loop {
            let frame = match frames.next() {
                Ok(Some(frame)) => frame,
                Ok(None) => match frames.read_more().await {
                    Ok(true) => continue,
                    Ok(false) => break None,
                    Err(trouble) => break Some(trouble),
                },
                Err(trouble) => break Some(trouble),
            };
            has_frames = true;
            let pushed = decoder.push(frame, &mut |part| heard.hear(part));
            pushed.map_err(|fault| failing.faulty(&fault))?;
            if frame.data.trim() == DONE {
                break None;
            }
        };
        // An answer that is whole stays one, whatever became of the connection behind it.
        match (decoder.finish(), trouble) {
            (Ok(answer), _) => Ok(answer),
            (Err(StreamFault::Cut), Some(trouble)) => {
                Err(failing.troubled(&trouble, self.idle.as_millis()))
            }
            (Err(StreamFault::Cut), None) if !has_frames => Err(failing.nonsense(&head)),
            (Err(fault), _) => Err(failing.faulty(&fault)),
        }
    }

    /// Reads what came as one document where a stream was asked for: an error, or the answer of a
    /// server that does not stream.
    async fn read_document(
        &self,
        body: Body,
        failing: &Failing<'_>,
        heard: &mut Heard<'_>,
    ) -> Result<Answer, ProviderError> {
        let text = body.text(ANSWER_MAX_BYTES).await;
        let text = text.map_err(|trouble| failing.troubled(&trouble, self.idle.as_millis()))?;
        let mut decoder = self.dialect.decoder();
        let frame = Frame { event: "", data: &text };
        let pushed = decoder.push(frame, &mut |part| heard.hear(part));
        let answer = pushed.and_then(|()| decoder.finish());
        answer.map_err(|fault| match fault {
            StreamFault::Refused(_) => failing.faulty(&fault),
            StreamFault::Nonsense { .. } | StreamFault::Cut => failing.nonsense(&text),
        })
    }

    /// One question whose answer is no stream.
    pub(super) async fn ask_json<T>(
        &self,
        call: &Call,
        read: impl Fn(&Value) -> Result<T, StreamFault>,
    ) -> Result<T, ProviderError> {
        let Accepted { response, deadline, failing } = self.send(call).await?;
        let text = match Body::open(response, deadline, self.idle).await {
            Ok(body) => body.text(ANSWER_MAX_BYTES).await,
            Err(trouble) => Err(trouble),
        };
        let text = text.map_err(|trouble| failing.troubled(&trouble, self.idle.as_millis()))?;
        let answer = serde_json::from_str(&text).map_err(|_| failing.nonsense(&text))?;
        read(&answer).map_err(|fault| failing.faulty(&fault))
    }
}

/// Whether there is anything in an answer. One that was cut at its length counts without words: its
/// usage may show that the window was full.
fn says_something(answer: &Answer) -> bool {
    let is_something = |block: &Content| match block {
        Content::Text { text, .. } => !text.trim().is_empty(),
        Content::Thinking { .. } => false,
        Content::ToolCall(_) | Content::Image { .. } => true,
        Content::ProviderItem { .. } | Content::Other(_) => true,
    };
    answer.stop_reason == StopReason::Length || answer.content.iter().any(is_something)
}
