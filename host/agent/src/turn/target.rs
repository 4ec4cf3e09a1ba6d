//! What a turn's next prompt is prepared for, and what its requests teach about sizes.

use ctxhost_engine_api::transcript::tokens;
use ctxhost_engine_api::{ToolSpec, Trigger};
use serde::Serialize;

use super::{AgentTurn, OutgoingRequest};
use ctxhost_context::accounting::{RequestSize, SizePart};
use ctxhost_context::{CompactionPolicy, Target};
use ctxhost_dialects::{AssistantMessage, ModelRequest};

/// The shortest answer that is asked for where a provider finds answers too long and does not say how long they may
/// be, in provider tokens: a smaller one holds no tool call.
pub(crate) const MIN_OUTPUT_TOKENS: u64 = 256;

/// The least that an answer may be shortened to, as a share of what was asked for, where leaving out a part of the
/// conversation would help as well.
const SHORTER_SHARE: f64 = 0.25;

impl AgentTurn {
    /// What the next prompt is prepared for, and the tools that the model may call.
    pub(crate) async fn target(&mut self, trigger: Trigger) -> (Target, Vec<ToolSpec>) {
        let tools = self.tools().await;
        let target = self.target_with(&tools, trigger);
        (target, tools)
    }

    /// The same with tools that are known.
    pub(super) fn target_with(&self, tools: &[ToolSpec], trigger: Trigger) -> Target {
        let model = self.cursor.model().clone();
        let children = &self.guard.active().subagents;
        let listed = if tools.is_empty() { String::new() } else { json_of(tools) };
        Target {
            window_tokens: self.state.models.agent_window_tokens(&model),
            model,
            min_window_tokens: 1,
            overhead_tokens: tokens::estimate(&self.system_prompt()) + tokens::estimate(&listed),
            max_tokens: self.retry.cap_tokens,
            budget_share: Some(children.budget_share()),
            tools: tools.iter().map(|tool| tool.name.clone()).collect(),
            trigger,
            compaction: self.compaction_policy(),
            ..Target::default()
        }
    }

    /// When the host may compact on the way. Nobody can compact a sub-agent by hand.
    fn compaction_policy(&self) -> CompactionPolicy {
        match CompactionPolicy::for_request(&self.state.compaction, self.requests > 0) {
            CompactionPolicy::Never if self.guard.active().subagents.depth() > 0 => {
                CompactionPolicy::WhenNeeded
            }
            policy => policy,
        }
    }

    /// What every request of the session begins with: what the agent is told, what earlier sessions
    /// left, and which of its sub-agents live. No engine sees it, so none can leave it out.
    pub(crate) fn system_prompt(&self) -> String {
        let open = self.guard.active();
        let sub_agents = open.subagents.prompt_note(&self.state.running_subagents);
        let agent = self.state.settings.system_prompt.as_str();
        let mut parts = vec![agent, open.notes.earlier_notes(), &sub_agents];
        parts.retain(|part| !part.is_empty());
        parts.join("\n\n")
    }

    /// The window of the model that answers now, in provider tokens.
    pub(crate) fn window_tokens(&self) -> u64 {
        self.state.models.agent_window_tokens(self.cursor.model())
    }

    /// The target with the answer that a request asks for: what is wanted, what is held free, what the provider gives.
    pub(super) fn with_output_limit(&self, target: Target, reserve_tokens: u64) -> Target {
        let given_tokens = self.retry.max_output_tokens.unwrap_or(u64::MAX);
        let wanted_tokens = self.state.settings.max_output_tokens;
        let output_tokens = wanted_tokens.min(reserve_tokens).min(given_tokens).max(1);
        let least_tokens = (output_tokens as f64 * SHORTER_SHARE) as u64;
        let min_output_tokens = Some(least_tokens.max(MIN_OUTPUT_TOKENS));
        Target { output_tokens, min_output_tokens, ..target }
    }

    /// A request as far as its size goes.
    pub(super) fn request_size(&self, request: &ModelRequest, sizes: &[u64]) -> RequestSize {
        let head =
            [SizePart::from_text(&request.system), SizePart::from_text(&json_of(&request.tools))];
        let messages = request.messages.iter().zip(sizes);
        let messages = messages.map(|(message, tokens)| SizePart::new(&json_of(message), *tokens));
        self.guard.context().accounting().request_size(head.into_iter().chain(messages))
    }

    /// What a request probably costs, in provider tokens.
    pub(crate) fn expected_tokens(&self, draft: &OutgoingRequest) -> u64 {
        self.guard.context().expected_size(&draft.sent.size)
    }

    /// What an answer teaches about sizes. A window that the provider seems to have counts for all sessions.
    pub(super) fn learn_from_answer(&mut self, draft: &OutgoingRequest, reply: &AssistantMessage) {
        let (target, sent) = (&draft.target, &draft.sent);
        let truncation = self.guard.record_usage(target, sent, &reply.usage, reply.stop_reason);
        if let Some(truncation) = truncation {
            self.state.models.lower_agent_window(&target.model, truncation.window_tokens);
        }
    }
}

fn json_of(sent: &(impl Serialize + ?Sized)) -> String {
    serde_json::to_string(sent).unwrap_or_default()
}
