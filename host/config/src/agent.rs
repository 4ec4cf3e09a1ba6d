//! Who answers, and how long a turn may go on.

use serde::{Deserialize, Serialize};

use ctxhost_dialects::ThinkingLevel;

/// `[agent]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AgentSettings {
    /// The model that answers, as `provider/id`.
    pub model: Option<String>,
    /// The models that stand in for it, in order.
    pub fallbacks: Vec<String>,
    /// What every conversation begins with.
    pub system_prompt: String,
    /// How much the model should think.
    pub thinking: ThinkingLevel,
    /// The longest answer, in provider tokens; never more than the reserve. Default 8,192: room for a
    /// long file in one tool call.
    pub max_output_tokens: u64,
    /// Requests of one turn that may call tools. Default 200: the longest real turns on record have
    /// fewer, and a loop ends.
    pub max_rounds: u32,
    /// Sessions that work at the same time; model calls do not count. Default 16: beyond it a machine is
    /// busy with tools.
    pub concurrent_turns: usize,
    /// Whether the model may start sub-agents. Default false: each costs a conversation of its own.
    pub subagents: bool,
    /// How deep sub-agents may start others: 1 lets the agent alone do so. Default 2: a task is divided
    /// once, a part once more.
    pub subagent_depth: u32,
    /// Sub-agents of one session that live at the same time. Default 8, as in OpenClaw.
    pub subagents_live: usize,
    /// How long a sub-agent may live, in milliseconds. Default 1,800,000: half an hour is a long task.
    pub subagent_ttl_ms: u64,
    /// The most of the notes of earlier sessions that the system prompt holds, in characters; the newest
    /// count. Default 8,000: some 2,000 tokens in every request.
    pub notes_chars: usize,
}

impl Default for AgentSettings {
    fn default() -> Self {
        AgentSettings {
            model: None,
            fallbacks: Vec::new(),
            system_prompt: String::from(
                "You are an agent that works in the person's folder with the tools you are given. \
                 Do what is asked, check the result, and say briefly what you did.",
            ),
            thinking: ThinkingLevel::Off,
            max_output_tokens: 8_192,
            max_rounds: 200,
            concurrent_turns: 16,
            subagents: false,
            subagent_depth: 2,
            subagents_live: 8,
            subagent_ttl_ms: 1_800_000,
            notes_chars: 8_000,
        }
    }
}
