//! A client asks how large its next request would be: that of what a model would see of it.

use axum::http::StatusCode;
use ctxhost_engine_api::Plan;
use serde_json::{Value, json};

use super::core::Proxy;
use super::new_items::NewItems;
use super::shaping::{ParsedRequest, render_request_body};
use super::{
    ClientRequest, Endpoint, InFlightRequest, LocalResponse, ProxyAction, ShapingReport,
    UpstreamRequest, unchanged,
};
use crate::conversations::{KnownItems, RequestItems, RequestMatch, SeededHash};
use ctxhost_context::LiveSession;
use ctxhost_history::ForkPoint;
use ctxhost_invariants as invariants;
use ctxhost_session::{Session, SessionHeader};

impl Proxy {
    /// The body of the request that would go out, of which nothing is kept. What no compaction has touched
    /// is counted as it came.
    pub(super) async fn count_tokens(
        &self,
        incoming: &ClientRequest,
        came: ParsedRequest<'_>,
        key: SeededHash,
        asked: &mut RequestItems<'_>,
    ) -> ProxyAction {
        let forward = match self.render_unsent(came, key, asked).await {
            Some((body, truth)) => UpstreamRequest {
                body: body.into(),
                report: truth,
                in_flight: InFlightRequest::default(),
            },
            None => unchanged(incoming),
        };
        let inquiry =
            CountTokensRequest { incoming: incoming.clone(), truth: forward.report.clone() };
        let ticket =
            InFlightRequest { inquiry: Some(Box::new(inquiry)), ..InFlightRequest::default() };
        ProxyAction::Forward(UpstreamRequest { in_flight: ticket, ..forward })
    }

    /// What is answered where no upstream counts: what entries count, which is near to what a model counts
    /// and is learned from no answer.
    pub(super) fn estimate_count(&self, inquiry: CountTokensRequest) -> Option<LocalResponse> {
        let CountTokensRequest { incoming, truth } = inquiry;
        let json = std::str::from_utf8(&incoming.body).ok()?;
        let speech = incoming.endpoint.inbound();
        let body = speech.parse_body(json).ok()?;
        let came = ParsedRequest { inbound: speech, bytes: &incoming.body, json, body: &body };
        let tokens = truth.tokens.or_else(|| self.estimate_tokens(came))?;
        let tokens = tokens + self.overhead_tokens(&body);
        Some(LocalResponse {
            status: StatusCode::OK,
            content_type: "application/json",
            body: count_body(&incoming.endpoint, tokens).to_string().into(),
            report: truth,
        })
    }

    /// What the words of a request take that no conversation knows.
    fn estimate_tokens(&self, came: ParsedRequest<'_>) -> Option<u64> {
        let mut asked = RequestItems::new(self.seed, &came.body.items);
        let session = Session::in_memory(SessionHeader::new(None, "/", self.runtime.now_ms()));
        let (session, _) = append_items(session, KnownItems::default(), came, &mut asked)?;
        Some(LiveSession::new(session).view().total_tokens())
    }

    async fn render_unsent(
        &self,
        came: ParsedRequest<'_>,
        key: SeededHash,
        asked: &mut RequestItems<'_>,
    ) -> Option<(Vec<u8>, ShapingReport)> {
        let thread = self.conversations.find(key, asked, self.runtime.now_ms()).await?;
        let guard = self.lock_conversation(&thread).await?;
        let (outline, is_compacted) = {
            let state = thread.state();
            let goes_on = matches!(state.match_request(asked), RequestMatch::Continues { .. });
            goes_on.then(|| (state.known.clone(), state.is_compacted))?
        };
        if !is_compacted {
            return None;
        }
        let fork = guard.fork(&ForkPoint::Leaf, "".as_ref()).ok()?;
        let surroundings = self.render_context(&thread, guard.context().session(), came.inbound);
        let session = guard.session_id().to_owned();
        drop(guard);
        let (fork, outline) = append_items(fork, KnownItems::clone(&outline), came, asked)?;
        let view = LiveSession::new(fork).view();
        let plan = Plan::keep_all(view.len());
        let lawful = invariants::enforce(&view, plan, u64::MAX / 4, &self.config.invariants).ok()?;
        let truth = ShapingReport {
            engine: self.runtime.engine(),
            tokens: Some(lawful.tokens),
            before_tokens: None,
            compaction: "none",
            session,
            max_tokens: None,
        };
        Some((render_request_body(came, &outline, &lawful, &view, &surroundings), truth))
    }
}

/// A request that only counts, as it came, and the truth about what is sent of it.
#[derive(Debug)]
pub(super) struct CountTokensRequest {
    incoming: ClientRequest,
    truth: ShapingReport,
}

/// A count in the words of the dialect.
fn count_body(door: &Endpoint, tokens: u64) -> Value {
    match door {
        Endpoint::Generate { .. } | Endpoint::GenerateCountTokens { .. } => {
            json!({ "totalTokens": tokens })
        }
        _ => json!({ "input_tokens": tokens }),
    }
}

/// A copy of a conversation, with what the request says behind it.
fn append_items(
    mut fork: Session,
    mut outline: KnownItems,
    came: ParsedRequest<'_>,
    asked: &mut RequestItems<'_>,
) -> Option<(Session, KnownItems)> {
    let NewItems { groups: units, bodies } =
        NewItems::parse(&outline, came.inbound, asked.items()).ok()?;
    let mut ids = Vec::new();
    for body in bodies {
        ids.push(fork.append(body).ok()?);
    }
    outline.extend(asked, &units, &ids);
    Some((fork, outline))
}
