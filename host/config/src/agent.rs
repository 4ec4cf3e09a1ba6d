//! Who answers, and how long a turn may go on.

use serde::{Deserialize, Serialize};

use ctxhost_dialects::ThinkingLevel;

ctxhost_engine_api::settings! {
    /// `[agent]`.
    #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
    #[serde(default, deny_unknown_fields)]
    pub struct AgentSettings {
        /// Who answers, as `provider/id`; the provider is a name under [providers]. Only `chat` and
        /// programs that embed the runtime need it.
        pub model: Option<String> = None, Text;
        /// Who stands in where it cannot answer, as `provider/id`, in order; never for a request
        /// that is too large.
        pub fallbacks: Vec<String> = Vec::new(), List;
        /// What every conversation begins with; short, so that it fits every task.
        pub system_prompt: String = String::from( "You are an agent that works in the person's folder with the tools you are given. \
                 Do what is asked, check the result, and say briefly what you did.", ),
            Text;
        /// How much the model thinks first; off, since it costs output and not every model can.
        pub thinking: ThinkingLevel = ThinkingLevel::Off, Word(&["off", "low", "medium", "high"]);
        /// The longest answer, never more than the reserve; room for a long file in one tool call.
        pub max_output_tokens: u64 = 8_192, Whole(1), "provider tokens";
        /// Requests of one turn that may call tools; longer turns are loops, and `go on` lets a
        /// long one continue.
        pub max_rounds: u32 = 200, Whole(1), "requests";
        /// Sessions that work at the same time, model calls not counted; beyond it a machine is
        /// busy with tools.
        pub concurrent_turns: usize = 16, Whole(1), "turns";
        /// Whether the model is offered `spawn_agent`, which gives a task to a session of its own;
        /// false, because each costs a conversation.
        pub subagents: bool = false, Flag;
        /// How deep sub-agents may start others, 1 for the agent alone; a task is divided once, and
        /// a part of it once more.
        pub subagent_depth: u32 = 2, Whole(1), "levels";
        /// So many of one session may live at the same time; more than this nobody keeps in view.
        pub subagents_live: usize = 8, Whole(1), "sub-agents";
        /// How long one may live before it is swept up; half an hour is a long task.
        pub subagent_ttl_ms: u64 = 1_800_000, Whole(1), "ms";
        /// The most of the notes of earlier sessions that the system prompt holds, the newest
        /// first; some 2,000 tokens in every request.
        pub notes_chars: usize = 8_000, Whole(0), "characters";
    }
}
