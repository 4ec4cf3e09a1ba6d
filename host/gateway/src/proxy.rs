//! One request on its way: what a client sent becomes what its upstream is sent, by the engine of the slot.
//!
//! ```text
//!  incoming ─► take ─┬─ forward ─► upstream ─┬─ answer ───────────► answered
//!                    │                       └─ refusal ──► refused ─► forward, or answer
//!                    └─ answer (ours: no upstream is asked)
//! ```

mod background;
mod blocking_pool;
mod client_compaction;
mod client_errors;
mod compact_endpoint;
mod compress_endpoint;
mod core;
mod count_tokens;
mod endpoint;
mod eviction;
mod ingest;
mod long_window;
mod new_items;
mod output_limit;
mod references;
mod request;
mod retry;
mod shaping;
mod signed_summary;
mod thinking;

use std::path::Path;
use std::sync::Arc;

use axum::body::Bytes;
use axum::http::{HeaderMap, StatusCode};

use self::core::Proxy;
use self::count_tokens::CountTokensRequest;
use self::request::ProxyRequest;
use crate::conversations::{ConversationCounts, PendingRequest};
use ctxhost_agent::Runtime;
use ctxhost_blobs::BlobError;
use ctxhost_config::Config;
use ctxhost_dialects::ProviderError;
use ctxhost_dialects::message::TokenUsage;
use ctxhost_models::{ContextWindow, ModelName};

pub use compress_endpoint::{CompressError, CompressedMessages, CompressionLimits};

/// Which door a request came through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// `POST /v1/messages`.
    Messages,
    /// `POST /v1/messages/count_tokens`.
    CountTokens,
    /// `POST /v1/chat/completions`.
    ChatCompletions,
    /// `POST /v1/responses`.
    Responses,
    /// `POST /v1/responses/compact`.
    ResponsesCompact,
    /// `POST /v1beta/models/{model}:generateContent` and `:streamGenerateContent`; the model stands in the path.
    Generate {
        /// The model.
        model: String,
        /// Whether the answer is streamed.
        is_stream: bool,
    },
    /// `POST /v1beta/models/{model}:countTokens`.
    GenerateCountTokens {
        /// The model.
        model: String,
    },
}

/// A request as it came.
#[derive(Clone, Debug)]
pub struct ClientRequest {
    /// Which door it came through.
    pub endpoint: Endpoint,
    /// Whose models are asked, as the config names them: windows are looked up by it.
    pub provider: Arc<str>,
    /// Its headers, the client's own ones.
    pub headers: HeaderMap,
    /// Its body, whole.
    pub body: Bytes,
}

/// What is done about a request.
#[derive(Debug)]
pub enum ProxyAction {
    /// Its upstream is asked.
    Forward(UpstreamRequest),
    /// It is answered here.
    Respond(LocalResponse),
}

/// What is sent to an upstream. Path, method and headers are those of the client.
#[derive(Debug)]
pub struct UpstreamRequest {
    /// The body; the very bytes of the client where no engine had to act.
    pub body: Bytes,
    /// The truth about it, for the client's headers.
    pub report: ShapingReport,
    /// What it takes to go on with it.
    pub in_flight: InFlightRequest,
}

impl UpstreamRequest {
    /// Whether it says the same, whatever answer it asks for.
    fn has_body(&self, body: &Bytes) -> bool {
        self.in_flight.journey.as_ref().is_some_and(|journey| journey.sent_body == *body)
    }
}

/// An answer of ours, in the client's dialect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalResponse {
    /// The status.
    pub status: StatusCode,
    /// `application/json` or `text/event-stream`.
    pub content_type: &'static str,
    /// The body.
    pub body: Bytes,
    /// The truth about it.
    pub report: ShapingReport,
}

/// Who shaped a request, and how: the values of the `x-ctxhost-*` headers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShapingReport {
    /// The engine; `none` where no engine saw it.
    pub engine: String,
    /// What the shaped conversation takes, as entries count; `None` where nobody counted.
    pub tokens: Option<u64>,
    /// What it took as the client sent it, counted alike; `None` where nobody counted.
    pub before_tokens: Option<u64>,
    /// `none`, `applied`, `rejected`, `failed`, or `client` where the client compacts by itself.
    pub compaction: &'static str,
    /// The session; empty where there is none.
    pub session: String,
    /// The longest answer that was asked for, in provider tokens, where it had to be lowered.
    pub max_tokens: Option<u64>,
}

impl ShapingReport {
    /// Whether engines were asked and none could shape the request: it went on as it came, or was refused.
    pub fn is_unshaped(&self) -> bool {
        self.engine == "none" && self.compaction == "failed"
    }
}

/// The place of a request that is out at an upstream. Dropping it forgets the request, not its words.
#[derive(Debug, Default)]
pub struct InFlightRequest {
    journey: Option<Box<ProxyRequest>>,
    /// Until it is answered, nobody knows whether it will be.
    pending: PendingRequest,
    /// A request that only counts.
    inquiry: Option<Box<CountTokensRequest>>,
}

impl InFlightRequest {
    /// The request is not needed again, whatever becomes of its answer.
    pub fn drop_bodies(&mut self) {
        if let Some(journey) = &mut self.journey {
            (journey.client_request.body, journey.sent_body) = (Bytes::new(), Bytes::new());
        }
    }
}

/// The way of requests through the slot. Without a runtime it passes all of them through.
#[derive(Debug, Default)]
pub struct ProxyHandle {
    desk: Option<Arc<Proxy>>,
}

impl ProxyHandle {
    /// An exchange whose engines are those of the runtime's slot, whose windows stand in the config, and
    /// whose conversations are kept below `record_stated_window`.
    pub fn new(runtime: Runtime, config: &Config, state: &Path) -> ProxyHandle {
        ProxyHandle::with_counts(runtime, config, state, ConversationCounts::default())
    }

    /// The same, whose conversations are counted there.
    pub fn with_counts(
        runtime: Runtime,
        config: &Config,
        state: &Path,
        counts: ConversationCounts,
    ) -> ProxyHandle {
        ProxyHandle { desk: Some(Arc::new(Proxy::new(runtime, config, state, counts))) }
    }

    /// Puts the conversations into files that are in none: the process is about to end. No request may be on its way.
    pub async fn finish(&self) {
        if let Some(desk) = &self.desk {
            desk.persist_all().await;
        }
    }

    /// What is done about a request.
    pub async fn handle(&self, incoming: &ClientRequest) -> ProxyAction {
        let Some(desk) = &self.desk else { return pass_through(incoming) };
        let taken = match blocking_pool::is_large(incoming) {
            true => {
                let (desk, incoming) = (desk.clone(), incoming.clone());
                blocking_pool::run_blocking(async move { desk.handle(&incoming).await }).await
            }
            false => desk.handle(incoming).await,
        };
        desk.start_eviction();
        taken
    }

    /// The upstream refused a request before the client got a byte of an answer. One that was too large
    /// becomes a smaller one, or the refusal in the form that the client's own recovery knows; a history
    /// that is not accepted as we have changed it is sent without thinking. `None` passes the upstream's
    /// own refusal on.
    pub async fn handle_refusal(
        &self,
        ticket: InFlightRequest,
        failure: &ProviderError,
    ) -> Option<ProxyAction> {
        let (desk, journey) = (self.desk.clone()?, ticket.journey?);
        if !blocking_pool::is_large(&journey.client_request) {
            return desk.handle_refusal(*journey, failure).await;
        }
        let failure = failure.clone();
        blocking_pool::run_blocking(async move { desk.handle_refusal(*journey, &failure).await })
            .await
    }

    /// The upstream has no way to count what a client asked it to: our own estimate, in the form of the
    /// client's dialect. `None` where the request was not read.
    pub fn estimate_count(&self, ticket: InFlightRequest) -> Option<LocalResponse> {
        self.desk.as_ref()?.estimate_count(*ticket.inquiry?)
    }

    /// The upstream has answered to the end, and counted this. What it teaches is learned in the background.
    pub fn record_answer(&self, mut ticket: InFlightRequest, usage: Option<TokenUsage>) {
        ticket.pending.mark_answered();
        if let (Some(desk), Some(journey), Some(usage)) = (&self.desk, ticket.journey, usage) {
            desk.record_usage(*journey, usage);
        }
        if let Some(desk) = &self.desk {
            desk.start_eviction();
        }
    }

    /// Makes messages of chat completions fit for somebody who asks the model elsewhere. `None` where they
    /// stay as they came: nobody could make them fit.
    ///
    /// # Errors
    ///
    /// [`CompressError`].
    pub async fn compress(
        &self,
        incoming: &ClientRequest,
        wish: CompressionLimits,
    ) -> Result<Option<CompressedMessages>, CompressError> {
        match &self.desk {
            Some(desk) => {
                let compressed = match blocking_pool::is_large(incoming) {
                    true => {
                        let (desk, incoming) = (desk.clone(), incoming.clone());
                        blocking_pool::run_blocking(
                            async move { desk.compress(&incoming, wish).await },
                        )
                        .await
                    }
                    false => desk.compress(incoming, wish).await,
                };
                desk.start_eviction();
                compressed
            }
            None => Ok(None),
        }
    }

    /// The text that another one stands for, by the hash that this names. Waits for the disk.
    ///
    /// # Errors
    ///
    /// [`BlobError`].
    pub fn original(&self, hash: &str) -> Result<Option<String>, BlobError> {
        self.desk.as_ref().map_or(Ok(None), |desk| desk.originals.load(hash))
    }

    /// The window of a provider's model: as configured, as learned from a refusal, or as known by its name.
    /// `None` for a model that nobody knows.
    pub fn window(&self, provider: &str, model: &str) -> Option<ContextWindow> {
        let desk = self.desk.as_ref()?;
        desk.runtime.models().known_window(&ModelName::new(provider, model))
    }

    /// An upstream has stated the window of a model, in provider tokens.
    pub fn set_stated_window(&self, provider: &str, model: &str, tokens: u64) {
        if let Some(desk) = &self.desk {
            desk.runtime.models().record_stated_window(&ModelName::new(provider, model), tokens);
        }
    }
}

/// A request that goes on as it came, seen by no engine.
fn pass_through(incoming: &ClientRequest) -> ProxyAction {
    ProxyAction::Forward(unchanged(incoming))
}

fn unchanged(incoming: &ClientRequest) -> UpstreamRequest {
    UpstreamRequest {
        body: incoming.body.clone(),
        report: ShapingReport {
            engine: "none".into(),
            compaction: "none",
            ..ShapingReport::default()
        },
        in_flight: InFlightRequest::default(),
    }
}
