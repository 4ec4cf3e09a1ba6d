//! One request on its way: what a client sent becomes what its upstream is sent, by the engine of the slot.
//!
//! ```text
//!  incoming ─► take ─┬─ forward ─► upstream ─┬─ answer ───────────► answered
//!                    │                       └─ refusal ──► refused ─► forward, or answer
//!                    └─ answer (ours: no upstream is asked)
//! ```

mod again;
mod apart;
mod background;
mod client_side;
mod compressing;
mod counting;
mod desk;
mod door;
mod hearing;
mod journey;
mod long_window;
mod marking;
mod news;
mod on_demand;
mod output_limit;
mod refusal;
mod sealed;
mod shaping;
mod thinking;
mod tidying;

use std::path::Path;
use std::sync::Arc;

use axum::body::Bytes;
use axum::http::{HeaderMap, StatusCode};

use self::counting::Inquiry;
use self::desk::Desk;
use self::journey::Journey;
use crate::thread::{Counts, Pending};
use ctxhost_config::Config;
use ctxhost_dialects::ProviderError;
use ctxhost_dialects::message::Usage;
use ctxhost_media::MediaError;
use ctxhost_models::{ModelName, Window};
use ctxhost_runtime::Runtime;

pub use compressing::{Compressed, Uncompressed, Wish};

/// Which door a request came through.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Door {
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
    GenerateCount {
        /// The model.
        model: String,
    },
}

/// A request as it came.
#[derive(Clone, Debug)]
pub struct Incoming {
    /// Which door it came through.
    pub door: Door,
    /// Whose models are asked, as the config names them: windows are looked up by it.
    pub provider: Arc<str>,
    /// Its headers, the client's own ones.
    pub headers: HeaderMap,
    /// Its body, whole.
    pub body: Bytes,
}

/// What is done about a request.
#[derive(Debug)]
pub enum Taken {
    /// Its upstream is asked.
    Forward(Forward),
    /// It is answered here.
    Answer(Answer),
}

/// What is sent to an upstream. Path, method and headers are those of the client.
#[derive(Debug)]
pub struct Forward {
    /// The body; the very bytes of the client where no engine had to act.
    pub body: Bytes,
    /// The truth about it, for the client's headers.
    pub truth: Truth,
    /// What it takes to go on with it.
    pub ticket: Ticket,
}

impl Forward {
    /// Whether it says the same, whatever answer it asks for.
    fn is_body_of(&self, body: &Bytes) -> bool {
        self.ticket.journey.as_ref().is_some_and(|journey| journey.sent == *body)
    }
}

/// An answer of ours, in the client's dialect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The status.
    pub status: StatusCode,
    /// `application/json` or `text/event-stream`.
    pub content_type: &'static str,
    /// The body.
    pub body: Bytes,
    /// The truth about it.
    pub truth: Truth,
}

/// Who shaped a request, and how: the values of the `x-ctxhost-*` headers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Truth {
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

impl Truth {
    /// Whether engines were asked and none could shape the request: it went on as it came, or was refused.
    pub fn is_unshaped(&self) -> bool {
        self.engine == "none" && self.compaction == "failed"
    }
}

/// The place of a request that is out at an upstream. Dropping it forgets the request, not its words.
#[derive(Debug, Default)]
pub struct Ticket {
    journey: Option<Box<Journey>>,
    /// Until it is answered, nobody knows whether it will be.
    pending: Pending,
    /// A request that only counts.
    inquiry: Option<Box<Inquiry>>,
}

impl Ticket {
    /// The request is not needed again, whatever becomes of its answer.
    pub fn forget_bodies(&mut self) {
        if let Some(journey) = &mut self.journey {
            (journey.incoming.body, journey.sent) = (Bytes::new(), Bytes::new());
        }
    }
}

/// The way of requests through the slot. Without a runtime it passes all of them through.
#[derive(Debug, Default)]
pub struct Exchange {
    desk: Option<Arc<Desk>>,
}

impl Exchange {
    /// An exchange whose engines are those of the runtime's slot, whose windows stand in the config, and
    /// whose conversations are kept below `state`.
    pub fn new(runtime: Runtime, config: &Config, state: &Path) -> Exchange {
        Exchange::counted(runtime, config, state, Counts::default())
    }

    /// The same, whose conversations are counted there.
    pub fn counted(runtime: Runtime, config: &Config, state: &Path, counts: Counts) -> Exchange {
        Exchange { desk: Some(Arc::new(Desk::new(runtime, config, state, counts))) }
    }

    /// Puts the conversations into files that are in none: the process is about to end. No request may be on its way.
    pub async fn finish(&self) {
        if let Some(desk) = &self.desk {
            desk.keep_all().await;
        }
    }

    /// What is done about a request.
    pub async fn take(&self, incoming: &Incoming) -> Taken {
        let Some(desk) = &self.desk else { return passed(incoming) };
        let taken = match apart::is_large(incoming) {
            true => {
                let (desk, incoming) = (desk.clone(), incoming.clone());
                apart::apart(async move { desk.take(&incoming).await }).await
            }
            false => desk.take(incoming).await,
        };
        desk.tidy();
        taken
    }

    /// The upstream refused a request before the client got a byte of an answer. One that was too large
    /// becomes a smaller one, or the refusal in the form that the client's own recovery knows; a history
    /// that is not accepted as we have changed it is sent without thinking. `None` passes the upstream's
    /// own refusal on.
    pub async fn refused(&self, ticket: Ticket, failure: &ProviderError) -> Option<Taken> {
        let (desk, journey) = (self.desk.clone()?, ticket.journey?);
        if !apart::is_large(&journey.incoming) {
            return desk.refused(*journey, failure).await;
        }
        let failure = failure.clone();
        apart::apart(async move { desk.refused(*journey, &failure).await }).await
    }

    /// The upstream has no way to count what a client asked it to: our own estimate, in the form of the
    /// client's dialect. `None` where the request was not read.
    pub fn estimated(&self, ticket: Ticket) -> Option<Answer> {
        self.desk.as_ref()?.estimated(*ticket.inquiry?)
    }

    /// The upstream has answered to the end, and counted this. What it teaches is learned in the background.
    pub fn answered(&self, mut ticket: Ticket, usage: Option<Usage>) {
        ticket.pending.answered();
        if let (Some(desk), Some(journey), Some(usage)) = (&self.desk, ticket.journey, usage) {
            desk.record_usage(*journey, usage);
        }
        if let Some(desk) = &self.desk {
            desk.tidy();
        }
    }

    /// Makes messages of chat completions fit for somebody who asks the model elsewhere. `None` where they
    /// stay as they came: nobody could make them fit.
    ///
    /// # Errors
    ///
    /// [`Uncompressed`].
    pub async fn compress(
        &self,
        incoming: &Incoming,
        wish: Wish,
    ) -> Result<Option<Compressed>, Uncompressed> {
        match &self.desk {
            Some(desk) => {
                let compressed = match apart::is_large(incoming) {
                    true => {
                        let (desk, incoming) = (desk.clone(), incoming.clone());
                        apart::apart(async move { desk.compress(&incoming, wish).await }).await
                    }
                    false => desk.compress(incoming, wish).await,
                };
                desk.tidy();
                compressed
            }
            None => Ok(None),
        }
    }

    /// The text that another one stands for, by the hash that this names. Waits for the disk.
    ///
    /// # Errors
    ///
    /// [`MediaError`].
    pub fn original(&self, hash: &str) -> Result<Option<String>, MediaError> {
        self.desk.as_ref().map_or(Ok(None), |desk| desk.originals.find(hash))
    }

    /// The window of a provider's model: as configured, as learned from a refusal, or as known by its name.
    /// `None` for a model that nobody knows.
    pub fn window(&self, provider: &str, model: &str) -> Option<Window> {
        let desk = self.desk.as_ref()?;
        desk.runtime.models().known_window(&ModelName::new(provider, model))
    }

    /// An upstream has stated the window of a model, in provider tokens.
    pub fn state_window(&self, provider: &str, model: &str, tokens: u64) {
        if let Some(desk) = &self.desk {
            desk.runtime.models().state(&ModelName::new(provider, model), tokens);
        }
    }
}

/// A request that goes on as it came, seen by no engine.
fn passed(incoming: &Incoming) -> Taken {
    Taken::Forward(as_it_came(incoming))
}

fn as_it_came(incoming: &Incoming) -> Forward {
    Forward {
        body: incoming.body.clone(),
        truth: Truth { engine: "none".into(), compaction: "none", ..Truth::default() },
        ticket: Ticket::default(),
    }
}
