//! What a prompt is prepared for: a model, its window, and what else goes into that.

use ctxhost_engine_api::Trigger;

use crate::policy::CompactionPolicy;
use ctxhost_models::ModelName;

/// What a prompt is prepared for.
#[derive(Clone, Debug, Default)]
pub struct Target {
    /// The model that reads it.
    pub model: ModelName,
    /// Its window, in provider tokens. Where the session has learned a smaller one, that one counts.
    pub window_tokens: u64,
    /// The smallest window that a refusal is believed to state, in provider tokens.
    pub min_window_tokens: u64,
    /// Held free for the answer, in provider tokens; `None` for what `[budget]` says.
    pub reserve_tokens: Option<u64>,
    /// Whether the conversation may use the reserve up before it is trimmed.
    pub is_reserve_usable: bool,
    /// The answer that is asked for, in provider tokens; 0 where it takes no room in the window.
    pub output_tokens: u64,
    /// The shortest answer that is worth asking for where a request is too large, in provider tokens; `None` where the
    /// answer cannot be shortened.
    pub min_output_tokens: Option<u64>,
    /// What system prompt and tools take, as entries count.
    pub overhead_tokens: u64,
    /// What the conversation may take at the most, as entries count.
    pub max_tokens: Option<u64>,
    /// The share of the window's room that the conversation may take; `None` for all of it.
    pub budget_share: Option<f64>,
    /// A budget that is known already, in place of one that is worked out from the window.
    pub budget: Option<Budget>,
    /// The names of the tools that the model may call.
    pub tools: Vec<String>,
    /// Why a compaction that is needed is wanted.
    pub trigger: Trigger,
    /// When the host may compact by itself.
    pub compaction: CompactionPolicy,
}

/// What the conversation in a prompt may take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Budget {
    /// What it may take, as entries count.
    pub tokens: u64,
    /// What is held free for the answer, in provider tokens.
    pub reserve_tokens: u64,
    /// What it may take more where nothing is held free, as entries count. Used before the emergency trim,
    /// never for comfort.
    pub spare_tokens: u64,
}

impl Budget {
    /// The same with nothing held free for the answer.
    pub(crate) fn without_reserve(self) -> Budget {
        let tokens = self.tokens.saturating_add(self.spare_tokens);
        Budget { tokens, reserve_tokens: 0, spare_tokens: 0 }
    }
}
