//! The model is asked, and what its answer teaches about tokens.

use ctxhost_engine_api::Trigger;

use super::{Draft, Turn, TurnError};
use crate::event::What;
use ctxhost_context::CompactionOutcome;
use ctxhost_dialects::{AssistantMessage, ProviderError, Reason, StreamPart};

impl Turn {
    /// Asks the model of the turn. Other sessions go on while it answers.
    pub(crate) async fn ask(&mut self, draft: &Draft) -> Result<AssistantMessage, ProviderError> {
        let Some(client) = self.shared.clients.get(&self.walk.model().provider) else {
            let provider = &self.walk.model().provider;
            let message = format!("there is no [providers.{provider}] in the config");
            return Err(self.own_failure(Reason::ModelNotFound, &message));
        };
        let session: std::sync::Arc<str> = self.guard.session_id().into();
        let listeners = &self.shared.listeners;
        let mut hear = |part: StreamPart<'_>| {
            let what = match part {
                StreamPart::Text(text) => What::Text(text.to_owned()),
                StreamPart::Thinking(text) => What::Thinking(text.to_owned()),
                StreamPart::ToolCall { .. } => return,
            };
            listeners.tell(session.clone(), what);
        };
        let answer =
            self.guard.lane().during_model_call(client.answer(&draft.request, &mut hear)).await;
        if let Ok(reply) = &answer {
            self.learn(draft, reply);
            let id = self.guard.session_id();
            self.shared.prefixes.read(id, self.walk.model(), &draft.request);
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
        Ok(self.guard.open().context.wants_compaction(&target).await?)
    }

    /// A failure that no provider has told of.
    pub(crate) fn own_failure(&self, reason: Reason, message: &str) -> ProviderError {
        ProviderError {
            reason,
            provider: self.walk.model().provider.clone(),
            model: self.walk.model().id.clone(),
            status: None,
            code: String::new(),
            message: message.to_owned(),
            retry_after_ms: None,
            observed_tokens: None,
            limit_tokens: None,
            prompt_tokens: None,
            is_ceiling: false,
            began: false,
        }
    }
}
