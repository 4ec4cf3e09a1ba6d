//! The model is asked, and what its answer teaches about tokens.

use ctxhost_engine_api::Trigger;

use super::{Draft, Turn, TurnError};
use crate::provider::{AssistantMessage, ProviderError, Reason, StreamPart};
use crate::runtime::compaction::{self, CompactionOutcome, Wanted};
use crate::runtime::event::{Event, What};
use crate::runtime::failover::ModelChoice;

impl Turn<'_> {
    /// Asks the model of the turn. Other sessions go on while it answers.
    pub(in crate::runtime) async fn ask(
        &mut self,
        draft: &Draft,
    ) -> Result<AssistantMessage, ProviderError> {
        let Some(client) = self.shared.clients.get(&self.model.provider) else {
            let message = format!("there is no [providers.{}] in the config", self.model.provider);
            return Err(self.own_failure(Reason::ModelNotFound, &message));
        };
        let session: std::sync::Arc<str> = self.conversation.reference().id.as_str().into();
        let events = &self.shared.events;
        let mut hear = |part: StreamPart<'_>| {
            let what = match part {
                StreamPart::Text(text) => What::Text(text.to_owned()),
                StreamPart::Thinking(text) => What::Thinking(text.to_owned()),
                StreamPart::ToolCall { .. } => return,
            };
            let _ = events.send(Event { session: session.clone(), what });
        };
        let answer = self.lane.during_model_call(client.answer(&draft.request, &mut hear)).await;
        if let Ok(reply) = &answer {
            self.learn(draft, reply);
        }
        answer
    }

    /// A failure that no provider has told of.
    pub(in crate::runtime) fn own_failure(&self, reason: Reason, message: &str) -> ProviderError {
        ProviderError {
            reason,
            provider: self.model.provider.clone(),
            model: self.model.id.clone(),
            status: None,
            code: String::new(),
            message: message.to_owned(),
            retry_after_ms: None,
            observed_tokens: None,
            limit_tokens: None,
            began: false,
        }
    }
}
