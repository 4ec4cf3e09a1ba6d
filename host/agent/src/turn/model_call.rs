//! Calls the model of a turn and compacts its session.

use std::sync::Arc;

use ctxhost_engine_api::Trigger;

use super::agent_turn::AgentTurn;
use super::incomplete::ArrivingAnswer;
use super::outgoing_request::OutgoingRequest;
use crate::error::TurnError;
use crate::event::EventKind;
use ctxhost_context::CompactionOutcome;
use ctxhost_dialects::{AssistantMessage, FailureReason, ProviderError, StreamPart};
use ctxhost_provider::RetryWait;

impl AgentTurn {
    /// Calls the model, without the global permit: other sessions run meanwhile.
    pub(crate) async fn call_model(
        &mut self,
        request: &OutgoingRequest,
    ) -> Result<AssistantMessage, ProviderError> {
        let state = self.state.clone();
        let Some(client) = state.clients.get(&self.cursor.model().provider) else {
            let provider = &self.cursor.model().provider;
            let message = format!("the config has no [providers.{provider}]");
            return Err(self.host_failure(FailureReason::ModelNotFound, &message));
        };
        let session: Arc<str> = self.guard.session_id().into();
        let model: Arc<str> = self.cursor.model().to_string().into();
        let arriving = ArrivingAnswer::new(self, client.api());
        let received = arriving.parts();
        let mut on_part = |part: StreamPart<'_>| {
            received.lock().add(&part);
            let kind = match part {
                StreamPart::Text(text) => EventKind::Text(text.to_owned()),
                StreamPart::Thinking(text) => EventKind::Thinking(text.to_owned()),
                StreamPart::ToolCall { .. } => return,
            };
            state.event_bus.emit(session.clone(), kind);
        };
        let on_wait = |wait: RetryWait| {
            let kind = EventKind::Waiting { model: model.to_string(), wait };
            state.event_bus.emit(session.clone(), kind);
        };
        let call = client.generate_with_waits(&request.request, &mut on_part, &on_wait);
        let answer = arriving.turn.guard.lock().yield_permit_during(call).await;
        self.started_calls = arriving.finish();
        self.asked_output_tokens = request.request.max_output_tokens;
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
