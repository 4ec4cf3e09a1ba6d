//! What the proxy receives from a client and returns to it.

use std::sync::Arc;

use axum::body::Bytes;
use axum::http::{HeaderMap, StatusCode};
use ctxhost_conversations::ConversationLabel;

use super::endpoint::Endpoint;

/// A request as the client sent it.
#[derive(Clone, Debug)]
pub struct ClientRequest {
    /// The endpoint.
    pub endpoint: Endpoint,
    /// The provider name of the upstream, used for window lookups.
    pub provider: Arc<str>,
    /// The client's headers.
    pub headers: HeaderMap,
    /// The complete body.
    pub body: Bytes,
}

/// A response that the gateway itself produces, in the client's dialect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalResponse {
    /// The status.
    pub status: StatusCode,
    /// `application/json` or `text/event-stream`.
    pub content_type: &'static str,
    /// The body.
    pub body: Bytes,
    /// How the request was shaped.
    pub report: ShapingReport,
}

/// How a request was shaped, and by which engine: the values of the `x-ctxhost-*` response headers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShapingReport {
    /// The engine; `none` if no engine shaped the request.
    pub engine: String,
    /// Estimated tokens of the shaped conversation; `None` if they were not counted.
    pub tokens: Option<u64>,
    /// Estimated tokens of the conversation as the client sent it; `None` if they were not counted.
    pub before_tokens: Option<u64>,
    /// `none`, `applied`, `rejected`, `failed`, or `client` if the client compacts by itself.
    pub compaction: &'static str,
    /// The session id; empty if there is no session.
    pub session: String,
    /// What the dashboard calls the conversation.
    pub label: Arc<ConversationLabel>,
    /// The output limit sent upstream, in provider tokens, if it was lowered.
    pub max_tokens: Option<u64>,
}

impl ShapingReport {
    /// The report of a request that no engine shaped.
    pub(crate) fn unshaped(compaction: &'static str, session: impl Into<String>) -> ShapingReport {
        let (engine, session) = ("none".into(), session.into());
        ShapingReport { engine, compaction, session, ..ShapingReport::default() }
    }

    /// The report of a request of an API that no engine can shape.
    pub(crate) fn unsupported() -> ShapingReport {
        ShapingReport::unshaped("unsupported", "")
    }

    /// Why no engine shaped the request, as the metrics name it; `None` if one did.
    pub(crate) fn unshaped_reason(&self) -> Option<&'static str> {
        let reason = match self.compaction {
            "failed" | "unsupported" => self.compaction,
            _ => "unparsed",
        };
        (self.engine == "none").then_some(reason)
    }

    /// Whether engines were called and none could shape the request: it was forwarded unchanged or rejected.
    pub fn is_unshaped(&self) -> bool {
        self.engine == "none" && self.compaction == "failed"
    }
}
