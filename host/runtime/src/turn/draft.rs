//! One request on its way: what it may cost, how it was shaped, what is sent.

use ctxhost_engine_api::transcript::tokens;
use ctxhost_engine_api::{AssembleRequest, ErrorKind, Trigger};

use super::{Budget, Turn, TurnError};
use crate::accounting::Prompt;
use crate::event::What;
use crate::projection::Projection;
use crate::recovery;
use crate::request::{Ask, Compacting, RuntimeError, Shaped};
use crate::timing::on_the_way;
use ctxhost_dialects::{ChatMessage, Content, ModelRequest, Reason};
use ctxhost_engine::SlotError;

/// A request that is ready to be sent.
#[derive(Debug)]
pub(crate) struct Draft {
    /// What is sent.
    pub(crate) request: ModelRequest,
    /// What the conversation in it costs, as entries count.
    pub(crate) conversation_tokens: u64,
    /// All of it, as far as its size goes.
    pub(crate) prompt: Prompt,
}

impl Draft {
    /// What its images are taken to cost.
    pub(super) fn image_tokens(&self) -> u64 {
        let blocks = self.request.messages.iter().flat_map(|message| message.content());
        let images = blocks.filter(|block| matches!(block, Content::Image { .. }));
        images.count() as u64 * tokens::IMAGE_TOKENS
    }
}

impl Turn<'_> {
    /// Shapes the next request; goes on to the next model where a window is too small to work in.
    pub(crate) async fn assemble(&mut self, trigger: Trigger) -> Result<Draft, TurnError> {
        loop {
            match self.shape(trigger).await {
                Err(TurnError::Shape(RuntimeError::Slot(SlotError::Answer { error })))
                    if error.kind == ErrorKind::WindowTooSmall =>
                {
                    let failure = self.own_failure(Reason::WindowTooSmall, &error.message);
                    recovery::next_model(self, failure)?;
                }
                other => return other,
            }
        }
    }

    /// When the host may compact on the way. Nobody can compact a sub-agent by hand.
    fn compacting(&self) -> Compacting {
        match on_the_way(&self.shared.compaction, self.requests > 0) {
            Compacting::Never if self.children.depth() > 0 => Compacting::WhenNeeded,
            compacting => compacting,
        }
    }

    /// Lets engines in the shadow see what was asked of the slot's own. Nobody waits for them.
    fn show_shadows(&self, ask: &Ask, budget: Budget, shaped: &Shaped) {
        let Some(shadows) = &self.shared.shadows else { return };
        let request = AssembleRequest {
            session: self.conversation.reference().clone(),
            budget: budget.tokens,
            reserve_tokens: budget.reserve_tokens,
            prompt: ask.prompt.clone(),
            model: self.model_ref(),
            available_tools: ask.available_tools.clone(),
            now_ms: ask.now_ms,
            ..AssembleRequest::default()
        };
        shadows.show(request, shaped);
    }

    async fn shape(&mut self, trigger: Trigger) -> Result<Draft, TurnError> {
        self.renew_lease();
        let tools = self.tools().await;
        let overhead_tokens = self.overhead_tokens(&tools);
        let budget = self.budget_beside(overhead_tokens);
        let model = self.model_ref();
        let ask = Ask {
            prompt: self.conversation.prompt(),
            available_tools: tools.iter().map(|tool| tool.name.clone()).collect(),
            now_ms: self.shared.clock.now_ms(),
            trigger,
            compacting: self.compacting(),
        };
        let shaped = self.shape_for(&ask, budget).await?;
        let projection = Projection::of(&shaped.items(), self.conversation.images());
        let mut messages = projection.messages;
        if self.pressure.plain {
            messages.iter_mut().for_each(ChatMessage::make_plain);
        }
        let system = std::iter::once(self.system_prompt()).chain(projection.system);
        let system: Vec<String> = system.filter(|text| !text.is_empty()).collect();
        let request = ModelRequest {
            model: self.walk.model().id.clone(),
            system: system.join("\n\n"),
            messages,
            tools,
            max_output_tokens: self.max_output_tokens(budget.reserve_tokens),
            window_tokens: model.window_tokens,
            thinking: self.shared.settings.thinking,
            temperature: None,
            cache_key: self.conversation.reference().id.clone(),
        };
        let prompt = self.sized(&request, &projection.tokens);
        Ok(Draft { request, conversation_tokens: shaped.lawful.tokens, prompt })
    }

    /// Has a request shaped and tells everybody who wants to know of it.
    pub(super) async fn shape_for(
        &mut self,
        ask: &Ask,
        budget: Budget,
    ) -> Result<Shaped, TurnError> {
        let (shared, slot, model) = (self.shared, self.slot.clone(), self.model_ref());
        let shaper = shared.shaper(&slot, &model, budget);
        if self.owes_notes() && shaper.needs_compaction(self.conversation, ask).await? {
            self.save_notes().await;
        }
        // Other sessions go on meanwhile: a compaction on the way may wait for a summary.
        let shape = shaper.shape(self.conversation, ask);
        let shaped = self.lane.during_model_call(shape).await?;
        self.show_shadows(ask, budget, &shaped);
        self.count_shaped(&shaped);
        self.compacted(&shaped.compactions);
        self.tell(What::assembled(&shaped, shaped.budget_tokens, self.walk.model().to_string()));
        self.engine.clone_from(&shaped.engine);
        shared.known.touched(&self.conversation.reference().id, ask.now_ms);
        Ok(shaped)
    }
}
