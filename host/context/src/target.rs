//! The target of a prompt: a model, its window, and the fixed parts of the request.

use ctxhost_engine_api::Trigger;

use crate::policy::CompactionPolicy;
use ctxhost_invariants::AttachmentCut;
use ctxhost_models::ModelName;

/// What a prompt is prepared for.
#[derive(Clone, Debug, Default)]
pub struct Target {
    pub model: ModelName,
    /// Its window, in provider tokens. A smaller learned window has priority.
    pub window_tokens: u64,
    /// The smallest plausible window in a refusal, in provider tokens.
    pub min_window_tokens: u64,
    /// Reserved for the answer, in provider tokens; `None` for the default of `[budget]`.
    pub reserve_tokens: Option<u64>,
    /// Whether the conversation may use the reserve before it is trimmed.
    pub is_reserve_usable: bool,
    /// The requested length of the answer, in provider tokens; 0 if it does not share the window.
    pub output_tokens: u64,
    /// The shortest useful answer after an overflow, in provider tokens; `None` if the answer cannot be shortened.
    pub min_output_tokens: Option<u64>,
    /// The size of the system prompt and the tools, in estimated tokens.
    pub overhead_tokens: u64,
    /// The maximum size of the conversation, in estimated tokens.
    pub max_tokens: Option<u64>,
    /// The maximum size that the caller wants, in estimated tokens. A compaction for much less than the next prompt may have does not
    /// count for it, as with a smaller window.
    pub requested_tokens: Option<u64>,
    /// Which images and files are left out first: the provider refused the bytes of the request.
    pub attachment_cut: Option<AttachmentCut>,
    /// The conversation's share of the budget; `None` for all of it.
    pub budget_share: Option<f64>,
    /// A fixed budget, instead of one derived from the window.
    pub budget: Option<Budget>,
    /// The names of the available tools.
    pub tools: Vec<String>,
    /// Whether the provider may leave out a part of the prompt, as the request asks it to: its count is then no count of what was sent.
    pub may_be_shortened: bool,
    /// The trigger of a compaction for this prompt.
    pub trigger: Trigger,
    /// When the host may compact.
    pub compaction: CompactionPolicy,
}

/// The budget of the conversation in a prompt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Budget {
    /// The maximum size, in estimated tokens.
    pub tokens: u64,
    /// Reserved for the answer, in provider tokens.
    pub reserve_tokens: u64,
    /// What the reserve adds if it is used, in estimated tokens. Only used to avoid the emergency trim.
    pub spare_tokens: u64,
}

impl Budget {
    /// The budget with a reserve of at most half of what the system prompt and the tools leave: beside large ones nothing would be
    /// left for the conversation, and no compaction could reach that.
    pub(crate) fn halved_reserve(self) -> Budget {
        let free_tokens = self.tokens.saturating_add(self.spare_tokens);
        let moved_tokens = (free_tokens / 2).saturating_sub(self.tokens).min(self.spare_tokens);
        if moved_tokens == 0 {
            return self;
        }
        let spare_tokens = self.spare_tokens - moved_tokens;
        let rest = spare_tokens as f64 / self.spare_tokens as f64;
        Budget {
            tokens: self.tokens + moved_tokens,
            reserve_tokens: (self.reserve_tokens as f64 * rest) as u64,
            spare_tokens,
        }
    }

    /// The budget including the reserve.
    pub(crate) fn without_reserve(self) -> Budget {
        let tokens = self.tokens.saturating_add(self.spare_tokens);
        Budget { tokens, reserve_tokens: 0, spare_tokens: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reserve_leaves_half_of_the_room_to_the_conversation() {
        let budget =
            |tokens, reserve_tokens, spare_tokens| Budget { tokens, reserve_tokens, spare_tokens };
        assert_eq!(budget(507, 4_000, 6_221).halved_reserve(), budget(3_364, 2_162, 3_364));
        assert_eq!(budget(0, 4_000, 100).halved_reserve(), budget(50, 2_000, 50));
        for unchanged in [budget(9_000, 4_000, 4_000), budget(500, 4_000, 0), budget(0, 0, 0)] {
            assert_eq!(unchanged.halved_reserve(), unchanged);
        }
    }
}
