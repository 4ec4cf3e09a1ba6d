//! The tools of a turn: what the model may call, and what becomes of its calls.

use ctxhost_engine_api::{ToolCallRequest, ToolSpec};

use super::{AgentTurn, TurnError};
use crate::event::EventKind;
use crate::subagent::{self, SPAWN_AGENT};
use ctxhost_dialects::message::{ToolCallBlock, ToolResultMessage};
use ctxhost_dialects::{AssistantMessage, ChatBlock, ChatMessage};
use ctxhost_tools::{CallContext, ToolBlock, ToolOutput};

impl AgentTurn {
    /// What the model may call: the host's tools first, then the engine's, always in the same order.
    pub(super) async fn tools(&mut self) -> Vec<ToolSpec> {
        let mut tools = self.state.toolbox.specs();
        tools.extend(self.may_spawn_subagents().then(subagent::spawn_tool_spec));
        let session = self.session().reference().clone();
        let offered = self.guard.context().engine().tools(session).await.map(|served| served.value);
        for tool in offered.unwrap_or_default() {
            if !tools.iter().any(|known| known.name == tool.name) {
                self.engine_tools.insert(tool.name.clone());
                tools.push(tool);
            }
        }
        tools
    }

    /// Runs the calls of an answer, one after the other: two of them may want the same file. Each result
    /// is in the session before the next call begins.
    pub(super) async fn use_tools(&mut self, reply: &AssistantMessage) -> Result<(), TurnError> {
        let rounds = self.state.settings.max_rounds;
        if self.requests >= rounds {
            return Err(TurnError::TooManyRounds { rounds });
        }
        for call in reply.tool_calls() {
            let arguments = call.arguments.clone();
            let (call_id, tool) = (call.id.clone(), call.name.clone());
            self.guard.emit(EventKind::ToolCalled { call_id, tool, arguments });
            let output = match call.name == SPAWN_AGENT && self.may_spawn_subagents() {
                true => self.spawn_agent(&call.arguments).await?,
                false => self.call(call).await,
            };
            let result = result_of(call, output, self.state.clock().now_ms());
            self.guard.emit(tool_ended(&result));
            self.append(&ChatMessage::ToolResult(result))?;
        }
        Ok(())
    }

    async fn call(&self, call: &ToolCallBlock) -> ToolOutput {
        let shared = &self.state;
        let is_ours = shared.toolbox.names().any(|name| name == call.name);
        if is_ours || !self.engine_tools.contains(&call.name) {
            let context = CallContext {
                cwd: self.session().session().header().cwd().into(),
                session_id: self.guard.session_id().to_owned(),
                call_id: call.id.clone(),
                timeout: shared.tool_timeout,
            };
            return shared.toolbox.call(&call.name, &call.arguments, &context).await;
        }
        let request = ToolCallRequest {
            session: self.session().reference().clone(),
            name: call.name.clone(),
            arguments: call.arguments.clone(),
            ..ToolCallRequest::default()
        };
        let engine = self.guard.context().engine();
        match engine.call_tool(&self.session().view(), request).await {
            Ok(served) if served.value.is_error => ToolOutput::error(served.value.text),
            Ok(served) => ToolOutput::text(served.value.text),
            Err(error) => ToolOutput::error(error.into_engine_error().to_string()),
        }
    }
}

fn result_of(call: &ToolCallBlock, output: ToolOutput, now_ms: i64) -> ToolResultMessage {
    let block = |block| match block {
        ToolBlock::Text(text) => ChatBlock::text(text),
        ToolBlock::Image { data, mime_type } => ChatBlock::Image { data, mime_type },
    };
    ToolResultMessage {
        tool_call_id: call.id.clone(),
        tool_name: call.name.clone(),
        content: output.blocks.into_iter().map(block).collect(),
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
