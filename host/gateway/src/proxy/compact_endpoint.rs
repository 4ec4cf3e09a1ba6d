//! A client asks its provider to compact for it, and the engine of the slot does: OpenAI's
//! `compaction_trigger` items, and `/responses/compact` before them.

use std::sync::Arc;

use axum::body::Bytes;
use axum::http::StatusCode;
use ctxhost_engine_api::{EntryKind, PlanItem, Trigger};
use serde::Deserialize;
use serde_json::{Value, json};

use super::core::Proxy;
use super::ingest::RequestMeta;
use super::references::message_text;
use super::shaping::{ParsedRequest, compaction_label};
use super::{ClientRequest, Endpoint, LocalResponse, ProxyAction, ShapingReport, pass_through};
use crate::conversations::RequestItems;
use ctxhost_agent::{SessionGuard, TurnError};
use ctxhost_config::GatewaySettings;
use ctxhost_context::{CompactionOutcome, ContextError, Prompt, Target};
use ctxhost_history as history;
use ctxhost_session::{RecordKind, Session};

/// The items that are to be compacted, where a request asks for that.
pub(super) fn items_to_compact<'a, 'b>(
    door: &Endpoint,
    items: &'b [&'a str],
) -> Option<&'b [&'a str]> {
    match door {
        Endpoint::ResponsesCompact => Some(items),
        Endpoint::Responses => {
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
    // A trigger holds little more than its type, and a large item need not be read for it.
    const LONGEST_BYTES: usize = 1_024;
    let read = |item| serde_json::from_str::<WireItemType<'_>>(item).ok()?.r#type;
    item.len() <= LONGEST_BYTES && read(item).is_some_and(|it| it == "compaction_trigger")
}

impl Proxy {
    /// Compacts the conversation of a request and answers it. Where that fails, the provider is asked, unless
    /// the config wants it to be an error.
    pub(super) async fn compact(
        self: &Arc<Self>,
        incoming: &ClientRequest,
        came: ParsedRequest<'_>,
        words: &RequestMeta<'_>,
        asked: &mut RequestItems<'_>,
    ) -> ProxyAction {
        let mut heard = match self.ingest(words, asked).await {
            Ok(heard) => heard,
            Err(error) => {
                tracing::warn!(%error, "a compaction is left to the provider");
                return pass_through(incoming);
            }
        };
        let (target, _) = self.target(incoming, came.body, &heard.guard, heard.is_fit_only());
        let small = compact_to_share(&mut heard.guard, target.clone(), &self.settings).await;
        let (outcomes, prompt) = match small {
            Ok(compacted) => compacted,
            Err(error) if self.is_fatal(&error) => {
                return ProxyAction::Respond(self.engine_failed(
                    &error,
                    &incoming.endpoint,
                    &heard.session,
                ));
            }
            Err(error) => {
                tracing::warn!(%error, session = heard.session, "a compaction is left to the provider");
                return pass_through(incoming);
            }
        };
        let text = render_text(&prompt, heard.guard.context().session().session());
        let truth = ShapingReport {
            engine: prompt.engine.clone(),
            tokens: Some(prompt.checked.tokens),
            before_tokens: Some(heard.conversation.state().known.client_tokens()),
            compaction: compaction_label(&outcomes, false),
            session: heard.session.clone(),
            max_tokens: None,
        };
        if truth.compaction == "applied" {
            heard.conversation.state().is_compacted = true;
            self.persist(&mut heard).await;
        }
        let item = json!({
            "type": "compaction",
            "id": format!("cmp_{}", heard.session),
            "encrypted_content": self.summary_signer.sign(&text),
        });
        let model = incoming.endpoint.model(came.body).into_owned();
        let reply = CompactResponse {
            item,
            model,
            tokens: prompt.checked.tokens,
            now_ms: self.runtime.now_ms(),
        };
        let is_stream =
            incoming.endpoint == Endpoint::Responses && incoming.endpoint.is_stream(came.body);
        let (content_type, body) = match (&incoming.endpoint, is_stream) {
            (Endpoint::ResponsesCompact, _) => {
                ("application/json", reply.compaction_body().to_string())
            }
            (_, true) => ("text/event-stream", reply.events()),
            (_, false) => ("application/json", reply.response("completed").to_string()),
        };
        self.finish_request(incoming, heard, target);
        ProxyAction::Respond(LocalResponse {
            status: StatusCode::OK,
            content_type,
            body: Bytes::from(body),
            report: truth,
        })
    }
}

/// Has a conversation made as small as its engine can, and not larger than its share of the window: whoever
/// asked goes on in what is left. What was compacted already, or is small, is not compacted again.
async fn compact_to_share(
    guard: &mut SessionGuard,
    mut target: Target,
    settings: &GatewaySettings,
) -> Result<(Vec<CompactionOutcome>, Prompt), TurnError> {
    let share = |share: f64| (target.window_tokens as f64 * share) as u64;
    let worthwhile_tokens = share(settings.compacted_min_share);
    let most_tokens = share(settings.compacted_max_share);
    let is_worthwhile = guard.view().total_tokens() > worthwhile_tokens
        && has_new_messages(guard.context().session().session());
    target.trigger = Trigger::Manual;
    let mut outcomes = match is_worthwhile {
        true => guard.compact(&target, None).await?,
        false => Vec::new(),
    };
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

/// Whether anything was said since the conversation was compacted.
fn has_new_messages(session: &Session) -> bool {
    let kinds = session.branch().into_iter().rev().map(|record| record.kind());
    let is_said = |kind: &&RecordKind| {
        matches!(kind, RecordKind::Compaction | RecordKind::Message | RecordKind::CustomMessage)
    };
    kinds.into_iter().find(is_said).is_some_and(|kind| *kind != RecordKind::Compaction)
}

/// All that a model would see, as one text. A summary stands there bare: what comes back has a frame.
fn render_text(prompt: &Prompt, session: &Session) -> String {
    let items = prompt.items();
    let told = items.iter().map(|item| match (item, item.entry()) {
        (PlanItem::Kept(_), Some(entry)) if entry.kind() == EntryKind::CompactionSummary => {
            let made = history::compactions(session).into_iter().find(|it| it.id == entry.id());
            made.map_or_else(|| entry.text().to_owned(), |it| it.summary)
        }
        (_, None) => item.text().into_owned(),
        (_, Some(entry)) => {
            let calls = entry.tool_calls().into_iter();
            let calls = calls.map(|call| (call.name.to_string(), call.arguments.to_string()));
            message_text(item.role(), &item.text(), calls)
        }
    });
    told.collect::<Vec<_>>().join("\n\n")
}

/// An answer that holds one compaction.
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

    /// The stream of a response: it begins, holds one item, and is complete.
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

    /// Nobody was asked, so nothing was used but what the engine's summary took, which is not billed here.
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
