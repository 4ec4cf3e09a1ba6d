//! The model is asked, and what its answer teaches about tokens.

use ctxhost_engine_api::Trigger;

use super::{Draft, Turn, TurnError};
use crate::compaction::{self, CompactionOutcome, Wanted};
use crate::event::What;
use crate::request::Ask;
use ctxhost_dialects::{AssistantMessage, ProviderError, Reason, StreamPart};

impl Turn<'_> {
    /// Asks the model of the turn. Other sessions go on while it answers.
    pub(crate) async fn ask(&mut self, draft: &Draft) -> Result<AssistantMessage, ProviderError> {
        let Some(client) = self.shared.clients.get(&self.walk.model().provider) else {
            let provider = &self.walk.model().provider;
            let message = format!("there is no [providers.{provider}] in the config");
            return Err(self.own_failure(Reason::ModelNotFound, &message));
        };
        let session: std::sync::Arc<str> = self.conversation.reference().id.as_str().into();
        let listeners = &self.shared.listeners;
        let mut hear = |part: StreamPart<'_>| {
            let what = match part {
                StreamPart::Text(text) => What::Text(text.to_owned()),
                StreamPart::Thinking(text) => What::Thinking(text.to_owned()),
                StreamPart::ToolCall { .. } => return,
            };
            listeners.tell(session.clone(), what);
        };
        let answer = self.lane.during_model_call(client.answer(&draft.request, &mut hear)).await;
        if let Ok(reply) = &answer {
            self.learn(draft, reply);
            let id = &self.conversation.reference().id;
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
        let wanted = Wanted {
            trigger,
            focus: focus.map(str::to_owned),
            now_ms: self.shared.clock.now_ms(),
            ..Wanted::default()
        };
        let (slot, model, budget) = (self.slot.clone(), self.model_ref(), self.budget().await);
        let shaper = self.shared.shaper(&slot, &model, budget);
        // A summary is a model call too, and may take as long.
        let insist = compaction::insist(&shaper, self.conversation, wanted);
        let outcomes = self.lane.during_model_call(insist).await?;
        self.compacted(&outcomes);
        Ok(outcomes)
    }

    /// Whether the next request would be better for a compaction.
    pub(crate) async fn wants_compaction(&mut self) -> Result<bool, TurnError> {
        let ask = Ask { now_ms: self.shared.clock.now_ms(), ..Ask::default() };
        let (slot, model, budget) = (self.slot.clone(), self.model_ref(), self.budget().await);
        let shaper = self.shared.shaper(&slot, &model, budget);
        Ok(shaper.wants_compaction(self.conversation, &ask).await?)
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
