//! Answers compaction requests of the Responses API (`compaction_trigger` items, `/responses/compact`) with the engine.

use std::sync::Arc;

use axum::body::Bytes;
use axum::http::StatusCode;
use ctxhost_conversations::{KnownItems, RequestItems, SummaryOrigin};
use ctxhost_engine_api::{EntryKind, PlanItem, Trigger};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::core::Proxy;
use super::endpoint::{Endpoint, EndpointAction};
use super::ingest::{IngestedRequest, RequestMeta};
use super::messages::{ClientRequest, LocalResponse, ShapingReport};
use super::request::ProxyAction;
use super::shaping::{ParsedRequest, compaction_label, render_items, with_client_text};
use super::signed_summary::CarriedHistory;
use super::thinking::ThinkingPlan;
use ctxhost_agent::{SessionGuard, TurnError};
use ctxhost_config::GatewaySettings;
use ctxhost_context::{CompactionOutcome, ContextError, Prompt, Target};
use ctxhost_dialects::DialectName;
use ctxhost_history as history;
use ctxhost_session::{RecordKind, Session};

/// The summary of an engine that leaves messages out without a trace.
const LEFT_OUT: &str = "Earlier messages were left out.";

/// The items to compact; `None` if the request is not a compaction request.
pub(super) fn items_to_compact<'a, 'b>(
    endpoint: &Endpoint,
    items: &'b [&'a str],
) -> Option<&'b [&'a str]> {
    match endpoint.action {
        EndpointAction::Compact => Some(items),
        EndpointAction::Generate if endpoint.dialect == DialectName::OpenAiResponses => {
            let (last, items) = items.split_last()?;
            is_trigger(last).then_some(items).filter(|items| !items.is_empty())
        }
        _ => None,
    }
}

fn is_trigger(item: &str) -> bool {
    #[derive(Deserialize)]
    struct WireItemType<'a> {
        #[serde(borrow)]
        r#type: Option<std::borrow::Cow<'a, str>>,
    }
    // A trigger has little more than its type. Larger items are not parsed.
    const LONGEST_BYTES: usize = 1_024;
    let read = |item| serde_json::from_str::<WireItemType<'_>>(item).ok()?.r#type;
    item.len() <= LONGEST_BYTES && read(item).is_some_and(|kind| kind == "compaction_trigger")
}

impl Proxy {
    /// Compacts the conversation of a request. If that fails, the request is forwarded to the provider, unless the config
    /// makes it an error.
    pub(super) async fn compact(
        self: &Arc<Self>,
        request: &ClientRequest,
        parsed: ParsedRequest<'_>,
        meta: &RequestMeta<'_>,
        request_items: &mut RequestItems<'_>,
    ) -> ProxyAction {
        let mut ingested = match self.ingest(meta, request_items).await {
            Ok(ingested) => ingested,
            Err(error) => {
                tracing::warn!(%error, "ingest failed: the compaction request is forwarded to the provider");
                return ProxyAction::pass_through(request);
            }
        };
        let (target, _) =
            self.target(request, parsed.body, &ingested.guard, ingested.is_fit_only());
        let is_new = !is_only_returned(request_items)
            && has_new_messages(ingested.guard.context().session().session());
        let compacted =
            compact_to_share(&mut ingested.guard, target.clone(), &self.settings, is_new).await;
        let (outcomes, prompt) = match compacted {
            Ok(compacted) => compacted,
            Err(error) if self.is_fatal(&error) => {
                return ProxyAction::Respond(self.engine_failed(
                    &error,
                    &request.endpoint,
                    &ingested.session,
                ));
            }
            Err(error) => {
                tracing::warn!(%error, session = ingested.session, "compaction failed: the request is forwarded to the provider");
                return ProxyAction::pass_through(request);
            }
        };
        let history = carry(&ingested, parsed, &prompt);
        let content = match self.summary_signer.sign(&history) {
            Ok(content) => content,
            Err(error) => {
                tracing::warn!(%error, session = ingested.session, "compaction failed: the request is forwarded to the provider");
                return ProxyAction::pass_through(request);
            }
        };
        let report = ShapingReport {
            engine: prompt.engine.clone(),
            tokens: Some(prompt.checked.tokens),
            before_tokens: Some(ingested.conversation.state().known.client_tokens()),
            compaction: compaction_label(&outcomes, false),
            session: ingested.session.clone(),
            ..ShapingReport::default()
        };
        if report.compaction == "applied" {
            ingested.conversation.state().is_compacted = true;
            self.persist(&mut ingested).await;
        }
        let item = json!({
            "type": "compaction",
            "id": format!("cmp_{}", ingested.session),
            "encrypted_content": content,
        });
        let model = parsed.body.model.clone().into_owned();
        let response = CompactResponse {
            item,
            model,
            tokens: prompt.checked.tokens,
            now_ms: self.runtime.now_ms(),
        };
        // Codex sends the trigger in a normal, streamed request; `/responses/compact` is never streamed.
        let (content_type, body) = if !request.endpoint.is_generation() {
            ("application/json", response.compaction_body().to_string())
        } else if parsed.body.is_stream {
            ("text/event-stream", response.events())
        } else {
            ("application/json", response.response("completed").to_string())
        };
        self.finish_request(request, ingested, target);
        ProxyAction::Respond(LocalResponse {
            status: StatusCode::OK,
            content_type,
            body: Bytes::from(body),
            report,
        })
    }
}

/// Compacts a conversation to at most its share of the window, so that the client can continue in the rest. A small
/// conversation, or one without new messages since the last compaction, is returned as it is.
async fn compact_to_share(
    guard: &mut SessionGuard,
    mut target: Target,
    settings: &GatewaySettings,
    is_new: bool,
) -> Result<(Vec<CompactionOutcome>, Prompt), TurnError> {
    let window_tokens = guard.context().window_tokens(&target);
    let share = |share: f64| (window_tokens as f64 * share) as u64;
    let worthwhile_tokens = share(settings.compacted_min_share);
    let most_tokens = share(settings.compacted_max_share);
    let is_worthwhile = is_new && guard.view().total_tokens() > worthwhile_tokens;
    target.trigger = Trigger::Manual;
    let mut outcomes = if is_worthwhile { guard.compact(&target, None).await? } else { Vec::new() };
    // The share is a goal, not a limit: if the pinned messages exceed it, the window decides.
    let uncapped = target.max_tokens.replace(most_tokens);
    let prompt = match guard.prepare(&target).await {
        Err(TurnError::Context(ContextError::CannotFit(_))) => {
            target.max_tokens = uncapped;
            guard.prepare(&target).await?
        }
        other => other?,
    };
    outcomes.extend(prompt.compactions.iter().cloned());
    Ok((outcomes, prompt))
}

/// Whether there are messages after the last compaction.
fn has_new_messages(session: &Session) -> bool {
    let kinds = session.branch().into_iter().rev().map(|record| record.kind());
    let is_relevant = |kind: &&RecordKind| {
        matches!(kind, RecordKind::Compaction | RecordKind::Message | RecordKind::CustomMessage)
    };
    kinds.into_iter().find(is_relevant).is_some_and(|kind| *kind != RecordKind::Compaction)
}

/// Whether a request has only what its client got with the last compaction.
fn is_only_returned(request_items: &RequestItems<'_>) -> bool {
    let returned = request_items.returned_summary();
    returned.is_some_and(|summary| request_items.len() == summary.items)
}

/// What the client carries of a prompt.
fn carry(ingested: &IngestedRequest, parsed: ParsedRequest<'_>, prompt: &Prompt) -> CarriedHistory {
    let known_items = ingested.conversation.known_items();
    let session = ingested.guard.context().session();
    let (mut kept, mut summaries) = (Vec::new(), Vec::new());
    for item in prompt.items() {
        let is_kept = match (&item, item.entry()) {
            (PlanItem::MissingResult { .. }, _) => true,
            (_, Some(entry)) => {
                entry.kind() != EntryKind::CompactionSummary
                    && known_items.location(entry.id()).is_some()
            }
            _ => false,
        };
        if is_kept {
            kept.push(with_client_text(item, &known_items));
        } else {
            summaries.push(summary_text(&item, session.session()));
        }
    }
    let thinking = ThinkingPlan::default();
    let body = render_items(parsed, &known_items, &kept, session.images(), &thinking);
    let input = items_of(parsed, &body);
    let is_whole = input.iter().map(|item| item.get()).eq(known_texts(parsed, &known_items));
    if summaries.is_empty() && !is_whole {
        summaries.push(LEFT_OUT.to_owned());
    }
    let origin = known_items.first_item().map(|first_item| SummaryOrigin {
        home_key: ingested.conversation.key(),
        session: ingested.session.clone(),
        first_item,
    });
    CarriedHistory::new(summaries.join("\n\n"), input, origin)
}

/// The text of an inserted item or of a summary, without the frame of the latter.
fn summary_text(item: &PlanItem<'_>, session: &Session) -> String {
    let id = item.entry().map(|entry| entry.id().to_owned());
    let summary = history::compactions(session)
        .into_iter()
        .find(|compaction| Some(&compaction.id) == id.as_ref())
        .map(|compaction| compaction.summary);
    summary.unwrap_or_else(|| item.text().into_owned())
}

/// The items in a rendered body.
fn items_of(parsed: ParsedRequest<'_>, body: &[u8]) -> Vec<Box<RawValue>> {
    // By position: an instruction that has become the first item would be read as one before the items.
    let (before, after) = parsed.body.split_at_messages(parsed.json, false);
    let end = body.len().saturating_sub(after.len());
    let items = body.get(before.len()..end).map(String::from_utf8_lossy).unwrap_or_default();
    serde_json::from_str(&format!("[{items}]")).unwrap_or_default()
}

/// The items of a request that are known.
fn known_texts<'a>(
    parsed: ParsedRequest<'a>,
    known_items: &KnownItems,
) -> impl Iterator<Item = &'a str> {
    parsed.body.items.iter().copied().take(known_items.len())
}

/// A response with one compaction item.
struct CompactResponse {
    item: Value,
    model: String,
    tokens: u64,
    now_ms: i64,
}

impl CompactResponse {
    fn response(&self, status: &str) -> Value {
        let is_done = status == "completed";
        json!({
            "id": self.id(),
            "object": "response",
            "created_at": self.now_ms / 1_000,
            "status": status,
            "model": self.model,
            "output": if is_done { json!([self.item]) } else { json!([]) },
            "usage": if is_done { self.usage() } else { Value::Null },
        })
    }

    fn compaction_body(&self) -> Value {
        json!({
            "id": self.id(),
            "object": "response.compaction",
            "created_at": self.now_ms / 1_000,
            "output": [self.item],
            "usage": self.usage(),
        })
    }

    /// The response as a stream of events.
    fn events(&self) -> String {
        let events = [
            ("response.created", json!({ "response": self.response("in_progress") })),
            ("response.output_item.added", json!({ "output_index": 0, "item": self.item })),
            ("response.output_item.done", json!({ "output_index": 0, "item": self.item })),
            ("response.completed", json!({ "response": self.response("completed") })),
        ];
        let event = |(number, (name, mut data)): (usize, (&str, Value))| {
            if let Some(fields) = data.as_object_mut() {
                fields.insert("type".into(), name.into());
                fields.insert("sequence_number".into(), number.into());
            }
            format!("event: {name}\ndata: {data}\n\n")
        };
        events.into_iter().enumerate().map(event).collect()
    }

    fn id(&self) -> String {
        format!("resp_ctxhost_{}", self.now_ms)
    }

    /// No model was called for this response. The tokens of the engine's own summary call are not billed to the client.
    fn usage(&self) -> Value {
        json!({
            "input_tokens": 0,
            "input_tokens_details": { "cached_tokens": 0 },
            "output_tokens": self.tokens,
            "output_tokens_details": { "reasoning_tokens": 0 },
            "total_tokens": self.tokens,
        })
    }
}
