//! `[agent]`: the model of the agent and the limits of its turns.

use serde::{Deserialize, Serialize};

use ctxhost_dialects::ThinkingLevel;

ctxhost_engine_api::settings! {
    /// `[agent]`.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    pub struct AgentSettings {
        /// Model of the agent, as `provider/id` with a name from [providers]; for `chat` and
        /// programs that embed the runtime.
        pub model: Option<String> = None, Text;
        /// Models to try in order when the first one fails, as `provider/id`, except for a request
        /// that is too large.
        pub fallbacks: Vec<String> = Vec::new(), List;
        /// Start of every conversation; short, so that it fits any task.
        pub system_prompt: String = String::from( "You are an agent that works in the person's folder with the tools you are given. \
                 Do what is asked, check the result, and say briefly what you did.", ),
            Text;
        /// How much the model reasons before it answers; off, since reasoning costs output tokens
        /// and not every model supports it.
        pub thinking: ThinkingLevel = ThinkingLevel::Off, Word(&["off", "low", "medium", "high"]);
        /// Longest answer, at most the reserve; enough for a long file in one tool call.
        pub max_output_tokens: u64 = 8_192, Whole(1), "provider tokens";
        /// Limit of requests with tool calls in one turn; more are usually a loop, and `go on`
        /// continues a real one.
        pub max_rounds: u32 = 200, Whole(1), "requests";
        /// Sessions that may run tools at the same time, model calls not counted; more would
        /// overload one machine.
        pub concurrent_turns: usize = 16, Whole(1), "turns";
        /// Whether the model may call `spawn_agent`, which starts a session for a task; false,
        /// because each costs a conversation.
        pub subagents: bool = false, Flag;
        /// How deep sub-agents may start others; 1 allows the agent alone to start them.
        pub subagent_depth: u32 = 2, Whole(1), "levels";
        /// Live sub-agents of one session at the same time.
        pub subagents_live: usize = 8, Whole(1), "sub-agents";
        /// Time after which a sub-agent is removed; half an hour is a long task.
        pub subagent_ttl_ms: u64 = 1_800_000, Whole(1), "ms";
        /// Most characters of earlier sessions' notes in the system prompt, newest first; about
        /// 2,000 tokens per request.
        pub notes_chars: usize = 8_000, Whole(0), "characters";
    }
}
