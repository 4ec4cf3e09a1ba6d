//! The target of a turn's prompts, and the sizes of its requests.

use ctxhost_engine_api::transcript::tokens;
use ctxhost_engine_api::{ToolSpec, Trigger};
use serde::Serialize;

use super::agent_turn::AgentTurn;
use super::outgoing_request::OutgoingRequest;
use ctxhost_context::accounting::{RequestSize, SizePart};
use ctxhost_context::{CompactionPolicy, Target};
use ctxhost_dialects::{AssistantMessage, ChatBlock, ChatMessage, ModelRequest};

/// The shortest answer to request after refusals for the output limit, in provider tokens. A shorter one is too short
/// for most tool calls.
pub(crate) const MIN_OUTPUT_TOKENS: u64 = 256;

/// The lower bound for shortening an answer after an overflow, as a share of the requested length. Below it, the
/// conversation is shortened instead.
const MIN_OUTPUT_SHARE: f64 = 0.25;

impl AgentTurn {
    /// The target of the next prompt, and the tools that the model may call.
    pub(crate) async fn target(&mut self, trigger: Trigger) -> (Target, Vec<ToolSpec>) {
        let tools = self.tools().await;
        let model = self.cursor.model().clone();
        let subagents = &self.guard.active().subagents;
        // An empty list is not sent.
        let tools_json = if tools.is_empty() { String::new() } else { json_of(&tools) };
        let target = Target {
            window_tokens: self.state.models.agent_window_tokens(&model),
            model,
            // Local servers may run with a few hundred tokens, but a window without room for an answer is a mistake.
            min_window_tokens: MIN_OUTPUT_TOKENS,
            overhead_tokens: tokens::estimate(&self.system_prompt())
                + tokens::estimate(&tools_json),
            max_tokens: self.retry.cap_tokens,
            attachment_cut: self.retry.attachment_cut,
            budget_share: Some(subagents.budget_share()),
            tools: tools.iter().map(|tool| tool.name.clone()).collect(),
            trigger,
            compaction: self.compaction_policy(),
            ..Target::default()
        };
        (target, tools)
    }

    fn compaction_policy(&self) -> CompactionPolicy {
        match CompactionPolicy::for_request(&self.state.compaction, self.requests > 0) {
            // A user cannot compact a sub-agent manually, so `Never` would end its turn.
            CompactionPolicy::Never if self.guard.active().subagents.depth() > 0 => {
                CompactionPolicy::WhenNeeded
            }
            policy => policy,
        }
    }

    /// The configured system prompt, the notes of earlier sessions, and the list of live sub-agents. Engines do not
    /// see the system prompt, so none can drop any of it.
    pub(crate) fn system_prompt(&self) -> String {
        let active = self.guard.active();
        let sub_agents = active.subagents.prompt_note(&self.state.running_subagents);
        let agent = self.state.settings.system_prompt.as_str();
        let mut parts = vec![agent, active.notes.earlier_notes(), &sub_agents];
        parts.retain(|part| !part.is_empty());
        parts.join("\n\n")
    }

    /// The window of the current model, in provider tokens.
    pub(crate) fn window_tokens(&self) -> u64 {
        self.state.models.agent_window_tokens(self.cursor.model())
    }

    /// Sets the length of the answer: the configured one, limited by the reserve and by what the provider accepts.
    pub(super) fn with_output_limit(&self, target: Target, reserve_tokens: u64) -> Target {
        let accepted_tokens = self.retry.max_output_tokens.unwrap_or(u64::MAX);
        let configured_tokens = self.state.settings.max_output_tokens;
        // At least 1: providers reject a limit of 0.
        let output_tokens = configured_tokens.min(reserve_tokens).min(accepted_tokens).max(1);
        let least_tokens = (output_tokens as f64 * MIN_OUTPUT_SHARE) as u64;
        let min_output_tokens = Some(least_tokens.max(MIN_OUTPUT_TOKENS));
        Target { output_tokens, min_output_tokens, ..target }
    }

    /// The size of a request whose messages have these sizes.
    pub(super) fn request_size(&self, request: &ModelRequest, sizes: &[u64]) -> RequestSize {
        let head =
            [SizePart::from_text(&request.system), SizePart::from_text(&json_of(&request.tools))];
        let messages = request.messages.iter().zip(sizes);
        let messages = messages.map(|(message, tokens)| {
            SizePart::new(&json_of(message), *tokens).with_attachments(image_tokens(message))
        });
        self.guard.context().accounting().request_size(head.into_iter().chain(messages))
    }

    /// The expected size of a request, in provider tokens.
    pub(crate) fn expected_tokens(&self, request: &OutgoingRequest) -> u64 {
        self.guard.context().expected_size(&request.sent.size)
    }

    /// Learns token counts from an answer.
    pub(super) fn learn_from_answer(
        &mut self,
        request: &OutgoingRequest,
        answer: &AssistantMessage,
    ) {
        let (target, sent) = (&request.target, &request.sent);
        let truncation = self.guard.record_usage(target, sent, &answer.usage, answer.stop_reason);
        if let Some(truncation) = truncation {
            // For all sessions: a server that truncates silently does so for each of them.
            self.state.models.lower_agent_window(&target.model, truncation.window_tokens);
        }
    }
}

fn json_of(value: &(impl Serialize + ?Sized)) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

/// The estimated tokens of a message's images.
fn image_tokens(message: &ChatMessage) -> u64 {
    let images = message.content().iter().filter(|block| matches!(block, ChatBlock::Image { .. }));
    images.count() as u64 * tokens::IMAGE_TOKENS
}
