//! Offers tools to the model and runs its calls.

use ctxhost_engine_api::{ToolCallRequest, ToolSpec};

use super::agent_turn::AgentTurn;
use crate::error::TurnError;
use crate::event::EventKind;
use crate::subagent::tool::{SPAWN_AGENT, spawn_tool_spec};
use ctxhost_dialects::message::{ToolCallBlock, ToolResultMessage};
use ctxhost_dialects::{AssistantMessage, ChatBlock, ChatMessage};
use ctxhost_tools::{CallContext, ToolOutput};

impl AgentTurn {
    /// The tools of the host, then those of the engine. The order is stable, since tools are part of the provider's cached
    /// prefix.
    pub(super) async fn tools(&mut self) -> Vec<ToolSpec> {
        let mut tools = self.state.tools.specs();
        tools.extend(self.may_spawn_subagents().then(spawn_tool_spec));
        let session = self.session().reference().clone();
        let offered = self.guard.context().engine().tools(session).await.map(|reply| reply.value);
        for tool in offered.unwrap_or_default() {
            // A tool of the host hides an engine's tool of the same name.
            if !tools.iter().any(|known| known.name == tool.name) {
                self.engine_tools.insert(tool.name.clone());
                tools.push(tool);
            }
        }
        tools
    }

    /// Runs the tool calls of an answer and records each result before the next call.
    pub(super) async fn use_tools(&mut self, answer: &AssistantMessage) -> Result<(), TurnError> {
        let rounds = self.state.settings.max_rounds;
        if self.requests >= rounds {
            return Err(TurnError::TooManyRounds { rounds });
        }
        // One after the other: two calls may write the same file.
        for call in answer.tool_calls() {
            let arguments = call.arguments.clone();
            let (call_id, tool) = (call.id.clone(), call.name.clone());
            self.guard.emit(EventKind::ToolCalled { call_id, tool, arguments });
            let output = if call.name == SPAWN_AGENT && self.may_spawn_subagents() {
                self.spawn_agent(&call.arguments).await?
            } else {
                self.call(call).await
            };
            let result = result_of(call, output, self.state.clock().now_ms());
            self.guard.emit(tool_ended(&result));
            self.append(&ChatMessage::ToolResult(result))?;
        }
        Ok(())
    }

    async fn call(&self, call: &ToolCallBlock) -> ToolOutput {
        let tools = &self.state.tools;
        let is_host_tool = tools.names().any(|name| name == call.name);
        // An unknown name goes to the registry as well, whose error lists the tools.
        if is_host_tool || !self.engine_tools.contains(&call.name) {
            let context = CallContext {
                cwd: self.session().session().header().cwd().into(),
                session_id: self.guard.session_id().to_owned(),
                call_id: call.id.clone(),
                timeout: self.state.tool_timeout,
            };
            return tools.call(&call.name, &call.arguments, &context).await;
        }
        let request = ToolCallRequest {
            session: self.session().reference().clone(),
            name: call.name.clone(),
            arguments: call.arguments.clone(),
            ..ToolCallRequest::default()
        };
        let engine = self.guard.context().engine();
        match engine.call_tool(&self.session().view(), request).await {
            Ok(reply) if reply.value.is_error => ToolOutput::error(reply.value.text),
            Ok(reply) => ToolOutput::text(reply.value.text),
            Err(error) => ToolOutput::error(error.into_engine_error().to_string()),
        }
    }
}

fn result_of(call: &ToolCallBlock, output: ToolOutput, now_ms: i64) -> ToolResultMessage {
    ToolResultMessage {
        tool_call_id: call.id.clone(),
        tool_name: call.name.clone(),
        content: output.blocks,
        is_error: output.is_error,
        timestamp: now_ms,
    }
}

fn tool_ended(result: &ToolResultMessage) -> EventKind {
    let chars = |block: &ChatBlock| match block {
        ChatBlock::Text { text, .. } => text.chars().count(),
        _ => 0,
    };
    EventKind::ToolEnded {
        call_id: result.tool_call_id.clone(),
        tool: result.tool_name.clone(),
        is_error: result.is_error,
        chars: result.content.iter().map(chars).sum(),
    }
}
