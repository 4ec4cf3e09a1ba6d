//! What a usage object of Gemini's says.

use serde_json::Value;

use crate::message::TokenUsage;

/// The counts of one usage object.
pub(crate) fn read_usage(said: &Value) -> TokenUsage {
    let mut counts = GeminiCounts::default();
    counts.update(Some(said));
    counts.usage()
}

/// What the provider counted, in its own sums.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct GeminiCounts {
    prompt: u64,
    tool_use_prompt: u64,
    cached: u64,
    candidates: u64,
    thoughts: u64,
}

impl GeminiCounts {
    /// Each count replaces the earlier one; what is not said stays.
    pub(super) fn update(&mut self, said: Option<&Value>) {
        let take = |name: &str, into: &mut u64| {
            if let Some(tokens) = said.and_then(|said| said.get(name)).and_then(Value::as_u64) {
                *into = tokens;
            }
        };
        take("promptTokenCount", &mut self.prompt);
        take("toolUsePromptTokenCount", &mut self.tool_use_prompt);
        take("cachedContentTokenCount", &mut self.cached);
        take("candidatesTokenCount", &mut self.candidates);
        take("thoughtsTokenCount", &mut self.thoughts);
    }

    /// The prompt count includes what came from the cache; ours does not.
    pub(super) fn usage(self) -> TokenUsage {
        let input = self.prompt.saturating_sub(self.cached).saturating_add(self.tool_use_prompt);
        let output = self.candidates.saturating_add(self.thoughts);
        TokenUsage { input, output, cache_read: self.cached, ..TokenUsage::default() }.with_total()
    }
}
