//! How much of a prompt the provider has read before.

use std::collections::VecDeque;

use serde_json::Value;

/// Prompts remembered; more sessions than that share the cache of none.
const MAX_PROMPTS: usize = 64;
/// Caches are read in steps, in tokens.
const STEP_TOKENS: u64 = 128;

/// The prompts of late.
#[derive(Debug, Default)]
pub(super) struct Cache(VecDeque<String>);

impl Cache {
    /// The tokens of a prompt that were read before; then it counts as read.
    pub(super) fn read(&mut self, prompt: &Value, prompt_tokens: u64) -> u64 {
        let prompt = prompt.to_string();
        let common = self.0.iter().map(|before| common_bytes(before, &prompt)).max().unwrap_or(0);
        let cached = prompt_tokens * common as u64 / (prompt.len() as u64).max(1);
        self.0.push_front(prompt);
        self.0.truncate(MAX_PROMPTS);
        cached / STEP_TOKENS * STEP_TOKENS
    }
}

fn common_bytes(before: &str, now: &str) -> usize {
    before.bytes().zip(now.bytes()).take_while(|(before, now)| before == now).count()
}
