//! Prepares the requests of a turn.

use ctxhost_engine_api::{ErrorKind, Trigger};

use super::agent_turn::AgentTurn;
use crate::error::TurnError;
use crate::model_messages::ModelMessages;
use ctxhost_context::{ContextError, SentRequest, Target};
use ctxhost_dialects::{ChatMessage, FailureReason, ModelRequest};
use ctxhost_engine::SlotError;

/// A request that is ready to be sent.
#[derive(Debug)]
pub(crate) struct OutgoingRequest {
    /// The request in no dialect yet.
    pub(crate) request: ModelRequest,
    /// The target that its prompt was prepared for.
    pub(crate) target: Target,
    /// Its size.
    pub(crate) sent: SentRequest,
}

impl AgentTurn {
    /// Prepares the next request; fails over while the engine rejects a model's window as too small.
    pub(crate) async fn prepare_request(
        &mut self,
        trigger: Trigger,
    ) -> Result<OutgoingRequest, TurnError> {
        loop {
            // Each round uses another model, so this ends with the failover chain.
            match self.try_prepare_request(trigger).await {
                Err(TurnError::Context(ContextError::Slot(SlotError::Answer { error })))
                    if error.kind == ErrorKind::WindowTooSmall =>
                {
                    let failure = self.host_failure(FailureReason::WindowTooSmall, &error.message);
                    self.next_model(failure)?;
                }
                other => return other,
            }
        }
    }

    async fn try_prepare_request(
        &mut self,
        trigger: Trigger,
    ) -> Result<OutgoingRequest, TurnError> {
        self.guard.refresh_engine();
        let (target, tools) = self.target(trigger).await;
        // Checked here because `prepare` compacts by itself.
        if self.needs_notes() && self.guard.active_mut().context.needs_compaction(&target).await? {
            self.save_notes().await;
        }
        let prompt = self.guard.prepare(&target).await?;
        self.engine.clone_from(&prompt.engine);
        let reserve_tokens = self.guard.active_mut().context.budget(&target).reserve_tokens;
        let target = self.with_output_limit(target, reserve_tokens);
        let converted = ModelMessages::from_items(&prompt.items(), self.session().images());
        let mut messages = converted.messages;
        if self.retry.without_thinking {
            messages.iter_mut().for_each(ChatMessage::strip_provider_content);
        }
        let addition = prompt.system_addition().map(str::to_owned).into_iter();
        let system = addition.chain([self.system_prompt()]).chain(converted.system);
        let system: Vec<String> = system.filter(|text| !text.is_empty()).collect();
        let request = ModelRequest {
            model: target.model.id.clone(),
            system: system.join("\n\n"),
            messages,
            tools,
            max_output_tokens: target.output_tokens,
            window_tokens: self.guard.context().window_tokens(&target),
            thinking: self.state.settings.thinking,
            temperature: None,
            cache_key: self.guard.session_id().to_owned(),
        };
        let sent = SentRequest {
            size: self.request_size(&request, &converted.tokens),
            conversation_tokens: prompt.checked.tokens,
            bytes: None,
        };
        Ok(OutgoingRequest { request, target, sent })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::testing::{Answer, RecordingEngine, ScriptedProvider, builder, config, session};

    #[tokio::test]
    async fn the_text_of_an_engine_is_sent_before_the_system_prompt() {
        let client = ScriptedProvider::new(|_| Answer::Text("done".into()));
        let engine = RecordingEngine::spec("adding", json!({ "addition": "The ledger: 7 files." }));
        let config = config("[agent]\nsystem_prompt = \"You mend programs.\"\n");
        let runtime = builder(&config, &client, engine).build().await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let session = session(&runtime, &folder);
        runtime.send(&session, "mend it").await.unwrap();
        let system = client.requests_with("mend it")[0].system.clone();
        assert!(system.starts_with("The ledger: 7 files.\n\n"), "{system}");
        assert!(system.contains("You mend programs."), "{system}");
    }
}
