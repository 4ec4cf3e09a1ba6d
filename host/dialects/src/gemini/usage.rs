//! Token counts in Gemini's usage objects.

use serde_json::Value;

use crate::json::update_count;
use crate::message::TokenUsage;

/// The counts of one usage object.
pub(crate) fn read_usage(usage: &Value) -> TokenUsage {
    let mut counts = GeminiCounts::default();
    counts.update(usage);
    counts.usage()
}

/// Counts as the provider sums them up.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct GeminiCounts {
    prompt: u64,
    cached: u64,
    candidates: u64,
    thoughts: u64,
}

impl GeminiCounts {
    /// Replaces the counts that a usage object has.
    pub(super) fn update(&mut self, usage: &Value) {
        update_count(&mut self.prompt, usage, "promptTokenCount");
        update_count(&mut self.cached, usage, "cachedContentTokenCount");
        update_count(&mut self.candidates, usage, "candidatesTokenCount");
        update_count(&mut self.thoughts, usage, "thoughtsTokenCount");
    }

    pub(super) fn usage(self) -> TokenUsage {
        // Gemini's prompt count includes cached tokens, `TokenUsage::input` does not. What Google's own tools found
        // (`toolUsePromptTokenCount`) is not part of the prompt.
        let input = self.prompt.saturating_sub(self.cached);
        let output = self.candidates.saturating_add(self.thoughts);
        TokenUsage { input, output, cache_read: self.cached, ..TokenUsage::default() }.with_total()
    }
}
