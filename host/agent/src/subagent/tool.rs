//! The tool `spawn_agent`, which starts a sub-agent and returns its last message.

use ctxhost_engine_api::{ContextMode, ToolSpec};
use serde::Deserialize;
use serde_json::{Value, json};

use super::error::SpawnOptions;
use super::spawn::ParentSession;
use crate::error::TurnError;
use crate::turn::agent_turn::AgentTurn;
use ctxhost_dialects::message::StopReason;
use ctxhost_tools::ToolOutput;

/// The name of the tool.
pub(crate) const SPAWN_AGENT: &str = "spawn_agent";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SpawnArguments {
    task: String,
    #[serde(default)]
    context: ContextMode,
}

/// The tool as the model sees it.
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
        // A tool of the program with this name has priority.
        let is_free = self.state.tools.names().all(|name| name != SPAWN_AGENT);
        settings.subagents
            && is_free
            && self.guard.active().subagents.depth() < settings.subagent_depth
    }

    /// Runs a call of the tool. Errors become its result, except for a session that cannot be written.
    pub(crate) async fn spawn_agent(&mut self, arguments: &Value) -> Result<ToolOutput, TurnError> {
        let arguments = match SpawnArguments::deserialize(arguments) {
            Ok(arguments) if !arguments.task.trim().is_empty() => arguments,
            Ok(_) => return Ok(ToolOutput::error("the task is empty; describe what to do")),
            Err(error) => return Ok(ToolOutput::error(format!("{SPAWN_AGENT}: {error}"))),
        };
        let options = SpawnOptions { context: arguments.context, ..SpawnOptions::default() };
        let run = match self.as_parent().spawn(&arguments.task, &options).await {
            Ok(run) => run,
            Err(error) => return Ok(ToolOutput::error(error.to_string())),
        };
        // Without the global permit: the sub-agent needs one, and it may be the only one.
        let outcome = self.guard.lock().yield_permit_during(run.run(&self.state)).await;
        self.as_parent().record_ends().await?;
        Ok(match outcome.map(|reply| (reply.message.text(), reply.message.stop_reason)) {
            Ok((text, _)) if text.trim().is_empty() => {
                ToolOutput::error("the sub-agent returned no text")
            }
            Ok((text, StopReason::Length)) => {
                ToolOutput::text(format!("{text}\n[cut off at the output limit]"))
            }
            Ok((text, _)) => ToolOutput::text(text),
            Err(error) => ToolOutput::error(error.to_string()),
        })
    }

    pub(crate) fn as_parent(&mut self) -> ParentSession<'_> {
        ParentSession::new(&mut self.guard)
    }
}
