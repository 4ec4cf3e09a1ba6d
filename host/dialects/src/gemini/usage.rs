//! What a usage object of Gemini's says.

use serde_json::Value;

use crate::message::Usage;

/// The counts of one usage object.
pub(crate) fn read_usage(said: &Value) -> Usage {
    let mut counts = Counts::default();
    counts.take(Some(said));
    counts.usage()
}

/// What the provider counted, in its own sums.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counts {
    prompt: u64,
    tool_use_prompt: u64,
    cached: u64,
    candidates: u64,
    thoughts: u64,
}

impl Counts {
    /// Each count replaces the earlier one; what is not said stays.
    pub(super) fn take(&mut self, said: Option<&Value>) {
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
    pub(super) fn usage(self) -> Usage {
        let input = self.prompt.saturating_sub(self.cached).saturating_add(self.tool_use_prompt);
        let output = self.candidates.saturating_add(self.thoughts);
        Usage { input, output, cache_read: self.cached, ..Usage::default() }.summed()
    }
}
