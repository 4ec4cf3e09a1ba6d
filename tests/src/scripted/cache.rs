//! How much of a prompt the provider has read before.

use std::collections::VecDeque;

use serde_json::Value;

/// Prompts remembered; more sessions than that share the cache of none.
const MAX_PROMPTS: usize = 64;
/// Caches are read in steps, in tokens.
const STEP_TOKENS: u64 = 128;
/// Prompts are compared in pieces, because single bytes take long in a long run.
const PIECE_BYTES: usize = 1_024;
/// The closing brackets of a prompt, which no longer prompt shares.
const CLOSING_BYTES: usize = 2;

/// The prompts of late.
#[derive(Debug, Default)]
pub(super) struct Cache(VecDeque<String>);

impl Cache {
    /// The tokens of a prompt that were read before; then it counts as read.
    pub(super) fn read(&mut self, prompt: &Value, prompt_tokens: u64) -> u64 {
        let prompt = prompt.to_string();
        let mut most = 0;
        self.0.retain(|before| {
            let common = common_bytes(before.as_bytes(), prompt.as_bytes());
            most = most.max(common);
            // What the new one holds whole needs no remembering.
            common + CLOSING_BYTES < before.len()
        });
        let cached = prompt_tokens * most as u64 / (prompt.len() as u64).max(1);
        self.0.push_front(prompt);
        self.0.truncate(MAX_PROMPTS);
        cached / STEP_TOKENS * STEP_TOKENS
    }
}

fn common_bytes(before: &[u8], now: &[u8]) -> usize {
    let pieces = before.chunks(PIECE_BYTES).zip(now.chunks(PIECE_BYTES));
    let same = pieces.take_while(|(before, now)| before == now).map(|(piece, _)| piece.len()).sum();
    let (before, now) = (before.get(same..).unwrap_or(&[]), now.get(same..).unwrap_or(&[]));
    same + before.iter().zip(now).take_while(|(before, now)| before == now).count()
}
