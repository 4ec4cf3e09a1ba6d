//! What fills a session's window, by category, and how fast the session grows.

use std::collections::BTreeMap;

use ctxhost_engine_api::transcript::tokens::{IMAGE_TOKENS, thinking_chars, weighted_chars};
use ctxhost_engine_api::{ContentBlock, Entry, EntryKind, Flags, Role, Transcript};
use serde::Serialize;

/// The newest assistant messages, whose calls and results count as current. The same number as in the pruning of
/// `legacy`.
const CURRENT_ASSISTANTS: usize = 3;

/// Turns of the mean that predicts the next one: enough to smooth out a large file, few enough to follow a change of
/// the work.
const RECENT_TURNS: usize = 8;

/// A category of content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum UsageCategory {
    System,
    /// Messages of the user.
    User,
    /// Text of the model.
    Assistant,
    /// Thinking of the model.
    Thinking,
    /// Tool calls: names and arguments.
    ToolCalls,
    ToolResults,
    /// Images of any role.
    Images,
    /// Summaries of compactions and of abandoned branches.
    Summaries,
}

/// The share of one category or tool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct UsagePart {
    pub category: UsageCategory,
    /// The tool, for results; else empty.
    pub tool: String,
    pub tokens: u64,
}

/// What a live transcript consists of, in estimated tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ContextUsage {
    /// The parts, which add up to `tokens`; the largest of each category first.
    pub parts: Vec<UsagePart>,
    pub tokens: u64,
    /// Old tool results, which pruning could clear.
    pub old_results_tokens: u64,
    /// Old tool call arguments, which could be shortened.
    pub old_arguments_tokens: u64,
    /// The mean growth per recent turn; `None` without a turn.
    pub turn_tokens: Option<u64>,
    /// The number of turns in that mean.
    pub turns: u64,
}

impl ContextUsage {
    /// Measures a transcript.
    pub fn from_transcript(view: &Transcript) -> ContextUsage {
        let mut sums: BTreeMap<(UsageCategory, String), u64> = BTreeMap::new();
        let mut usage = ContextUsage { tokens: view.total_tokens(), ..ContextUsage::default() };
        let old_until = old_until(view);
        for entry in view.iter() {
            for (category, tokens) in parts_of(&entry) {
                *sums.entry((category, tool_of(category, &entry))).or_default() += tokens;
                // A replaced entry has nothing left to clear.
                let is_old = entry.seq() < old_until && !entry.has(Flags::REPLACED);
                match category {
                    UsageCategory::ToolResults if is_old => usage.old_results_tokens += tokens,
                    UsageCategory::ToolCalls if is_old => usage.old_arguments_tokens += tokens,
                    _ => {}
                }
            }
        }
        let parts = sums.into_iter().filter(|(_, tokens)| *tokens > 0);
        usage.parts =
            parts.map(|((category, tool), tokens)| UsagePart { category, tool, tokens }).collect();
        usage.parts.sort_by(|a, b| a.category.cmp(&b.category).then(b.tokens.cmp(&a.tokens)));
        (usage.turn_tokens, usage.turns) = growth(view);
        usage
    }

    /// Turns until the transcript exceeds a budget; `None` if its growth is unknown.
    pub fn turns_left(&self, budget_tokens: u64) -> Option<u64> {
        let turn_tokens = self.turn_tokens.filter(|tokens| *tokens > 0)?;
        Some(budget_tokens.saturating_sub(self.tokens) / turn_tokens)
    }
}

/// The position of the first current entry.
fn old_until(view: &Transcript) -> u64 {
    let assistants = view.iter().rev().filter(|entry| entry.role() == Role::Assistant);
    assistants.take(CURRENT_ASSISTANTS).last().map_or(0, |entry| entry.seq())
}

/// The tokens of an entry by category; they add up to its size.
fn parts_of(entry: &Entry<'_>) -> Vec<(UsageCategory, u64)> {
    let main = category_of(entry);
    let is_plain =
        !(entry.has(Flags::IMAGES) || entry.has(Flags::THINKING) || entry.has(Flags::TOOL_CALLS));
    // Most entries have one category; only the others are parsed.
    if is_plain || main == UsageCategory::Summaries {
        return vec![(main, entry.tokens())];
    }
    let (mut images, mut weights) =
        (0, vec![(main, 0), (UsageCategory::Thinking, 0), (UsageCategory::ToolCalls, 0)]);
    for block in &entry.message().blocks {
        let (at, chars) = match block {
            ContentBlock::Thinking { text, signature } => {
                (1, thinking_chars(text, signature.as_deref()))
            }
            ContentBlock::ToolCall(call) => {
                (2, weighted_chars(&call.name) + weighted_chars(&call.arguments))
            }
            ContentBlock::Text(text) => (0, weighted_chars(text)),
            ContentBlock::Image { .. } => {
                images += IMAGE_TOKENS;
                continue;
            }
            _ => continue,
        };
        if let Some((_, weight)) = weights.get_mut(at) {
            *weight += chars;
        }
    }
    // The stored size may be below the fixed size of its images.
    let images = images.min(entry.tokens());
    let mut parts = distribute(entry.tokens() - images, &weights);
    parts.push((UsageCategory::Images, images));
    parts
}

/// Distributes tokens by weight; the first part gets the rounding remainder.
fn distribute(tokens: u64, weights: &[(UsageCategory, u64)]) -> Vec<(UsageCategory, u64)> {
    let total: u64 = weights.iter().map(|(_, weight)| weight).sum();
    let part = |weight: u64| {
        // In u128: tokens times characters may overflow u64.
        let part = u128::from(tokens) * u128::from(weight) / u128::from(total.max(1));
        u64::try_from(part).unwrap_or(tokens)
    };
    let mut parts: Vec<(UsageCategory, u64)> =
        weights.iter().map(|(sort, weight)| (*sort, part(*weight))).collect();
    let given: u64 = parts.iter().map(|(_, tokens)| tokens).sum();
    if let Some((_, first)) = parts.first_mut() {
        *first += tokens - given;
    }
    parts
}

fn category_of(entry: &Entry<'_>) -> UsageCategory {
    let is_summary =
        matches!(entry.kind(), EntryKind::CompactionSummary | EntryKind::BranchSummary);
    match entry.role() {
        _ if is_summary || entry.has(Flags::SYNTHETIC) => UsageCategory::Summaries,
        Role::System => UsageCategory::System,
        Role::Assistant => UsageCategory::Assistant,
        Role::Tool => UsageCategory::ToolResults,
        _ => UsageCategory::User,
    }
}

fn tool_of(sort: UsageCategory, entry: &Entry<'_>) -> String {
    let result = (sort == UsageCategory::ToolResults).then(|| entry.tool_result()).flatten();
    result.map(|result| result.tool.into_owned()).unwrap_or_default()
}

/// The mean growth per recent turn, and the number of turns. Turns after the newest summary are preferred, since earlier
/// ones are shortened.
fn growth(view: &Transcript) -> (Option<u64>, u64) {
    let summary = view.iter().rev().find(|entry| category_of(entry) == UsageCategory::Summaries);
    let whole_from = summary.map_or(0, |entry| entry.seq());
    let begins = view.iter().rev().filter(Entry::is_user_message).take(RECENT_TURNS);
    let mut begins: Vec<u64> = begins.map(|entry| entry.seq()).collect();
    // Without a turn after the summary, shortened turns are better than none.
    if begins.first().is_some_and(|newest| *newest > whole_from) {
        begins.retain(|begin| *begin >= whole_from);
    }
    let Some(first) = begins.last() else { return (None, 0) };
    let turns = begins.len() as u64;
    let tokens = view.tokens(*first..view.len() as u64);
    (Some(tokens / turns), turns)
}

#[cfg(test)]
mod tests {
    use ctxhost_engine_api::testing::TranscriptBuilder;
    use ctxhost_engine_api::testing::generate::transcripts;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(128))]

        #[test]
        fn parts_add_up_to_the_total(generated in transcripts()) {
            let view = generated.transcript();
            let usage = ContextUsage::from_transcript(&view);
            let parts: u64 = usage.parts.iter().map(|part| part.tokens).sum();
            prop_assert_eq!(parts, view.total_tokens());
            prop_assert_eq!(usage.tokens, view.total_tokens());
            prop_assert!(usage.old_results_tokens + usage.old_arguments_tokens <= parts);
        }
    }

    #[test]
    fn old_results_and_arguments_are_measured() {
        let mut talk = TranscriptBuilder::new();
        talk.user("go").calls(&[("a", "grep", r#"{"pattern":"total of the cart"}"#)]);
        talk.result("a", "grep", &"a line\n".repeat(100));
        for id in ["b", "c"] {
            talk.calls(&[(id, "ls", "{}")]).result(id, "ls", &"file\n".repeat(50));
        }
        let usage = ContextUsage::from_transcript(&talk.transcript());
        assert_eq!((usage.old_results_tokens, usage.old_arguments_tokens), (0, 0));
        talk.assistant("done").user("and now?");
        let view = talk.transcript();
        let usage = ContextUsage::from_transcript(&view);
        assert_eq!(usage.old_results_tokens, view.get(2).unwrap().tokens());
        assert_eq!(usage.old_arguments_tokens, view.get(1).unwrap().tokens());
        let tools: Vec<&str> = usage.parts.iter().map(|part| part.tool.as_str()).collect();
        assert_eq!(tools, ["", "", "", "grep", "ls"], "user, assistant, calls, results");
    }

    #[test]
    fn recent_turns_predict_the_next_ones() {
        let mut talk = TranscriptBuilder::new();
        assert_eq!(ContextUsage::from_transcript(&talk.transcript()).turns_left(100), None);
        talk.summary(&"long ago ".repeat(400));
        for _ in 0..20 {
            talk.user(&"ask!".repeat(10)).assistant(&"done".repeat(30));
        }
        let usage = ContextUsage::from_transcript(&talk.transcript());
        assert_eq!((usage.turn_tokens, usage.turns), (Some(40), 8));
        assert_eq!(usage.turns_left(usage.tokens + 130), Some(3));
        assert_eq!(usage.turns_left(5), Some(0));
    }
}
