//! The tool with which a model starts a sub-agent and waits for its last word.

use ctxhost_engine_api::{ContextMode, ToolSpec};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{ParentSession, SpawnOptions};
use crate::turn::{AgentTurn, TurnError};
use ctxhost_tools::ToolOutput;

/// Its name.
pub(crate) const SPAWN_AGENT: &str = "spawn_agent";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SpawnArguments {
    task: String,
    #[serde(default)]
    context: ContextMode,
}

/// What the model is told of it.
pub(crate) fn spawn_tool_spec() -> ToolSpec {
    ToolSpec {
        name: SPAWN_AGENT.into(),
        description: "Gives a task to a sub-agent with a context of its own and answers with its \
                      last message. Use it for work whose details you need not remember. Say in the \
                      task all that it must know and what it should report."
            .into(),
        input_schema: json!({
            "type": "object",
            "properties": {
                "task": { "type": "string", "description": "What to do and what to report." },
                "context": {
                    "type": "string",
                    "enum": ["isolated", "fork"],
                    "description": "isolated (default): it sees the task alone; fork: it sees this conversation too.",
                },
            },
            "required": ["task"],
        }),
    }
}

impl AgentTurn {
    /// Whether the model of this session may start sub-agents.
    pub(crate) fn may_spawn_subagents(&self) -> bool {
        let settings = &self.state.settings;
        let is_ours = self.state.toolbox.names().all(|name| name != SPAWN_AGENT);
        settings.subagents
            && is_ours
            && self.guard.active().subagents.depth() < settings.subagent_depth
    }

    /// The model called the tool. Whatever goes wrong is an answer too; only a session that cannot be
    /// written ends the turn.
    pub(crate) async fn spawn_agent(&mut self, arguments: &Value) -> Result<ToolOutput, TurnError> {
        let arguments = match SpawnArguments::deserialize(arguments) {
            Ok(arguments) if !arguments.task.trim().is_empty() => arguments,
            Ok(_) => return Ok(ToolOutput::error("the task is empty; say what is to be done")),
            Err(error) => return Ok(ToolOutput::error(format!("{SPAWN_AGENT}: {error}"))),
        };
        let options = SpawnOptions { context: arguments.context, ..SpawnOptions::default() };
        let begun = match self.as_parent().spawn(&arguments.task, &options).await {
            Ok(begun) => begun,
            Err(error) => return Ok(ToolOutput::error(error.to_string())),
        };
        // Without a place in the global lane: the child needs one, and there may be no other.
        let outcome = self.guard.lock().yield_permit_during(begun.run(&self.state)).await;
        self.as_parent().record_ends().await?;
        Ok(match outcome.map(|reply| reply.message.text()) {
            Ok(text) if text.trim().is_empty() => ToolOutput::error("the sub-agent said nothing"),
            Ok(text) => ToolOutput::text(text),
            Err(error) => ToolOutput::error(error.to_string()),
        })
    }

    /// The session of the turn, as the parent of its sub-agents.
    pub(crate) fn as_parent(&mut self) -> ParentSession<'_> {
        ParentSession::new(&mut self.guard)
    }
}
