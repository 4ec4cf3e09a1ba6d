//! The calls of a chain: who is asked, in which order, and what becomes of several answers.

use std::collections::BTreeMap;
use std::time::Instant;

use ctxhost_engine_api::border::{EngineCall, EngineReply, FailurePolicy};
use ctxhost_engine_api::*;

use super::view::LinkView;
use super::{ChainOutcome, EngineChain, ServingLink, UnansweredCall};
use crate::error::{SlotError, is_caller_error};
use crate::service::EngineContext;

impl EngineChain {
    /// Has the engines of the chain answer a call. Where they are let go meanwhile, none has answered.
    pub(in super::super) async fn call(
        &self,
        context: EngineContext<'_>,
        call: &EngineCall,
    ) -> Result<ChainOutcome, SlotError> {
        if call.on_failure() != FailurePolicy::Report {
            self.refuse_while_quarantined(call.name())?;
        }
        let answer = async {
            match call {
                EngineCall::Compact(request) => self.compact(context.transcript, request).await,
                _ if self.links.len() < 2 => self.call_each(context, call).await,
                EngineCall::Assemble(request) => self.assemble(context, request).await,
                EngineCall::CallTool(request) => self.call_tool(context, call, request).await,
                EngineCall::PrepareSubagentSpawn(request) => {
                    self.prepare_spawn(context, request).await
                }
                EngineCall::RollbackSubagentSpawn(request) => self.rollback_spawn(request).await,
                _ => self.call_each(context, call).await,
            }
        };
        let answer = self.retired.run_until_cancelled(answer).await;
        answer.unwrap_or_else(|| Ok(ChainOutcome::Unanswered(UnansweredCall::default())))
    }

    /// Asks every engine that serves, in the positions of what it reads. New entries are told to the first
    /// one alone: what the others read of them depends on those before, so they hear of them before they
    /// are asked next.
    async fn call_each(
        &self,
        context: EngineContext<'_>,
        call: &EngineCall,
    ) -> Result<ChainOutcome, SlotError> {
        let began = Instant::now();
        let session = call.session();
        if matches!(call, EngineCall::Bootstrap(_)) {
            self.views.forget(session);
        }
        let mut views = self.views.take(session, self.links.len());
        let (mut reply, mut by, mut lost) = (None, Vec::new(), None);
        let is_news = matches!(call, EngineCall::Ingest(_));
        let asked: Vec<ServingLink<'_>> =
            self.serving_links().filter(|working| !is_news || working.link.number == 0).collect();
        for working in asked {
            let mut call = call.clone();
            let own = match views.get_mut(working.link.number) {
                Some(view) if working.link.number > 0 => {
                    let own = self.views.project_last_plan(view, context.transcript);
                    if let Some(entries) = call.entries_mut() {
                        *entries = view.projected_range(entries);
                    }
                    if needs_ingest_first(&call)
                        && let Err(error) =
                            ingest_new_entries(working, view, &own, call.session()).await
                    {
                        lost = self.handle_failure(working.link, "ingest", error)?.or(lost);
                        continue;
                    }
                    own
                }
                _ => context.transcript.clone(),
            };
            let name = call.name();
            let on_failure = call.on_failure();
            match (working.engine.call(&own, call).await, on_failure) {
                (Ok(answer), _) => {
                    by.push(working);
                    reply = Some(match reply {
                        Some(before) => merge_replies(before, answer),
                        None => answer,
                    });
                }
                (Err(error), FailurePolicy::Report) => {
                    return Err(SlotError::from_engine(&working.link.id, name, error));
                }
                (Err(error), FailurePolicy::Caller) => {
                    return Err(self.handle_caller_failure(working.link, name, error));
                }
                (Err(error), FailurePolicy::Fallback) if is_caller_error(error.kind) => {
                    return Err(SlotError::from_answer(error));
                }
                (Err(error), FailurePolicy::Fallback) => {
                    lost = self.handle_failure(working.link, name, error)?.or(lost);
                }
            }
        }
        self.views.store(session, views);
        if is_news && reply.is_none() {
            by.extend(self.serving_links().next());
            reply = Some(EngineReply::Ingest(IngestReply::default()));
        }
        Ok(match reply.filter(|_| !by.is_empty()) {
            Some(reply) => self.answered(&by, reply, began),
            None => ChainOutcome::Unanswered(UnansweredCall { lost_call: lost, refused_plans: 0 }),
        })
    }

    /// A smaller transcript, of the last engine that has a compaction of its own. It is worked out over the
    /// session itself.
    ///
    /// Every error goes to the caller: a second, silent compaction would hide it. An engine that broke,
    /// rather than declined, is left out from then on.
    async fn compact(
        &self,
        transcript: &Transcript,
        request: &CompactRequest,
    ) -> Result<ChainOutcome, SlotError> {
        let began = Instant::now();
        let session = Some(&request.session);
        let mut views = self.views.take(session, self.links.len());
        let working: Vec<ServingLink<'_>> = self.serving_links().collect();
        for working in working.into_iter().rev() {
            let own = match views.get_mut(working.link.number) {
                Some(view) if working.link.number > 0 => {
                    // The same positions as in the session, in an epoch of the engine's own.
                    let whole = Plan::keep_all(transcript.len());
                    let own = self.views.project(view, whole, transcript);
                    if let Err(error) = ingest_new_entries(working, view, &own, session).await {
                        return Err(self.handle_caller_failure(working.link, "ingest", error));
                    }
                    own
                }
                _ => transcript.clone(),
            };
            match working.engine.ask(&own, request.clone()).await {
                Ok(Compaction::Delegate) => {}
                Ok(compaction) => {
                    self.views.store(session, views);
                    return Ok(self.answered(&[working], EngineReply::Compact(compaction), began));
                }
                Err(error) => {
                    return Err(self.handle_caller_failure(working.link, "compact", error));
                }
            }
        }
        self.views.store(session, views);
        Ok(ChainOutcome::Unanswered(UnansweredCall::default()))
    }

    /// The model called a tool: of the first engine that offers it.
    async fn call_tool(
        &self,
        context: EngineContext<'_>,
        call: &EngineCall,
        request: &ToolCallRequest,
    ) -> Result<ChainOutcome, SlotError> {
        let began = Instant::now();
        for working in self.serving_links() {
            let offered = working.engine.tools(request.session.clone()).await.unwrap_or_default();
            if !offered.iter().any(|tool| tool.name == request.name) {
                continue;
            }
            let own = self.link_view(working, &request.session, context.transcript);
            let answer = working.engine.call(&own, call.clone()).await;
            let failed = |error| SlotError::from_engine(&working.link.id, call.name(), error);
            return Ok(self.answered(&[working], answer.map_err(failed)?, began));
        }
        Ok(ChainOutcome::Unanswered(UnansweredCall::default()))
    }

    /// A sub-agent is about to start. An error of any engine stops the spawn; those that had prepared are
    /// asked to take it back.
    async fn prepare_spawn(
        &self,
        context: EngineContext<'_>,
        request: &SubagentSpawnRequest,
    ) -> Result<ChainOutcome, SlotError> {
        let began = Instant::now();
        let (mut tokens, mut by) = (BTreeMap::new(), Vec::new());
        for working in self.serving_links() {
            let own = self.link_view(working, &request.parent, context.transcript);
            match working.engine.ask(&own, request.clone()).await {
                Ok(prepared) => {
                    by.push(working);
                    if !prepared.token.is_empty() {
                        tokens.insert(working.link.id.clone(), prepared.token);
                    }
                }
                Err(error) => {
                    self.rollback_prepared(tokens).await;
                    return Err(self.handle_caller_failure(
                        working.link,
                        "prepare_subagent_spawn",
                        error,
                    ));
                }
            }
        }
        if by.is_empty() {
            return Ok(ChainOutcome::Unanswered(UnansweredCall::default()));
        }
        let token = match tokens.is_empty() {
            true => String::new(),
            false => serde_json::to_string(&tokens).unwrap_or_default(),
        };
        let reply = EngineReply::PrepareSubagentSpawn(SubagentSpawnReply { token });
        Ok(self.answered(&by, reply, began))
    }

    /// A spawn that was prepared failed. The first error of an engine is that of the call.
    async fn rollback_spawn(
        &self,
        request: &SubagentRollbackRequest,
    ) -> Result<ChainOutcome, SlotError> {
        let (began, name) = (Instant::now(), "rollback_subagent_spawn");
        let tokens = serde_json::from_str(&request.token).map_err(|error| {
            let error = EngineError::failed(format!("no token of this chain: {error}"));
            SlotError::from_engine(&self.configured_id().unwrap_or_default(), name, error)
        })?;
        match self.rollback_prepared(tokens).await {
            Some((id, error)) => Err(SlotError::from_engine(&id, name, error)),
            None => {
                let working: Vec<ServingLink<'_>> = self.serving_links().collect();
                Ok(self.answered(&working, EngineReply::RollbackSubagentSpawn(()), began))
            }
        }
    }

    /// Asks engines to take back what they prepared; the first error.
    async fn rollback_prepared(
        &self,
        tokens: BTreeMap<String, String>,
    ) -> Option<(String, EngineError)> {
        let mut first = None;
        for (id, token) in tokens {
            let Some(working) = self.serving_links().find(|working| working.link.id == id) else {
                continue;
            };
            let request = SubagentRollbackRequest { token, ..SubagentRollbackRequest::default() };
            if let Err(error) = working.engine.rollback_subagent_spawn(request).await {
                tracing::warn!(engine = id, %error, "a preparation was not taken back");
                first = first.or(Some((id, error)));
            }
        }
        first
    }

    /// What an engine reads of a session, as of the last request.
    fn link_view(
        &self,
        working: ServingLink<'_>,
        session: &SessionRef,
        transcript: &Transcript,
    ) -> Transcript {
        let mut views = self.views.take(Some(session), self.links.len());
        let own = match views.get_mut(working.link.number) {
            Some(view) if working.link.number > 0 => self.views.project_last_plan(view, transcript),
            _ => transcript.clone(),
        };
        self.views.store(Some(session), views);
        own
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

/// Whether an engine behind others is told of new entries before this call, which is about them.
fn needs_ingest_first(call: &EngineCall) -> bool {
    matches!(call, EngineCall::AfterTurn(_) | EngineCall::CommitTurn(_) | EngineCall::Maintain(_))
}

/// Tells an engine behind others of what is new in what it reads.
pub(super) async fn ingest_new_entries(
    working: ServingLink<'_>,
    view: &mut LinkView,
    own: &Transcript,
    session: Option<&SessionRef>,
) -> Result<()> {
    let entries = view.take_new_entries(own);
    let Some(session) = session.filter(|_| !entries.is_empty()) else { return Ok(()) };
    let news = IngestRequest { session: session.clone(), entries, ..IngestRequest::default() };
    working.engine.ask(own, news).await.map(drop)
}

/// Two answers of engines to one call as one: a turn is new where it was to either, and of two tools with
/// one name that of the earlier engine is offered.
fn merge_replies(first: EngineReply, second: EngineReply) -> EngineReply {
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
