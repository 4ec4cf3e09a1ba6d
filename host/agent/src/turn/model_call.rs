//! Calls the model of a turn and compacts its session.

use std::sync::Arc;

use ctxhost_engine_api::Trigger;

use super::agent_turn::AgentTurn;
use super::outgoing_request::OutgoingRequest;
use crate::error::TurnError;
use crate::event::EventKind;
use ctxhost_context::CompactionOutcome;
use ctxhost_dialects::{AssistantMessage, FailureReason, ProviderError, StreamPart};

impl AgentTurn {
    /// Calls the model, without the global permit: other sessions run meanwhile.
    pub(crate) async fn call_model(
        &mut self,
        request: &OutgoingRequest,
    ) -> Result<AssistantMessage, ProviderError> {
        let Some(client) = self.state.clients.get(&self.cursor.model().provider) else {
            let provider = &self.cursor.model().provider;
            let message = format!("the config has no [providers.{provider}]");
            return Err(self.host_failure(FailureReason::ModelNotFound, &message));
        };
        let session: Arc<str> = self.guard.session_id().into();
        let event_bus = &self.state.event_bus;
        let mut on_part = |part: StreamPart<'_>| {
            let kind = match part {
                StreamPart::Text(text) => EventKind::Text(text.to_owned()),
                StreamPart::Thinking(text) => EventKind::Thinking(text.to_owned()),
                StreamPart::ToolCall { .. } => return,
            };
            event_bus.emit(session.clone(), kind);
        };
        let call = client.generate(&request.request, &mut on_part);
        let answer = self.guard.lock().yield_permit_during(call).await;
        if let Ok(answer) = &answer {
            self.learn_from_answer(request, answer);
            let id = self.guard.session_id();
            // Only answered requests: a provider caches what it has processed.
            self.state.cached_prefixes.record(id, self.cursor.model(), &request.request);
        }
        answer
    }

    /// Compacts in up to three attempts. The last outcome is the result.
    pub(crate) async fn compact(
        &mut self,
        trigger: Trigger,
        focus: Option<&str>,
    ) -> Result<Vec<CompactionOutcome>, TurnError> {
        // Before the compaction folds what the notes are about.
        self.save_notes().await;
        let (target, _) = self.target(trigger).await;
        self.guard.compact(&target, focus).await
    }

    /// Whether the engine recommends a compaction, or the next request needs one.
    pub(crate) async fn wants_compaction(&mut self) -> Result<bool, TurnError> {
        let (target, _) = self.target(Trigger::Threshold).await;
        Ok(self.guard.active_mut().context.wants_compaction(&target).await?)
    }
}
