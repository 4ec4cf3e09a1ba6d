//! The calls of a chain: which engines are called, in which order, and how several replies are
//! merged.

use std::collections::BTreeMap;
use std::time::Instant;

use ctxhost_engine_api::border::{EngineCall, EngineReply, FailurePolicy};
use ctxhost_engine_api::*;

use super::view::LinkView;
use super::{ChainLink, ChainOutcome, EngineChain, ServingLink, UnansweredCall};
use crate::error::{OnEngineError, SlotError, is_caller_error};
use crate::service::EngineContext;

impl EngineChain {
    /// Calls every serving engine, with positions of its own view; some calls have a rule of their own. New entries
    /// go to the first engine alone: the views of the others follow from its next plan, so they ingest before their
    /// next call.
    pub(in super::super) async fn call(
        &self,
        context: EngineContext<'_>,
        call: &EngineCall,
    ) -> Result<ChainOutcome, SlotError> {
        let is_chain = self.links.len() > 1;
        match call {
            EngineCall::Compact(request) => return self.compact(context.transcript, request).await,
            EngineCall::Assemble(request) if is_chain => {
                return self.assemble(context, request).await;
            }
            EngineCall::CallTool(request) if is_chain => {
                return self.call_tool(context, call, request).await;
            }
            EngineCall::PrepareSubagentSpawn(request) if is_chain => {
                return self.prepare_spawn(context, request).await;
            }
            EngineCall::RollbackSubagentSpawn(request) if is_chain => {
                return self.rollback_spawn(request).await;
            }
            EngineCall::Bootstrap(request) => self.views.forget(&request.session),
            _ => {}
        }
        let began = Instant::now();
        // Taken out of the cache, so that an aborted call leaves no half-updated view behind.
        let mut views = self.views.take(call.session(), self.links.len());
        let (mut reply, mut by, mut lost) = (None, Vec::new(), None);
        let is_ingest = matches!(call, EngineCall::Ingest(_));
        let called: Vec<ServingLink<'_>> =
            self.serving_links().filter(|serving| !is_ingest || serving.link.number == 0).collect();
        for serving in called {
            let mut own = call.clone();
            let view = views.get_mut(serving.link.number);
            let projected = match self.prepare_call(serving, view, context, &mut own).await {
                Ok(projected) => projected,
                Err(error) => {
                    lost = self.handle_failure(serving.link, "ingest", error)?.or(lost);
                    continue;
                }
            };
            match serving.engine.call(&projected, own).await {
                Ok(answer) => {
                    by.push(serving);
                    reply = Some(merge_replies(reply, answer));
                }
                Err(error) => lost = self.handle_call_error(serving.link, call, error)?.or(lost),
            }
        }
        self.views.store(call.session(), views);
        if is_ingest && reply.is_none() {
            by.extend(self.serving_links().next());
            reply = Some(EngineReply::Ingest(IngestReply::default()));
        }
        Ok(match reply.filter(|_| !by.is_empty()) {
            Some(reply) => self.answered(&by, reply, began),
            None => ChainOutcome::Unanswered(UnansweredCall { lost_call: lost, refused_plans: 0 }),
        })
    }

    /// The transcript that an engine sees, to whose positions the call is translated.
    async fn prepare_call(
        &self,
        serving: ServingLink<'_>,
        view: Option<&mut LinkView>,
        context: EngineContext<'_>,
        call: &mut EngineCall,
    ) -> Result<Transcript> {
        let Some(view) = view.filter(|_| serving.link.number > 0) else {
            return Ok(context.transcript.clone());
        };
        let projected = self.views.project_last_plan(view, context.transcript);
        if let Some(entries) = call.entries_mut() {
            *entries = view.projected_range(entries);
        }
        if needs_ingest_first(call) {
            ingest_new_entries(serving, view, &projected, call.session()).await?;
        }
        Ok(projected)
    }

    /// Handles a failed call by its policy. Where the engine lost it and still serves, returns the message for that
    /// call.
    fn handle_call_error(
        &self,
        link: &ChainLink,
        call: &EngineCall,
        error: EngineError,
    ) -> Result<Option<String>, SlotError> {
        match call.on_failure() {
            FailurePolicy::Report => Err(SlotError::from_engine(&link.id, call.name(), error)),
            FailurePolicy::Caller => Err(self.handle_caller_failure(link, call.name(), error)),
            FailurePolicy::Fallback if is_caller_error(error.kind) => {
                self.decline(link, call.name(), error).map(Some)
            }
            FailurePolicy::Fallback => self.handle_failure(link, call.name(), error),
        }
    }

    /// Describes that an engine declined a request. The bundled engine serves it, if `on_engine_error` allows that.
    pub(super) fn decline(
        &self,
        link: &ChainLink,
        operation: &str,
        error: EngineError,
    ) -> Result<String, SlotError> {
        match self.on_error {
            OnEngineError::Fail => Err(SlotError::from_answer(error)),
            OnEngineError::Fallback => {
                Ok(format!("{} declined to {operation}: {}", link.id, error.message))
            }
        }
    }

    /// Compacts with the last engine that compacts itself, over the session and not a projection.
    ///
    /// Every error goes to the caller: a second, silent compaction would hide it. An engine that
    /// broke, rather than declined, is quarantined.
    async fn compact(
        &self,
        transcript: &Transcript,
        request: &CompactRequest,
    ) -> Result<ChainOutcome, SlotError> {
        let began = Instant::now();
        let session = Some(&request.session);
        let mut views = self.views.take(session, self.links.len());
        let serving: Vec<ServingLink<'_>> = self.serving_links().collect();
        for serving in serving.into_iter().rev() {
            let projected = match views.get_mut(serving.link.number) {
                Some(view) if serving.link.number > 0 => {
                    // Positions equal those of the session, in an epoch of this view.
                    let whole = Plan::keep_all(transcript.len());
                    let projected = self.views.project(view, whole, transcript);
                    if let Err(error) = ingest_new_entries(serving, view, &projected, session).await
                    {
                        return Err(self.handle_caller_failure(serving.link, "ingest", error));
                    }
                    projected
                }
                _ => transcript.clone(),
            };
            match serving.engine.ask(&projected, request.clone()).await {
                Ok(Compaction::Delegate) => {}
                Ok(compaction) => {
                    self.views.store(session, views);
                    return Ok(self.answered(&[serving], EngineReply::Compact(compaction), began));
                }
                Err(error) => {
                    return Err(self.handle_caller_failure(serving.link, "compact", error));
                }
            }
        }
        self.views.store(session, views);
        Ok(ChainOutcome::Unanswered(UnansweredCall::default()))
    }

    /// Calls a tool of the first engine that offers it.
    async fn call_tool(
        &self,
        context: EngineContext<'_>,
        call: &EngineCall,
        request: &ToolCallRequest,
    ) -> Result<ChainOutcome, SlotError> {
        let began = Instant::now();
        for serving in self.serving_links() {
            // An engine that fails to list its tools offers none here; the `tools` call handles
            // that failure.
            let offered = serving.engine.tools(request.session.clone()).await.unwrap_or_default();
            if !offered.iter().any(|tool| tool.name == request.name) {
                continue;
            }
            let projected = self.link_view(serving, &request.session, context.transcript);
            let answer = serving.engine.call(&projected, call.clone()).await;
            let failed = |error| SlotError::from_engine(&serving.link.id, call.name(), error);
            return Ok(self.answered(&[serving], answer.map_err(failed)?, began));
        }
        Ok(ChainOutcome::Unanswered(UnansweredCall::default()))
    }

    /// Prepares the start of a sub-agent. An error of any engine stops the spawn, and the engines
    /// that had prepared roll back.
    async fn prepare_spawn(
        &self,
        context: EngineContext<'_>,
        request: &SubagentSpawnRequest,
    ) -> Result<ChainOutcome, SlotError> {
        let began = Instant::now();
        let (mut tokens, mut by) = (BTreeMap::new(), Vec::new());
        for serving in self.serving_links() {
            let projected = self.link_view(serving, &request.parent, context.transcript);
            match serving.engine.ask(&projected, request.clone()).await {
                Ok(prepared) => {
                    by.push(serving);
                    // An engine without a token prepared nothing that needs a rollback.
                    if !prepared.token.is_empty() {
                        tokens.insert(serving.link.id.clone(), prepared.token);
                    }
                }
                Err(error) => {
                    self.rollback_prepared(tokens).await;
                    return Err(self.handle_caller_failure(
                        serving.link,
                        "prepare_subagent_spawn",
                        error,
                    ));
                }
            }
        }
        if by.is_empty() {
            return Ok(ChainOutcome::Unanswered(UnansweredCall::default()));
        }
        let token = if tokens.is_empty() {
            String::new()
        } else {
            serde_json::to_string(&tokens).unwrap_or_default()
        };
        let reply = EngineReply::PrepareSubagentSpawn(SubagentSpawnReply { token });
        Ok(self.answered(&by, reply, began))
    }

    /// Rolls back a prepared spawn. The first error of an engine is the result.
    async fn rollback_spawn(
        &self,
        request: &SubagentRollbackRequest,
    ) -> Result<ChainOutcome, SlotError> {
        let (began, name) = (Instant::now(), "rollback_subagent_spawn");
        let tokens = serde_json::from_str(&request.token).map_err(|error| {
            let error = EngineError::failed(format!("the token is not from this chain: {error}"));
            SlotError::from_engine(&self.configured_id().unwrap_or_default(), name, error)
        })?;
        match self.rollback_prepared(tokens).await {
            Some((id, error)) => Err(SlotError::from_engine(&id, name, error)),
            None => {
                let serving: Vec<ServingLink<'_>> = self.serving_links().collect();
                Ok(self.answered(&serving, EngineReply::RollbackSubagentSpawn(()), began))
            }
        }
    }

    /// Rolls back what engines prepared; returns the first error.
    async fn rollback_prepared(
        &self,
        tokens: BTreeMap<String, String>,
    ) -> Option<(String, EngineError)> {
        let mut first = None;
        for (id, token) in tokens {
            let Some(serving) = self.serving_links().find(|serving| serving.link.id == id) else {
                continue;
            };
            let request = SubagentRollbackRequest { token, ..SubagentRollbackRequest::default() };
            if let Err(error) = serving.engine.rollback_subagent_spawn(request).await {
                tracing::warn!(engine = id, %error, "an engine did not roll back its preparation");
                first = first.or(Some((id, error)));
            }
        }
        first
    }

    /// The view of an engine on a session, as of the last request.
    fn link_view(
        &self,
        serving: ServingLink<'_>,
        session: &SessionRef,
        transcript: &Transcript,
    ) -> Transcript {
        let mut views = self.views.take(Some(session), self.links.len());
        let projected = match views.get_mut(serving.link.number) {
            Some(view) if serving.link.number > 0 => self.views.project_last_plan(view, transcript),
            _ => transcript.clone(),
        };
        self.views.store(Some(session), views);
        projected
    }

    pub(super) fn answered(
        &self,
        by: &[ServingLink<'_>],
        reply: EngineReply,
        began: Instant,
    ) -> ChainOutcome {
        ChainOutcome::Answered(Box::new(self.attribute(by, reply, began.elapsed())))
    }
}

/// Whether a later engine of a chain must ingest new entries before this call, which refers to
/// them.
fn needs_ingest_first(call: &EngineCall) -> bool {
    matches!(call, EngineCall::AfterTurn(_) | EngineCall::CommitTurn(_) | EngineCall::Maintain(_))
}

/// Ingests the entries of a view that its engine has not seen.
pub(super) async fn ingest_new_entries(
    serving: ServingLink<'_>,
    view: &mut LinkView,
    projected: &Transcript,
    session: Option<&SessionRef>,
) -> Result<()> {
    let entries = view.take_new_entries(projected);
    let Some(session) = session.filter(|_| !entries.is_empty()) else { return Ok(()) };
    let request = IngestRequest { session: session.clone(), entries, ..IngestRequest::default() };
    serving.engine.ask(projected, request).await.map(drop)
}

/// Merges the replies of engines to one call. A turn is new if it was new to either; of two
/// tools with one name the first is offered.
fn merge_replies(first: Option<EngineReply>, second: EngineReply) -> EngineReply {
    let Some(first) = first else { return second };
    match (first, second) {
        (EngineReply::CommitTurn(CommitTurnReply::Duplicate), second) => second,
        (EngineReply::Maintain(first), EngineReply::Maintain(second)) => {
            EngineReply::Maintain(MaintainReply {
                changed: first.changed || second.changed,
                bytes_freed: first.bytes_freed + second.bytes_freed,
                reason: first.reason.or(second.reason),
            })
        }
        (EngineReply::Tools(mut tools), EngineReply::Tools(more)) => {
            for tool in more {
                if !tools.iter().any(|known| known.name == tool.name) {
                    tools.push(tool);
                }
            }
            EngineReply::Tools(tools)
        }
        (first, _) => first,
    }
}
