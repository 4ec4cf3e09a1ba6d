//! The model is asked, and what its answer teaches about tokens.

use ctxhost_engine_api::Trigger;

use super::{AgentTurn, OutgoingRequest, TurnError};
use crate::event::EventKind;
use ctxhost_context::CompactionOutcome;
use ctxhost_dialects::{AssistantMessage, FailureReason, ProviderError, StreamPart};

impl AgentTurn {
    /// Asks the model of the turn. Other sessions go on while it answers.
    pub(crate) async fn call_model(
        &mut self,
        draft: &OutgoingRequest,
    ) -> Result<AssistantMessage, ProviderError> {
        let Some(client) = self.state.clients.get(&self.cursor.model().provider) else {
            let provider = &self.cursor.model().provider;
            let message = format!("there is no [providers.{provider}] in the config");
            return Err(self.host_failure(FailureReason::ModelNotFound, &message));
        };
        let session: std::sync::Arc<str> = self.guard.session_id().into();
        let listeners = &self.state.event_bus;
        let mut hear = |part: StreamPart<'_>| {
            let what = match part {
                StreamPart::Text(text) => EventKind::Text(text.to_owned()),
                StreamPart::Thinking(text) => EventKind::Thinking(text.to_owned()),
                StreamPart::ToolCall { .. } => return,
            };
            listeners.emit(session.clone(), what);
        };
        let answer =
            self.guard.lock().yield_permit_during(client.generate(&draft.request, &mut hear)).await;
        if let Ok(reply) = &answer {
            self.learn_from_answer(draft, reply);
            let id = self.guard.session_id();
            self.state.cached_prefixes.record(id, self.cursor.model(), &draft.request);
        }
        answer
    }

    /// Compacts, in up to three tries that grow bolder. The last outcome says how it ended.
    pub(crate) async fn compact(
        &mut self,
        trigger: Trigger,
        focus: Option<&str>,
    ) -> Result<Vec<CompactionOutcome>, TurnError> {
        self.save_notes().await;
        let (target, _) = self.target(trigger).await;
        self.guard.compact(&target, focus).await
    }

    /// Whether the next request would be better for a compaction.
    pub(crate) async fn wants_compaction(&mut self) -> Result<bool, TurnError> {
        let (target, _) = self.target(Trigger::Threshold).await;
        Ok(self.guard.active_mut().context.wants_compaction(&target).await?)
    }

    /// A failure that no provider has told of.
    pub(crate) fn host_failure(&self, reason: FailureReason, message: &str) -> ProviderError {
        ProviderError {
            reason,
            provider: self.cursor.model().provider.clone(),
            model: self.cursor.model().id.clone(),
            status: None,
            code: String::new(),
            message: message.to_owned(),
            retry_after_ms: None,
            observed_tokens: None,
            limit_tokens: None,
            prompt_tokens: None,
            is_ceiling: false,
            has_started: false,
        }
    }
}
