//! One request on its way: how its prompt was prepared, what is sent.

use ctxhost_engine_api::transcript::tokens;
use ctxhost_engine_api::{ErrorKind, Trigger};

use super::{Turn, TurnError};
use crate::projection::Projection;
use crate::recovery;
use ctxhost_context::{ContextError, SentRequest, Target};
use ctxhost_dialects::{ChatMessage, Content, ModelRequest, Reason};
use ctxhost_engine::SlotError;

/// A request that is ready to be sent.
#[derive(Debug)]
pub(crate) struct Draft {
    /// What is sent.
    pub(crate) request: ModelRequest,
    /// What it was prepared for.
    pub(crate) target: Target,
    /// What its size is.
    pub(crate) sent: SentRequest,
}

impl Turn {
    /// Prepares the next request; goes on to the next model where a window is too small to work in.
    pub(crate) async fn assemble(&mut self, trigger: Trigger) -> Result<Draft, TurnError> {
        loop {
            match self.draft(trigger).await {
                Err(TurnError::Context(ContextError::Slot(SlotError::Answer { error })))
                    if error.kind == ErrorKind::WindowTooSmall =>
                {
                    let failure = self.own_failure(Reason::WindowTooSmall, &error.message);
                    recovery::next_model(self, failure)?;
                }
                other => return other,
            }
        }
    }

    async fn draft(&mut self, trigger: Trigger) -> Result<Draft, TurnError> {
        self.guard.renew_engine();
        let (target, tools) = self.target(trigger).await;
        if self.owes_notes() && self.guard.open().context.needs_compaction(&target).await? {
            self.save_notes().await;
        }
        let prompt = self.guard.prepare(&target).await?;
        self.engine.clone_from(&prompt.engine);
        let reserve_tokens = self.guard.open().context.budget(&target).reserve_tokens;
        let target = self.with_answer(target, reserve_tokens);
        let projection = Projection::of(&prompt.items(), self.session().images());
        let mut messages = projection.messages;
        if self.pressure.plain {
            messages.iter_mut().for_each(ChatMessage::make_plain);
        }
        let system = std::iter::once(self.system_prompt()).chain(projection.system);
        let system: Vec<String> = system.filter(|text| !text.is_empty()).collect();
        let request = ModelRequest {
            model: target.model.id.clone(),
            system: system.join("\n\n"),
            messages,
            tools,
            max_output_tokens: target.output_tokens,
            window_tokens: self.guard.context().window_tokens(&target),
            thinking: self.shared.settings.thinking,
            temperature: None,
            cache_key: self.guard.session_id().to_owned(),
        };
        let sent = SentRequest {
            size: self.sized(&request, &projection.tokens),
            image_tokens: image_tokens(&request),
            conversation_tokens: prompt.lawful.tokens,
        };
        Ok(Draft { request, target, sent })
    }
}

/// What the images of a request are taken to cost.
fn image_tokens(request: &ModelRequest) -> u64 {
    let blocks = request.messages.iter().flat_map(|message| message.content());
    let images = blocks.filter(|block| matches!(block, Content::Image { .. }));
    images.count() as u64 * tokens::IMAGE_TOKENS
}
