//! One request on its way: what a client sent becomes what its upstream is sent, by the engine of the slot.
//!
//! ```text
//!  incoming ─► take ─┬─ forward ─► upstream ─┬─ answer ───────────► answered
//!                    │                       └─ too large ─► too_large ─► forward, or answer
//!                    └─ answer (ours: no upstream is asked)
//! ```

use axum::body::Bytes;
use axum::http::{HeaderMap, StatusCode};

use crate::provider::ProviderError;
use crate::provider::message::Usage;

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
    /// `none`, `applied`, `rejected`, `failed`, or `client` where the client compacts by itself.
    pub compaction: &'static str,
    /// The session; empty where there is none.
    pub session: String,
}

/// The place of a request that is out at an upstream.
#[derive(Debug, Default)]
pub struct Ticket {}

/// The way of requests through the slot.
#[derive(Debug, Default)]
pub struct Exchange {}

impl Exchange {
    /// What is done about a request.
    pub async fn take(&self, incoming: &Incoming) -> Taken {
        Taken::Forward(Forward {
            body: incoming.body.clone(),
            truth: Truth { engine: "none".into(), compaction: "none", ..Truth::default() },
            ticket: Ticket::default(),
        })
    }

    /// The upstream found a request too large, before the client got a byte of an answer: a smaller one, or
    /// the refusal in the form that the client's own recovery knows. `None` passes the upstream's own on.
    pub async fn too_large(&self, _ticket: Ticket, _failure: &ProviderError) -> Option<Taken> {
        None
    }

    /// The upstream has answered to the end, and counted this.
    pub fn answered(&self, _ticket: Ticket, _usage: Option<Usage>) {}
}
